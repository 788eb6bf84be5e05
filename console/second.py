"""`milepost confirm` and `milepost decline`: the second person."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Literal
from uuid import UUID

import typer

from ..recovery.acting import Answer
from ..recovery.permissions import scope_of
from ..recovery.seconding import Held, confirm, decline, held
from ..schemas.errors import StateError, UsageError
from .acts import wait_for_answer
from .model import run_reference
from .options import Globals
from .problems import FINDINGS
from .store import changing, reading
from .unpark import require_reason


async def second(
    given: Globals, which: str, what: Literal["confirm", "decline"], *, reason: str, wait: float
) -> None:
    """Confirm or decline an act that waits for a second person, and tell what became of it.

    Args:
        which: The request's id, or the run as people write it.
        wait: Longest wait for what becomes of it, in seconds; 0 for not waiting.

    Raises:
        UsageError: MP601 without a reason, or where a run has several.
        StateError: MP660 to MP662 as `confirm`, MP615 when the service has refused it.
        typer.Exit: 1 when nobody has carried it out in time.
    """
    require_reason(reason)
    actor = given.actor()
    request, run = await _find(given, which)
    async with changing(given.database_url()) as connection:
        wanted = _only(which, await held(connection, scope_of(actor), request=request, run=run))
        if what == "decline":
            entry = await decline(connection, actor, wanted, reason=reason)
            given.out.item(**_item(wanted), outcome="refused", audit=entry)
            given.out.say(f"{wanted.run}: {wanted.what.replace('_', '-')} of {wanted.by} declined")
            return
        await confirm(connection, actor, wanted, reason=reason)
        _tell(given, wanted, await wait_for_answer(connection, wanted.id, wait), waited=bool(wait))


async def _find(given: Globals, which: str) -> tuple[UUID | None, UUID | None]:
    """Return what to look by: a request, or a run."""
    with suppress(ValueError):
        return UUID(which), None
    async with reading(given.database_url()) as store:
        return None, await store.find(run_reference(which))


def _only(which: str, found: list[Held]) -> Held:
    if not found:
        raise StateError(
            "MP662", f"{which}: nothing of it waits for a second person. See `milepost worklist`."
        )
    if len(found) > 1:
        words = ", ".join(f"{one.id} ({one.what} of {one.by})" for one in found)
        raise UsageError("MP601", f"{which}: several acts wait. Say which by its id: {words}.")
    return found[0]


def _item(one: Held) -> dict[str, Any]:
    words = {"run": one.run, "id": one.run_id, "step": one.step, "act": one.what.replace("_", "-")}
    return words | {"request": one.id, "by": one.by}


def _tell(given: Globals, one: Held, answer: Answer | None, *, waited: bool) -> None:
    act = one.what.replace("_", "-")
    state = ("open" if waited else "asked") if answer is None else answer.state.lower()
    given.out.item(
        **_item(one),
        outcome=state,
        answer=None if answer is None else answer.text,
        after=None if answer is None else answer.after,
        audit=None if answer is None else answer.audit,
    )
    if answer is None:
        given.out.say(
            f"{one.run}: {act} of {one.by} confirmed; `milepost serve` of {one.service} carries it out."
        )
        if waited:
            raise typer.Exit(FINDINGS)
    elif answer.state == "REFUSED":
        raise StateError("MP615", f"{one.run}: {act} refused: {(answer.text or '').rstrip('.')}.")
    else:
        given.out.say(f"{one.run}: {act} of {one.by} confirmed and accepted: {answer.text}")
