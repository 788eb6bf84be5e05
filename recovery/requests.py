"""Asking for what only a person may decide: a row that says what is wanted, by whom and why.

Whoever asks needs only the database. The service's orchestrator carries it out (consumers/carrying.py), because it has
the definition, and answers in the row.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from ..sagas.definition import text_problem
from ..sagas.facts import ActName
from ..sagas.model import Json
from ..schemas.errors import StateError, UsageError
from ..schemas.ids import Ids
from ..streams.drivers import Run
from ..streams.queries import Queries

#: Most characters of a name and of a reason.
LONGEST_NAME, LONGEST_REASON = 200, 4000


class Sql(Queries, file="requests.sql"):
    """Queries of asking, and of what became of it."""

    insert_request: str
    subject: str
    request: str
    find_held: str
    confirm: str
    decline: str


@dataclass(frozen=True, slots=True)
class Confirmed:
    """A second person's yes, before the request was written."""

    by: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a person wants done with a run.

    Attributes:
        what: retry, skip, mark_succeeded, approve and reject name a step or an undo; compensate, resume and cancel mean
            the run.
        by: Who wants it.
        reason: Why, in the person's own words.
        fence: The step's fence as the person saw it; where it has risen meanwhile, the request is refused. None: does
            not matter.
        result: For mark_succeeded, the step's result as JSON; None is that of a step without one.
        undo: For cancel: also undo what was done.
        budget: For retry: how much more may be spent, by name.
        did_not_happen: The step in doubt did not take effect, as the person has seen on the other side.
        reviewed: The request whose look at the run the person has read and takes upon himself.
        generation: For approve and reject: of the question as the person saw it.
        hash: For approve and reject: of the parameters that the question is about.
        roles: For approve and reject: those that the person claims. Nobody checks here that the person has them.
        kind: What asks, for the audit; for a run or step of CRITICAL risk a person's request waits for a second person.
        run_version: Where the run has another version by then, the request is refused. None: does not matter.
        proposal: The proposal that was accepted with it.
        confirmed: The second person, where there is one already.
    """

    run: UUID
    what: ActName
    by: str
    reason: str
    step: str | None = None
    iteration: str = ""
    fence: int | None = None
    result: Json = None
    undo: bool | None = None
    did_not_happen: bool = False
    reviewed: UUID | None = None
    budget: Json = None
    generation: int | None = None
    hash: str | None = None
    roles: frozenset[str] = frozenset()
    kind: Literal["SYSTEM", "PERSON", "AGENT"] = "PERSON"
    run_version: int | None = None
    proposal: UUID | None = None
    confirmed: Confirmed | None = None


async def ask(run: Run, request: Request, ids: Ids, call: str) -> UUID:
    """Write a request in an open transaction; it is carried out once that has committed.

    Args:
        run: Runs statements in that transaction.
        ids: For the request.
        call: Name of the public function or command, for errors.

    Returns:
        The request's id.

    Raises:
        UsageError: MP614 when who or why is not said.
        StateError: MP604 when there is no such run.
    """
    check_words(call, by=request.by, reason=request.reason)
    rows = await run(
        Sql.insert_request,
        (
            ids.new(),
            request.run,
            request.what,
            request.step,
            request.iteration,
            request.fence,
            None if request.result is None else json.dumps(request.result, ensure_ascii=False),
            request.undo,
            request.did_not_happen,
            request.by.strip(),
            request.reason.strip(),
            request.reviewed,
            None if request.budget is None else json.dumps(request.budget),
            request.generation,
            request.hash,
            sorted(request.roles),
            request.kind,
            request.run_version,
            request.proposal,
            None if request.confirmed is None else request.confirmed.by,
            None if request.confirmed is None else request.confirmed.reason,
        ),
    )
    if not rows:
        raise StateError(
            "MP604",
            f"{call}: there is no run {request.run}. Start it first, or look whether this is its database; "
            "`milepost runs list` shows those there are.",
        )
    written: UUID = rows[0][0]
    return written


def check_words(call: str, *, by: str, reason: str) -> None:
    """Refuse an act of nobody, and one without a reason.

    Raises:
        UsageError: MP614.
    """
    for name, text, longest in (("by", by, LONGEST_NAME), ("reason", reason, LONGEST_REASON)):
        problem = text_problem(text.strip(), longest=longest)
        if problem:
            raise UsageError(
                "MP614", f"{call}: {name} {problem}. Say who acts, and why: both are kept for good."
            )
