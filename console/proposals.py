"""`milepost proposals list`, `show`, `accept` and `reject`."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any, Literal
from uuid import UUID

import typer
from rich.text import Text

from ..recovery.accepting import Decided, accept, reject
from ..recovery.acting import Answer
from ..recovery.permissions import scope_of
from ..recovery.proposals import Proposal, proposals
from ..schemas.errors import StateError, UsageError
from .acts import wait_for_answer
from .listing import Entry, first_line
from .model import run_reference
from .options import Globals
from .output import clean, column, rfc3339, state_text
from .problems import FINDINGS
from .store import changing, reading
from .unpark import require_reason


def read_id(text: str) -> UUID:
    """Read a proposal's id.

    Raises:
        UsageError: MP601 when it is none.
    """
    try:
        return UUID(text)
    except ValueError:
        raise UsageError(
            "MP601", f"{text!r} is no proposal's id. `milepost proposals list` shows them."
        ) from None


async def list_proposals(
    given: Globals, *, run: str | None, by: str | None, all_of_them: bool, limit: int
) -> None:
    """Print proposals, the youngest first.

    Raises:
        UsageError: MP605, MP606 for the run's name.
        StateError: MP604 when there is no such run.
    """
    actor = given.actor()
    async with reading(given.database_url()) as store:
        about = None if run is None else await store.find(run_reference(run))
        found = await proposals(
            store.connection, scope_of(actor), run=about, by=by, only_open=not all_of_them, limit=limit
        )
    for one in found:
        given.out.item(**asdict(one))
    if not found:
        given.out.say("nothing is proposed" if not all_of_them else "nothing was proposed yet")
        return
    heads = [column(name) for name in ("id", "by", "about", "act", "risk", "state", "drift")]
    given.out.listing(heads, [_line(one) for one in found])


def _line(one: Proposal) -> Entry:
    cells = [
        Text(str(one.id)),
        Text(clean(f"{one.by} ({one.kind.value.lower()})")),
        Text(clean(one.subject)),
        Text(clean(_act(one))),
        Text(one.risk.value),
        state_text(one.state),
        Text(clean(first_line(one.drift))),
    ]
    return Entry(cells, clean(first_line(one.reason)))


def _act(one: Proposal) -> str:
    shown = one.arguments.get("action", one.act) if one.act == "reconcile" else one.act
    return str(shown).replace("_", "-").lower()


async def show_proposal(given: Globals, which: str) -> None:
    """Print all of a proposal.

    Raises:
        StateError: MP666 when there is no such proposal.
    """
    async with reading(given.database_url()) as store:
        found = await proposals(store.connection, scope_of(given.actor()), id=read_id(which))
    if not found:
        raise StateError(
            "MP666", f"there is no proposal {which}. `milepost proposals list` shows those there are."
        )
    (one,) = found
    given.out.item(**asdict(one))
    for name, value in _facts(one):
        given.out.say(Text.assemble((f"{name:<12}", "bold"), clean(value)))


def _facts(one: Proposal) -> list[tuple[str, str]]:
    facts = [
        ("about", one.subject + (f" (tenant {one.tenant})" if one.tenant else "")),
        ("act", _act(one) + (f" {_json(one.arguments)}" if one.arguments else "")),
        ("drift", one.drift),
        ("observed", _json(one.observed)),
        ("expected", _json(one.expected)),
        ("risk", f"{one.risk.value}; {one.needed} more to agree" if one.needed > 1 else one.risk.value),
        ("idempotent", "yes" if one.idempotent else "no"),
        ("rollback", one.rollback),
        ("reason", one.reason),
        ("evidence", _json(one.evidence) if one.evidence else ""),
        ("by", f"{one.by} ({one.kind.value.lower()}) at {rfc3339(one.at)}"),
        ("state", one.state + (f" until {rfc3339(one.expires_at)}" if one.state == "OPEN" else "")),
        ("decided", f"{one.decided_by}: {one.decision_reason}" if one.decided_by else ""),
        ("outcome", one.outcome or ""),
    ]
    return [(name, value) for name, value in facts if value]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


async def decide(
    given: Globals, which: str, what: Literal["accept", "reject"], *, reason: str, wait: float
) -> None:
    """Accept or reject a proposal, and tell what became of it.

    Args:
        wait: Longest wait for what becomes of an accepted one, in seconds; 0 for not waiting.

    Raises:
        UsageError: MP601 without a reason.
        StateError: MP660, MP666 to MP669 as `accept`, MP615 when the service has refused it.
        typer.Exit: 1 when nobody has carried it out in time, or a second person has to confirm it.
    """
    require_reason(reason)
    async with changing(given.database_url()) as connection:
        call = accept if what == "accept" else reject
        done = await call(connection, given.actor(), read_id(which), reason=reason)
        answer = None
        if done.request is not None:
            answer = await wait_for_answer(connection, done.request, wait)
    _tell(given, what, done, answer, waited=bool(wait))


def _tell(given: Globals, what: str, done: Decided, answer: Answer | None, *, waited: bool) -> None:
    one = done.proposal
    state = done.outcome or ("open" if answer is None else answer.state.lower())
    given.out.item(
        proposal=one.id,
        state="ACCEPTED" if what == "accept" else "REJECTED",
        about=one.subject,
        act=one.act,
        request=done.request,
        outcome=None if what == "reject" else state,
        answer=None if answer is None else answer.text,
    )
    head = f"{one.subject}: {_act(one)} {what}ed"
    if what == "reject":
        given.out.say(head)
    elif done.outcome is not None:
        given.out.say(f"{head}: {done.outcome}")
    elif answer is None:
        given.out.say(
            f"{head}; `milepost serve`{f' of {one.service}' if one.service else ''} carries it out."
        )
        if waited and done.request is not None:
            raise typer.Exit(FINDINGS)
    elif answer.state == "HELD":
        given.out.say(f"{head}; a second person has to confirm it: milepost confirm {answer.id} --reason …")
        raise typer.Exit(FINDINGS)
    elif answer.state == "REFUSED":
        raise StateError("MP615", f"{one.subject}: refused: {(answer.text or '').rstrip('.')}.")
    else:
        given.out.say(f"{head}: {answer.text}")
