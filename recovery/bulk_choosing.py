"""Choosing what an act on many is to be done on: shown before it is begun (bulk_beginning.py)."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

import asyncpg

from ..schemas.errors import UsageError
from ..schemas.ids import SystemIds
from ..schemas.states import Risk, RunState
from . import letters
from .bulk import MOST, OF_LETTERS, OF_QUESTIONS, OF_STEPS, Sql
from .permissions import Act, Actor, Permission, permission, scope_of

_IDS = SystemIds()
_STANDING = (RunState.MANUAL_REQUIRED, RunState.COMPENSATION_FAILED)
#: States that an act on whole runs can change; empty for all that have not ended.
_OF_RUNS: Mapping[str, Sequence[RunState]] = {
    "compensate": (RunState.MANUAL_REQUIRED,),
    "resume": _STANDING,
    "cancel": (RunState.PENDING, RunState.RUNNING, RunState.WAITING, RunState.MANUAL_REQUIRED),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Which runs, or which of their steps; what is None or empty does not matter.

    Attributes:
        states: Of the run.
        code: Of the step that stands in front of a person, or of the run.
        step: Its name.
        since: The run began at most so long ago, or since then.
    """

    saga: str | None = None
    states: Sequence[RunState] = ()
    code: str | None = None
    step: str | None = None
    since: timedelta | datetime | None = None

    @property
    def empty(self) -> bool:
        """Whether nothing was chosen by."""
        return not (self.saga or self.states or self.code or self.step or self.since)

    def as_json(self) -> dict[str, Any]:
        """Return what was chosen by, for people."""
        found = {"saga": self.saga, "state": [state.value for state in self.states], "code": self.code}
        found |= {"step": self.step, "since": None if self.since is None else str(self.since)}
        return {name: value for name, value in found.items() if value}


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One of many, as it was chosen.

    Attributes:
        subject: For people: "order/o-1 charge_card", "letter 9".
        code: Why it stands where it is.
        risk: The higher one of the saga's severity and the step's risk.
    """

    subject: str
    tenant: str
    saga: str | None = None
    run: UUID | None = None
    step: str | None = None
    iteration: str = ""
    fence: int | None = None
    generation: int | None = None
    hash: str | None = None
    letter: int | None = None
    code: str | None = None
    risk: Risk = Risk.LOW


@dataclass(frozen=True, slots=True)
class Preview:
    """What would be begun.

    Attributes:
        forbidden: How many more fit, that the actor may not act on.
        more: There are more than were asked for.
    """

    act: str
    chosen: Mapping[str, Any]
    items: Sequence[Item]
    forbidden: int
    more: bool

    @property
    def second(self) -> bool:
        """Whether a second person has to confirm it."""
        risky = self.act not in OF_QUESTIONS | OF_LETTERS
        return risky and any(item.risk is Risk.CRITICAL for item in self.items)

    @property
    def mark(self) -> str:
        """Another one where other things are chosen, or one of them has been tried since, though as many."""
        found = hashlib.sha256(self.act.encode())
        for one in self.items:
            place = (
                one.run,
                one.step,
                one.iteration,
                one.fence,
                one.generation,
                one.hash,
                one.letter,
                one.code,
            )
            found.update(f"\n{place!r}".encode())
        return found.hexdigest()

    @property
    def codes(self) -> Counter[str]:
        """How many items there are of each code."""
        return Counter(item.code or "" for item in self.items)


async def preview_runs(
    connection: asyncpg.Connection[Any], actor: Actor, act: str, wanted: RunFilter, *, limit: int = MOST
) -> Preview:
    """Choose runs, or steps of runs, that an act can change and the actor may act on; nothing is written.

    Args:
        act: retry, skip, mark_succeeded, approve, reject, compensate, resume or cancel.
        limit: At most so many.

    Raises:
        UsageError: MP671 for an act that is none of these, or a filter that chooses by nothing.
    """
    if act not in OF_STEPS | OF_QUESTIONS | set(_OF_RUNS) or wanted.empty:
        raise UsageError(
            "MP671", f"{act}: choose runs by saga, state, code, step or time, and an act on runs."
        )
    of = "step" if act in OF_STEPS else "question" if act in OF_QUESTIONS else "run"
    since = wanted.since
    rows = await connection.fetch(
        Sql.choose,
        of,
        [state.value for state in _OF_RUNS.get(act, ())],
        wanted.saga,
        [state.value for state in wanted.states],
        wanted.code,
        wanted.step,
        since if isinstance(since, datetime) else None,
        since if isinstance(since, timedelta) else None,
        *scope_of(actor).parameters(),
        limit + 1,
    )
    found = [_item(row) for row in rows[:limit]]
    may = [item for item in found if _may(actor, act, item)]
    return Preview(act, wanted.as_json(), may, len(found) - len(may), len(rows) > limit)


async def preview_letters(
    connection: asyncpg.Connection[Any],
    actor: Actor,
    act: Literal["redrive", "ignore"],
    wanted: letters.LetterFilter,
    *,
    chosen: Mapping[str, Any],
    limit: int = MOST,
) -> Preview:
    """Choose dead letters, as `preview_runs` does runs.

    Args:
        chosen: What was chosen by, for people.
    """
    numbers = await letters.choose(connection, act, wanted, scope=scope_of(actor), limit=limit + 1)
    rows = await connection.fetch(Sql.letters, numbers[:limit])
    found = [
        Item(subject=f"letter {row['n']}", tenant=row["tenant"], letter=row["n"], code=row["code"])
        for row in rows
    ]
    may = [item for item in found if _may(actor, act, item)]
    return Preview(act, chosen, may, len(found) - len(may), len(numbers) > limit)


def _item(row: asyncpg.Record) -> Item:
    step = f" {row['step']}" + (f"#{row['iteration']}" if row["iteration"] else "") if row["step"] else ""
    risks = list(Risk)
    risk = max(Risk(row["severity"]), Risk(row["risk"] or Risk.LOW), key=risks.index)
    names = ("tenant", "saga", "step", "iteration", "fence", "generation", "hash", "code")
    plain = {name: row[name] for name in names}
    return Item(subject=f"{row['saga']}/{row['key']}{step}", run=row["run_id"], risk=risk, **plain)


def _may(actor: Actor, act: str, item: Item) -> bool:
    found = permission(actor, Act(act), tenant=item.tenant, saga=item.saga, risk=item.risk)
    return found in {Permission.SAFE_REPAIR, Permission.APPROVAL_REQUIRED}
