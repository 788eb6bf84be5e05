"""Acts on runs: what persons decide, and what an agent or a program may ask for."""

from __future__ import annotations

import json
from typing import Any, Literal, Self, cast, get_args
from uuid import UUID

import asyncpg
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from ....recovery.acting import Answer, answer_of, ask_for, subject_of
from ....recovery.permissions import Act
from ....recovery.requests import Request as Wanted
from ....sagas.facts import ActName
from ....schemas.errors import StateError
from ... import acts
from ...grants import read_grants
from ..identity import Connected, Signed
from ..permitting import needs
from ..problems import Problem
from ..seeing import seen
from .described import WRITES, IdempotencyKey

router = APIRouter(prefix="/runs", tags=["runs"], responses=WRITES)

#: Those that name a step.
_OF_STEPS = frozenset({"retry", "skip", "mark-succeeded", "approve", "reject"})
#: Most seconds that an answer is waited for.
LONGEST = 30.0


class RunAct(BaseModel):
    """What is wanted of a run.

    Attributes:
        act: retry, skip, mark-succeeded, approve and reject name a step; compensate, resume and cancel mean the run.
        step: As the run shows it: charge_card, or charge_card#2 of an iteration.
        fence: The step's, as it was seen; where it has risen meanwhile, the act is refused. Left out: the present one.
        generation, hash: For approve and reject, of the question as it was seen. Left out: the present ones.
        result: For mark-succeeded: the step's result.
        undo: For cancel: whether what was done is undone.
        did_not_happen: For retry: the step in doubt took no effect, as was seen on the other side.
        reviewed: Why the run needs a review was read, and is taken upon oneself.
        budget: For retry: how much more may be spent, by name.
        wait: How long to wait for what becomes of it, in seconds.
    """

    model_config = ConfigDict(extra="forbid")

    act: Literal["retry", "skip", "mark-succeeded", "compensate", "resume", "cancel", "approve", "reject"]
    reason: str = Field(min_length=1, max_length=4000)
    step: str | None = Field(default=None, min_length=1, max_length=300)
    fence: int | None = Field(default=None, ge=0, lt=2**63)
    generation: int | None = Field(default=None, ge=0, lt=2**63)
    hash: str | None = Field(default=None, max_length=128)
    result: JsonValue = None
    undo: bool | None = None
    did_not_happen: bool = False
    reviewed: bool = False
    budget: dict[str, str] = Field(default={}, max_length=20)
    wait: float = Field(default=5.0, ge=0, le=LONGEST)

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.act in _OF_STEPS) != (self.step is not None):
            raise ValueError(
                f"{self.act} {'names a step' if self.step is None else 'means the run, and names no step'}"
            )
        if (self.act == "cancel") != (self.undo is not None):
            raise ValueError("cancel, and nothing else, says whether what was done is undone: undo")
        return self

    @property
    def name(self) -> ActName:
        """As requests call it."""
        return cast("ActName", self.act.replace("-", "_"))


class RunNow(BaseModel):
    """A run after an act, as the database says.

    Attributes:
        step: State of the step that the act named.
    """

    id: UUID
    state: str
    step: str | None
    version: int


class RunDecided(BaseModel):
    """What became of an act.

    Attributes:
        outcome: accepted; held: a second person has to confirm it; open: nobody has carried it out yet.
        text: What followed.
        request: `GET /requests/{id}` tells more.
    """

    outcome: Literal["accepted", "held", "open"]
    text: str | None
    request: Answer
    run: RunNow


_HELD: dict[int | str, dict[str, Any]] = {
    202: {"description": "It waits for a second person, or nobody has looked yet.", "model": RunDecided}
}
_ANY = tuple(Act(name) for name in get_args(ActName))


@router.post("/{run}/acts", dependencies=[needs(*_ANY)], responses=_HELD)
async def act_on_run(
    *,
    run: UUID,
    body: RunAct,
    request: Request,
    response: Response,
    actor: Signed,
    connection: Connected,
    idempotency_key: IdempotencyKey,
) -> RunDecided:
    """Ask for an act, and tell what became of it and how the run stands then."""
    own, _ = await seen(connection, actor, Act.READ_RUNS, "run", run, doing=Act(body.name))
    row = await _step(connection, run, body)
    roles = {role.value.lower() for role in actor.roles(own.tenant, own.saga)} | {
        *request.state.caller.groups
    }
    wanted = Wanted(
        run=run,
        what=body.name,
        by=actor.name,
        reason=body.reason,
        result=body.result,
        undo=body.undo,
        did_not_happen=body.did_not_happen,
        reviewed=await _reviewed(connection, run) if body.reviewed else None,
        budget=read_grants([f"{name}={amount}" for name, amount in body.budget.items()]),
        roles=frozenset(roles) if body.name in {"approve", "reject"} else frozenset(),
        **_place(row, body),
    )
    asked = await ask_for(connection, actor, wanted, call=f"POST /runs/{run}/acts")
    if asked.request is None:
        assert asked.code is not None
        more = {"audit": None if asked.audit is None else str(asked.audit)}
        raise Problem(403, asked.code, f"{asked.text}.", more=more)
    answer = await acts.wait_for_answer(connection, asked.request, body.wait)
    answer = answer or await answer_of(connection, asked.request)
    assert answer is not None
    if answer.state == "REFUSED":
        more = {"request": str(answer.id)}
        raise Problem(409, "MP615", f"{body.act} was refused: {(answer.text or '').rstrip('.')}.", more=more)
    if answer.state != "ACCEPTED":
        response.status_code = 202
    outcome = cast("Any", answer.state.lower())
    return RunDecided(
        outcome=outcome,
        text=answer.text or asked.text or None,
        request=answer,
        run=await _now(connection, wanted),
    )


async def _step(connection: asyncpg.Connection[Any], run: UUID, body: RunAct) -> Any:
    """Return the row of the step that is meant; None where the run is."""
    if body.step is None:
        return None
    rows = await connection.fetch(acts.Sql.steps_of, run)
    return acts.find_step(f"run {run}", rows, body.step)


def _place(row: Any, body: RunAct) -> dict[str, Any]:
    """Return what the request says of its step: as it was seen, else as it stands now."""
    if row is None:
        return {}
    place = {
        "step": row["name"],
        "iteration": row["iteration"],
        "fence": row["fence"] if body.fence is None else body.fence,
    }
    if body.name not in {"approve", "reject"} or row["asked"] is None:
        return place
    question = json.loads(row["asked"])
    return place | {
        "generation": question["generation"] if body.generation is None else body.generation,
        "hash": question["hash"] if body.hash is None else body.hash,
    }


async def _reviewed(connection: asyncpg.Connection[Any], run: UUID) -> UUID:
    found: UUID | None = await connection.fetchval(acts.Sql.last_review, run)
    if found is None:
        raise StateError(
            "MP638", f"run {run}: no look at it has found anything to review. Leave `reviewed` out."
        )
    return found


async def _now(connection: asyncpg.Connection[Any], wanted: Wanted) -> RunNow:
    found = await subject_of(connection, wanted.run, wanted.step, wanted.iteration)
    return RunNow(id=found.run, state=found.state, step=found.step_state, version=found.version)
