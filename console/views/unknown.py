"""UNKNOWN with its evidence: what was asked, what came back, what happens next and when."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

import asyncpg

from ...recovery.permissions import Scope
from ...schemas.states import RunState, StepKind, StepState
from ...streams.queries import Queries
from .model import View

#: Answers of a probe that are shown of each step.
_ANSWERS = 20


class _Sql(Queries, file="unknown.sql"):
    doubtful: str
    given_up: str
    evidence: str


class Answer(View):
    """One answer, and what was made of it.

    Attributes:
        answer: absent, found, failed, in progress, or error where asking failed.
        detail: What came with it, as JSON without the result.
    """

    id: UUID
    at: datetime
    answer: str
    detail: str
    before: str
    decision: str
    after: str
    actor: str
    reason: str


class Doubtful(View):
    """A step whose outcome is unknown.

    Attributes:
        doubt_at: From when on nothing could take effect any more: the end of that try's lease.
        settles_at: An answer "absent" counts when it was asked for from here on; None where no policy is known.
        gives_up_at: From here on a person is asked.
        next_at: When something happens by itself; None when it waits for a person.
        next: What that is, in words.
        probe: Whether the step has a probe; None where no policy is known.
        answers: The latest first.
    """

    run_id: UUID
    tenant: str
    service: str
    saga: str
    key: str
    run_state: RunState
    correlation_id: str
    step: str
    iteration: str
    kind: StepKind
    state: StepState
    undo_of: str | None
    attempt: int
    fence: int
    code: str | None
    message: str | None
    probes: int
    since: datetime
    doubt_at: datetime | None
    settles_at: datetime | None
    gives_up_at: datetime | None
    worker: str | None
    probe: bool | None
    next: str
    next_at: datetime | None
    answers: list[Answer]


class Doubts(View):
    """Steps in doubt, the oldest first.

    Attributes:
        given_up: Those that wait for a person.
        cut: Whether there are more than are shown.
    """

    asked: list[Doubtful]
    given_up: list[Doubtful]
    cut: bool
    now: datetime | None


async def unknown(
    connection: asyncpg.Connection[Any],
    scope: Scope,
    *,
    which: Literal["all", "asked", "given_up"] = "all",
    limit: int = 100,
) -> Doubts:
    """Return steps in doubt with their evidence.

    Args:
        limit: At most so many of each kind.
    """
    parameters = (*scope.parameters(), limit + 1)
    asked = await connection.fetch(_Sql.doubtful, *parameters) if which != "given_up" else []
    left = await connection.fetch(_Sql.given_up, *parameters) if which != "asked" else []
    rows = [*asked[:limit], *left[:limit]]
    answers = await _answers(connection, rows)
    return Doubts(
        asked=[_doubtful(row, answers) for row in asked[:limit]],
        given_up=[_doubtful(row, answers) for row in left[:limit]],
        cut=max(len(asked), len(left)) > limit,
        now=rows[0]["now"] if rows else None,
    )


async def _answers(
    connection: asyncpg.Connection[Any], rows: Sequence[Any]
) -> dict[tuple[UUID, str, str], list[Answer]]:
    found = defaultdict[tuple[UUID, str, str], list[Answer]](list)
    if rows:
        places = [
            list(part) for part in zip(*((r["run_id"], r["step"], r["iteration"]) for r in rows), strict=True)
        ]
        for row in await connection.fetch(_Sql.evidence, *places, _ANSWERS):
            found[row["run_id"], row["step"], row["iteration"]].append(_answer(row))
    return found


def _answer(row: Any) -> Answer:
    evidence = json.loads(row["evidence"])
    said = evidence if isinstance(evidence, dict) else {}
    # What was found is the step's result: it is shown with the run, to who may see it.
    detail = {name: value for name, value in said.items() if name not in {"answer", "result"}}
    return Answer(
        **{name: row[name] for name in ("id", "at", "before", "decision", "after", "actor", "reason")},
        answer=str(said.get("answer", "looked at")),
        detail=json.dumps(detail, ensure_ascii=False) if detail else "",
    )


def _doubtful(row: Any, answers: dict[tuple[UUID, str, str], list[Answer]]) -> Doubtful:
    policy = None if row["policy"] is None else json.loads(row["policy"])
    probe = None if policy is None else policy.get("probe")
    doubt_at = row["doubt_at"]
    settles, ends = (
        ((doubt_at + timedelta(seconds=seconds) if doubt_at is not None else None) for seconds in probe)
        if probe
        else (None, None)
    )
    words, at = what_next(
        StepState(row["state"]),
        wake_at=row["wake_at"],
        worker=row["worker"],
        lease_until=row["lease_until"],
        queue=row["queue"],
        ends=ends,
        now=row["now"],
    )
    made = {name: row[name] for name in Doubtful.model_fields if name in set(row.keys())}
    return Doubtful(
        **made,
        settles_at=settles,
        gives_up_at=ends,
        probe=None if policy is None else probe is not None,
        next=words,
        next_at=at,
        answers=answers.get((row["run_id"], row["step"], row["iteration"]), []),
    )


def what_next(
    state: StepState,
    *,
    wake_at: datetime | None,
    worker: str | None,
    lease_until: datetime | None,
    queue: str,
    ends: datetime | None,
    now: datetime,
) -> tuple[str, datetime | None]:
    """Say what happens next of a step in doubt, and when.

    Args:
        wake_at: When the step is looked at again.
        worker: Who asks the probe now, with the end of its lease.
        ends: When asking ends.
    """
    if state is StepState.RECONCILING:
        if lease_until is not None and lease_until < now:
            return f"worker {worker} was asking the probe and is gone; another one asks anew", wake_at
        return (
            f"worker {worker or 'unknown'} is asking the probe now; without an answer another one asks",
            wake_at,
        )
    if state is not StepState.UNKNOWN:
        return "asking has ended: a person says what happened", None
    if wake_at is not None and wake_at > now:
        if ends is not None and wake_at >= ends:
            return "the probe is asked for the last time; without an answer a person is called", wake_at
        return "the probe is asked again", wake_at
    return f"the probe is asked as soon as a worker of queue {queue} is free", wake_at
