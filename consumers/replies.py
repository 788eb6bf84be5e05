"""Replies to the commands that runs have sent, as facts."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import ClassVar
from uuid import UUID

from pydantic import BaseModel, ValidationError

from ..sagas import codec
from ..sagas.facts import Replied
from ..sagas.model import Run
from ..sagas.words import clean
from ..schemas.commands import DONE, NOTHING, REFUSED
from ..schemas.envelope import Envelope, NotAnEvent
from .sending import operation_of


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply, and the run that it is for."""

    message_type: ClassVar[str] = "reply"
    run: UUID
    fact: Replied
    tenant: str = ""

    def of(self, run: Run) -> Replied | None:
        """Return the fact for a run; None when the reply says that it is another tenant's."""
        return self.fact if self.tenant in {"", run.tenant} else None

    def as_json(self) -> str:
        """Return what has to be kept of it for another process, as a jsonb column can hold it."""
        fact = replace(self.fact, code=clean(self.fact.code), message=clean(self.fact.message))
        return json.dumps({**asdict(fact), "tenant": self.tenant}, ensure_ascii=False)

    @classmethod
    def from_json(cls, run: UUID, text: str) -> Reply:
        """Read back what was kept."""
        said = json.loads(text)
        return cls(run, tenant=said.pop("tenant"), fact=Replied(**said))


def read_reply(envelope: Envelope, data: bytes) -> Reply:
    """Read a reply.

    Raises:
        NotAnEvent: NO_REPLY when its headers name no run of a saga, no direction or no outcome.
    """
    exchange = envelope.exchange
    assert exchange is not None, "the caller has looked"
    try:
        run = UUID(exchange.run)
    except ValueError as error:
        raise NotAnEvent("NO_REPLY", f"its header milepost-run {exchange.run!r} names no run") from error
    outcome = exchange.outcome or DONE
    if exchange.direction not in {"do", "undo"} or outcome not in {DONE, REFUSED, NOTHING}:
        raise NotAnEvent("NO_REPLY", "its headers milepost-direction and milepost-outcome say nothing known")
    step, iteration = operation_of(exchange.step)
    body = _body(data)
    done = outcome == DONE
    return Reply(
        run,
        Replied(
            step=step,
            direction="undo" if exchange.direction == "undo" else "do",
            attempt=exchange.attempt,
            outcome=outcome,
            payload=body if done else None,
            version=envelope.version if done else None,
            code=exchange.code,
            message="" if done else _message(data),
            iteration=iteration,
            type=envelope.type if done else "",
        ),
        tenant=envelope.tenant,
    )


def _body(data: bytes) -> object:
    """Return the body; one that is no JSON, or that no row can hold, is None, which is no reply of any class."""
    try:
        body: object = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return body if codec.storable(body) else None


class _Said(BaseModel):
    message: str = ""


def _message(data: bytes) -> str:
    try:
        return _Said.model_validate_json(data).message
    except ValidationError:
        return ""
