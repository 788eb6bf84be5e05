"""`milepost runs retry`, `skip`, `mark-succeeded`, `compensate`, `resume` and `cancel`.

They are asked for here, with nothing but the database; a process of the service carries them out.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn
from uuid import UUID

import asyncpg
import typer

from ..recovery.acting import Answer, Outcome, answer_of, ask_for
from ..recovery.requests import Request
from ..sagas.facts import ActName
from ..schemas.errors import StateError, UsageError
from ..streams.queries import Queries
from .bulk import act_on_many
from .filtered import Many
from .model import RunDetail, run_reference
from .options import Globals
from .problems import FINDINGS
from .store import changing, reading
from .unpark import require_reason

#: How often to look for the answer, in seconds.
_LOOK = 0.1


class Sql(Queries, file="acts.sql"):
    """Queries of these commands."""

    steps_of: str
    worklist: str
    old_requests: str
    requests_of: str
    last_review: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a command line asks for.

    Attributes:
        step: As people write it: charge_card, or charge_card#2 of an iteration.
        result: JSON of the step's result.
        undo: For cancel.
        budget: For retry, what is granted.
        did_not_happen: The step in doubt did not take effect.
        reviewed: The person has read why the run needs a review, and takes it upon himself.
        roles: For approve and reject: those that the person claims.
    """

    what: ActName
    reason: str
    step: str | None = None
    result: Any = None
    undo: bool | None = None
    did_not_happen: bool = False
    reviewed: bool = False
    budget: Any = None
    roles: frozenset[str] = frozenset()

    @property
    def word(self) -> str:
        """The act as the command is called."""
        return self.what.replace("_", "-")

    @property
    def command(self) -> str:
        """The command that asks for it."""
        return self.word if self.what in {"approve", "reject"} else f"runs {self.word}"


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that was written.

    Attributes:
        request: Its id.
        wait: How long its answer was waited for, in seconds.
    """

    run: RunDetail
    wish: Wish
    request: UUID
    wait: float


def read_result(path: Path | None) -> Any:
    """Read a step's result from a file of JSON; None for a step that has none.

    Raises:
        UsageError: MP616 when it cannot be read, or stored.
    """
    if path is None:
        return None
    try:
        text = path.read_text()
        found = json.loads(text, parse_constant=_no_number)
        if "\\u0000" in json.dumps(found):
            raise ValueError("it holds the character U+0000")
    except (OSError, ValueError) as error:
        raise UsageError(
            "MP616", f"--result {path}: {error}. It must hold the step's result as JSON."
        ) from error
    return found


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is no number of JSON")


async def act(given: Globals, reference: str, wish: Wish, *, wait: float) -> None:
    """Ask for an act, and tell what became of it.

    Args:
        reference: The run, as people write it.
        wait: Longest wait for the answer, in seconds; 0 for not waiting.

    Raises:
        UsageError: MP601 without a reason, MP605, MP606 for the run's name, MP614 for who and why.
        StateError: MP604 there is no such run, MP617 it has no such step, MP615 the act was refused, MP638
            nothing is to be reviewed, MP660 whoever acts may not do that.
        typer.Exit: 1 when nobody has answered in time, or a second person has to confirm it; the request stays.
    """
    require_reason(wish.reason)
    named = run_reference(reference)
    async with reading(given.database_url()) as store:
        run = await store.run(await store.find(named), history=False)
        rows = await store.fetch(Sql.steps_of, run.id) if wish.step is not None else []
        reviewed = await store.fetch(Sql.last_review, run.id) if wish.reviewed else []
    if wish.reviewed and not reviewed:
        raise StateError(
            "MP638", f"{run.run}: no look at it has found anything to review. Leave --reviewed out."
        )
    row = None if wish.step is None else find_step(run.run, rows, wish.step)
    request = Request(
        run=run.id,
        what=wish.what,
        by=given.by(),
        reason=wish.reason,
        step=None if row is None else row["name"],
        iteration="" if row is None else row["iteration"],
        fence=None if row is None else row["fence"],
        result=wish.result,
        undo=wish.undo,
        did_not_happen=wish.did_not_happen,
        reviewed=reviewed[0]["request_id"] if reviewed else None,
        budget=wish.budget,
        roles=wish.roles,
        **_seen(row, wish),
    )
    async with changing(given.database_url()) as connection:
        asked = await ask_for(connection, given.actor(), request, call=wish.command)
        if asked.request is None:
            _not_let(given, run, wish, asked)
        answer = await wait_for_answer(connection, asked.request, wait)
    _tell(given, Asked(run, wish, asked.request, wait), answer)


async def act_by_filter(given: Globals, wish: Wish, many: Many, *, wait: float) -> None:
    """Do an act on all that a filter chooses, and tell what became of each.

    Raises:
        UsageError: MP601 for what is said of one run alone; and as `act_on_many`.
        typer.Exit: 1 when some were refused or wait.
    """
    if wish.reviewed or wish.budget is not None or wish.step is not None:
        raise UsageError("MP601", f"{wish.command}: --reviewed and --budget are for one run at a time.")
    arguments = {
        "undo": wish.undo,
        "did_not_happen": wish.did_not_happen or None,
        "result": wish.result,
        "roles": sorted(wish.roles) or None,
    }
    given_ones = {name: value for name, value in arguments.items() if value is not None}
    await act_on_many(given, wish.what, many, reason=wish.reason, arguments=given_ones, wait=wait)


def _not_let(given: Globals, run: RunDetail, wish: Wish, asked: Outcome) -> NoReturn:
    """Say that whoever acts may not do that; the audit has it."""
    item = {"run": run.run, "id": run.id, "step": wish.step, "act": wish.word, "outcome": "refused"}
    given.out.item(**item, answer=asked.text, after=None, request=None, audit=asked.audit)
    assert asked.code is not None
    raise StateError(asked.code, f"{run.run}: {wish.word} refused: {asked.text}.")


def _seen(row: Any, wish: Wish) -> dict[str, Any]:
    """Return which question an approval or rejection is about: the one that stands there now."""
    if wish.what not in {"approve", "reject"} or row is None or row["asked"] is None:
        return {}
    asked = json.loads(row["asked"])
    return {"generation": asked["generation"], "hash": asked["hash"]}


def find_step(run: str, rows: Sequence[Any], label: str) -> Any:
    """Return the row of a step as people write it.

    Raises:
        StateError: MP617 when the run has none; names those that it has.
    """
    name, _, iteration = label.partition("#")
    for row in rows:
        if (row["name"], row["iteration"]) == (name, iteration):
            return row
    known = ", ".join(f"{r['name']}#{r['iteration']}" if r["iteration"] else r["name"] for r in rows)
    raise StateError("MP617", f"{run}: it has no step {label} (yet). It has: {known or 'none'}.")


async def wait_for_answer(connection: asyncpg.Connection[Any], asked: UUID, wait: float) -> Answer | None:
    """Wait for the answer, or until a second person is waited for; None while there is neither."""
    until = time.monotonic() + wait
    while wait:
        found = await answer_of(connection, asked)
        if found is not None and found.state != "OPEN":
            return found
        if time.monotonic() >= until:
            break
        await asyncio.sleep(_LOOK)
    return None


def _tell(given: Globals, asked: Asked, answer: Answer | None) -> None:
    run, wish = asked.run, asked.wish
    outcome = ("open" if asked.wait else "asked") if answer is None else answer.state.lower()
    after = None if answer is None else answer.after
    counts = {name: after[name] for name in ("approved", "needed") if name in after} if after else {}
    given.out.item(
        run=run.run,
        id=run.id,
        step=wish.step,
        act=wish.word,
        outcome=outcome,
        answer=None if answer is None else answer.text,
        after=after,
        request=asked.request,
        audit=None if answer is None else answer.audit,
        **counts,
    )
    place = f"{run.run} {wish.step}" if wish.step else run.run
    if answer is None:
        _open(given, f"{place}: {wish.word} asked for", asked)
    elif answer.state == "HELD":
        given.out.say(
            f"{place}: {wish.word} asked for; it is CRITICAL, so a second person has to confirm it: "
            f"milepost confirm {answer.id} --reason …"
        )
        raise typer.Exit(FINDINGS)
    elif answer.state == "REFUSED":
        raise StateError("MP615", f"{place}: {wish.word} refused: {(answer.text or '').rstrip('.')}.")
    else:
        head = "" if wish.what in {"approve", "reject"} else f"{wish.word} accepted: "
        given.out.say(f"{place}: {head}{answer.text}")


def _open(given: Globals, head: str, asked: Asked) -> None:
    """Say that nobody has answered, and who will."""
    run = asked.run
    who = f"`milepost serve` of service {run.service}, with the role orchestrator and {run.saga} v{run.definition}"
    if not asked.wait:
        given.out.say(f"{head} (request {asked.request}); {who}, carries it out.")
        return
    given.out.say(
        f"{head}, and nobody has carried it out in {asked.wait:g} s. The request stays open ({asked.request}): {who}, "
        f"carries it out. `milepost runs show {run.run} --history` will show the answer."
    )
    raise typer.Exit(FINDINGS)
