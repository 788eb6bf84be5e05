"""The page that edits a dead letter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Form, Request
from pydantic import BaseModel
from starlette.responses import RedirectResponse, Response

from ....inbox.edit_model import Edit
from ....recovery.letters import edit_letter
from ....recovery.permissions import Act, Actor
from ....schemas.errors import MilepostError
from ...dead_store import keys
from ...views import letters as view
from ...views.letter_rows import LetterDetail
from ...views.letters import LetterRecord
from ...views.payload import short
from ..identity import Connected, Signed
from ..parts import parts
from ..permitting import needs
from ..problems import Problem
from ..rendering import page
from ..rights import NOT_PERMITTED, reason_of, require, seen
from .letter_offers import edit_offer
from .letters import one_letter

router = APIRouter()


@router.get("/letters/{n}/edit", dependencies=[needs(Act.EDIT_LETTER)])
async def show_edit(request: Request, n: int, actor: Signed, connection: Connected) -> Response:
    """Show the form that edits a letter."""
    detail, given = await _editable(n, actor, connection)
    return page(request, "letter_edit.html", one=detail, letter=detail.letter, given=given, problem=None)


class EditForm(BaseModel):
    """The form."""

    value: str = ""
    key: str = ""
    headers: str = ""
    reason: str = ""
    redrive: str = ""


@router.post("/letters/{n}/edit", dependencies=[needs(Act.EDIT_LETTER)])
async def edit_one(
    request: Request, n: int, actor: Signed, connection: Connected, form: Annotated[EditForm, Form()]
) -> Response:
    """Make a new letter, and show it."""
    detail, before = await _editable(n, actor, connection)
    # A browser sends line ends as CR LF; what was not touched is not to differ by that.
    given = {name: text.replace("\r\n", "\n") for name, text in form.model_dump().items()}
    try:
        made = await edit_letter(
            connection,
            actor,
            n,
            _change(before, given),
            reason=reason_of(given["reason"]),
            ids=parts(request).ids,
            max_bytes=parts(request).settings.core.max_event_bytes,
            redrive=given["redrive"] == "yes",
        )
    except (MilepostError, Problem, UnicodeEncodeError) as error:
        problem = (
            error
            if isinstance(error, Problem)
            else Problem(422, getattr(error, "code", "MP770"), _text(error))
        )
        if problem.code in NOT_PERMITTED:
            raise Problem(403, problem.code, problem.detail) from error
        context: dict[str, Any] = {"one": detail, "letter": detail.letter, "given": given, "problem": problem}
        return page(request, "letter_edit.html", status=problem.status, **context)
    return RedirectResponse(f"/letters/{made.n}", 303)


def _change(before: Mapping[str, str], given: Mapping[str, str]) -> Edit:
    """Return what differs from what the form began with."""
    return Edit(
        value=given["value"].encode() if given["value"] != before["value"] else None,
        key=keys(given["key"])[-1] if given["key"] != before["key"] else None,
        headers=_changed_headers(before["headers"], given["headers"]),
    )


def _text(error: Exception) -> str:
    return error.text if isinstance(error, MilepostError) else "It holds a character that is none."


async def _editable(n: int, actor: Actor, connection: Any) -> tuple[LetterDetail, dict[str, str]]:
    """Return a letter that whoever asks may edit, and what the form begins with."""
    scope = seen(actor, Act.READ_LETTERS)
    detail = await one_letter(connection, scope, n, readable=True)
    require(actor, Act.EDIT_LETTER, detail.letter.tenant)
    offered = edit_offer(actor, detail)
    if offered.why_not:
        raise Problem(409, "MP774", f"Letter {n} cannot be edited. {offered.why_not}")
    return detail, form_of(await view.letter_record(connection, scope, n))


def form_of(record: LetterRecord) -> dict[str, str]:
    """Return a record as the form shows it: what is no text is not in it, and stays unless it is written over."""
    lines = []
    for name, found in record.headers:
        try:
            text = (found or b"").decode()
        except UnicodeDecodeError:
            continue
        if (
            text.isprintable()
            and name.isprintable()
            and name.lower() not in {"ce_id", "milepost-edited-from"}
        ):
            lines.append(f"{name}: {text}")
    try:
        text = (record.value or b"").decode()
    except UnicodeDecodeError:
        text = ""
    return {
        "value": text.replace("\r\n", "\n"),
        "key": short(record.key, readable=True, most=2_000) or "",
        "headers": "\n".join(lines),
        "reason": "",
        "redrive": "yes",
    }


def _changed_headers(before: str, after: str) -> dict[str, str | None]:
    old, new = _lines(before), _lines(after)
    changed: dict[str, str | None] = {name: text for name, text in new.items() if old.get(name) != text}
    return changed | {name: None for name in old if name not in new}


def _lines(text: str) -> dict[str, str]:
    found = {}
    for line in text.splitlines():
        name, colon, rest = line.partition(":")
        if line.strip() and not colon:
            raise Problem(422, "MP770", f"{line[:60]!r} is no header: write name: text, one a line.")
        if colon:
            found[name.strip()] = rest.strip()
    return found
