"""Dead letters: by cause, as a list, one with all that is known, and what may be done about them."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any
from urllib.parse import parse_qsl, urlencode

from fastapi import APIRouter, Form, Query, Request
from pydantic import BaseModel
from starlette.responses import RedirectResponse, Response

from ....recovery.bulk_beginning import begin
from ....recovery.bulk_choosing import Preview, preview_letters
from ....recovery.letters import LetterAct, LetterFilter, LetterOutcome, act_on
from ....recovery.permissions import Act, Actor, ActorKind, may_somewhere, scope_of
from ....schemas.errors import MilepostError
from ....schemas.states import LetterStatus
from ...dead_store import keys, read_statuses
from ...filters import read_since
from ...views import letters as view
from ...views.letter_rows import LetterDetail, LetterRow
from ..exporting import MOST, Kind, exported
from ..identity import Connected, Signed
from ..parts import parts
from ..permitting import needs
from ..permitting import refused as refused_of
from ..problems import Problem
from ..rendering import page
from ..rights import NOT_PERMITTED, may, offer, reason_of, require, seen
from .letter_offers import OF, edit_offer, offers

router = APIRouter()
#: Ticked letters that one form acts on; those of a filter are worked off one by one, with progress.
AT_ONCE = 500
_PAGE = 50


class Asked(BaseModel):
    """The filter of the list, as the address has it."""

    status: str = ""
    consumer: str = ""
    topic: str = ""
    code: str = ""
    key: str = ""
    cause: str = ""
    since: str = ""

    @property
    def wanted(self) -> LetterFilter:
        """What the views take.

        Raises:
            UsageError: MP601 for a status or a time that there is not.
        """
        return LetterFilter(
            statuses=read_statuses([self.status] if self.status else []),
            topic=self.topic.strip() or None,
            code=self.code.strip().upper() or None,
            keys=keys(self.key.strip()) if self.key.strip() else (),
            consumer=self.consumer.strip() or None,
            cause=self.cause.strip() or None,
            since=read_since(self.since.strip()) if self.since.strip() else None,
        )

    @property
    def query(self) -> str:
        """The filter as an address, without what is empty."""
        return urlencode({name: value for name, value in self.model_dump().items() if value})


class Many(BaseModel):
    """A form that acts on ticked letters, or on those of a filter.

    Attributes:
        chosen: The filter, as the list's address has it.
        shown: What was shown when somebody said yes.
    """

    act: LetterAct
    reason: str = ""
    one: list[int] = []
    chosen: str = ""
    shown: str = ""


class One(BaseModel):
    """A form that acts on one letter."""

    act: str
    reason: str = ""


class _Page(BaseModel):
    shown: int
    next: str | None
    first: str | None


@router.get("/letters", dependencies=[needs(Act.READ_LETTERS)])
async def show_letters(
    request: Request,
    actor: Signed,
    connection: Connected,
    asked: Annotated[Asked, Query()],
    after: Annotated[int, Query(ge=0)] = 0,
) -> Response:
    """Show letters by cause and as a list."""
    scope = seen(actor, Act.READ_LETTERS)
    payloads = scope_of(actor, Act.READ_PAYLOAD)
    groups = await view.letter_groups(connection, scope, asked.wanted, payloads=payloads)
    rows = await view.letters(connection, scope, asked.wanted, after=after, limit=_PAGE, payloads=payloads)
    following = None if rows.next is None else "&".join(filter(None, [asked.query, f"after={rows.next}"]))
    return page(
        request,
        "letters.html",
        live="letters",
        asked=asked,
        groups=groups,
        rows=rows,
        pages=_Page(shown=len(rows.letters), next=following, first=asked.query if after else None),
        now=rows.now or groups.now,
        statuses=[(one.value, one.value.replace("_", " ").lower()) for one in LetterStatus]
        + [("ALL", "all")],
        redrive=offer(actor, Act.REDRIVE, label="Redrive", says="has each handled once more", tenant=None),
        ignore=offer(
            actor, Act.IGNORE, label="Ignore", says="leaves each unapplied for good", tenant=None, danger=True
        ),
        at_once=AT_ONCE,
    )


@router.get("/letters.{kind}", dependencies=[needs(Act.READ_LETTERS)])
async def export_letters(
    kind: Kind, actor: Signed, connection: Connected, asked: Annotated[Asked, Query()]
) -> Response:
    """Give what the filter shows as a file."""
    rows = await view.letters(
        connection,
        seen(actor, Act.READ_LETTERS),
        asked.wanted,
        limit=MOST,
        payloads=scope_of(actor, Act.READ_PAYLOAD),
    )
    return exported(kind, "letters", LetterRow, rows.letters)


@router.post("/letters/acts", dependencies=[needs(Act.REDRIVE)])
async def act_on_many(
    request: Request, actor: Signed, connection: Connected, given: Annotated[Many, Form()]
) -> Response:
    """Act on ticked letters, or on those of a filter once somebody has seen which."""
    scope, act, reason = seen(actor, Act.READ_LETTERS), given.act, reason_of(given.reason)
    if not may_somewhere(actor, OF[act][0]):
        raise refused_of(actor, OF[act][0])
    asked = _read(given.chosen)
    if not given.one:
        return await _by_filter(request, actor, connection, asked, given)
    outcomes = []
    for n in sorted(set(given.one))[:AT_ONCE]:
        if await view.may_see(connection, scope, n):
            outcomes.append(await act_on(connection, actor, act, n, reason=reason, ids=parts(request).ids))
    return page(
        request, "letters_outcomes.html", act=act, outcomes=outcomes, query=asked.query, reason=reason
    )


async def _by_filter(request: Request, actor: Actor, connection: Any, asked: Asked, given: Many) -> Response:
    """Show what the filter chooses; begin an act on that once somebody has said yes to exactly it."""
    if actor.kind is not ActorKind.PERSON:
        raise refused_of(actor, Act.CONTROL_BULK)
    said = {name: value for name, value in asked.model_dump().items() if value}
    preview = await preview_letters(connection, actor, given.act, asked.wanted, chosen=said)
    if preview.items and given.shown == mark_of(preview):
        made = await begin(connection, actor, preview, reason=reason_of(given.reason), ids=parts(request).ids)
        return RedirectResponse(f"/bulk/{made}", 303)
    return page(
        request,
        "letters_confirm.html",
        act=given.act,
        asked=asked,
        preview=preview,
        shown=mark_of(preview),
        reason=given.reason.strip(),
        changed=bool(given.shown),
    )


def mark_of(preview: Preview) -> str:
    """Return what tells one choice from another."""
    said = "\n".join(item.subject for item in preview.items)
    return hashlib.sha256(f"{preview.act}\n{said}".encode()).hexdigest()[:32]


def _read(query: str) -> Asked:
    given = dict(parse_qsl(query, max_num_fields=20))
    return Asked(**{name: given[name] for name in Asked.model_fields if name in given})


@router.get("/letters/{n}", dependencies=[needs(Act.READ_LETTERS)])
async def show_letter(request: Request, n: int, actor: Signed, connection: Connected) -> Response:
    """Show a letter with its payload, its failures, and what may be done."""
    return await _show(request, n, actor, connection)


async def _show(
    request: Request, n: int, actor: Actor, connection: Any, *, refused: LetterOutcome | None = None
) -> Response:
    scope = seen(actor, Act.READ_LETTERS)
    detail = await one_letter(connection, scope, n, readable=True)
    readable = may(actor, Act.READ_PAYLOAD, detail.letter.tenant)
    if not readable:
        detail = await one_letter(connection, scope, n, readable=False)
    return page(
        request,
        "letter.html",
        live="letters",
        status=200 if refused is None else 409,
        one=detail,
        letter=detail.letter,
        readable=readable,
        offers=offers(actor, detail),
        edit_offer=edit_offer(actor, detail),
        refused=refused,
        now=detail.now,
    )


async def one_letter(connection: Any, scope: Any, n: int, *, readable: bool) -> LetterDetail:
    if not 0 < n < 2**63:
        raise Problem(404, "MP710", f"There is no letter {n}.")
    try:
        return await view.letter(connection, scope, n, readable=readable)
    except MilepostError as error:
        raise Problem(404, error.code, error.text) from error


@router.get("/letters/{n}/value", dependencies=[needs(Act.READ_PAYLOAD)])
async def download_value(n: int, actor: Signed, connection: Connected) -> Response:
    """Give a letter's value byte for byte."""
    scope = seen(actor, Act.READ_LETTERS)
    detail = await one_letter(connection, scope, n, readable=False)
    require(actor, Act.READ_PAYLOAD, detail.letter.tenant)
    value = (await view.letter_record(connection, scope, n)).value
    if value is None:
        raise Problem(404, "MP443", f"letter {n}: its record has no value (a tombstone).")
    headers = {"Content-Disposition": f'attachment; filename="letter-{n}.bin"'}
    return Response(value, media_type="application/octet-stream", headers=headers)


@router.post("/letters/{n}/act", dependencies=[needs(Act.REDRIVE)])
async def act_on_one(
    request: Request, n: int, actor: Signed, connection: Connected, given: Annotated[One, Form()]
) -> Response:
    """Redrive or ignore a letter; what the page shows afterwards is what its row says."""
    await one_letter(connection, seen(actor, Act.READ_LETTERS), n, readable=False)
    wanted: LetterAct = "ignore" if given.act in {Act.IGNORE, Act.IGNORE_PARKED} else "redrive"
    reason = reason_of(given.reason)
    outcome = await act_on(connection, actor, wanted, n, reason=reason, ids=parts(request).ids)
    if outcome.code in NOT_PERMITTED:
        raise Problem(403, outcome.code or "", outcome.text)
    if outcome.word in {"ASKED", "IGNORED"}:
        return RedirectResponse(f"/letters/{n}", 303)
    return await _show(request, n, actor, connection, refused=outcome)
