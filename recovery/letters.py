"""Dead letters, one at a time or as a filter chooses them, whoever they belong to: a consumer or the relay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

import asyncpg

from ..inbox import asking
from ..inbox.edit_model import Edit
from ..inbox.editing import NewLetter, edit
from ..inbox.letter import scope_of
from ..outbox.unpark import ask_relay, ignore_parked
from ..schemas.errors import StateError
from ..schemas.ids import Ids
from ..schemas.states import LetterStatus
from ..streams.queries import Queries
from .acting import Attempt, attempting
from .permissions import EVERYTHING, Act, Actor, Scope

LetterAct = Literal["redrive", "ignore"]
#: Those that somebody has to look at.
LIVE = (LetterStatus.OPEN, LetterStatus.RETRY_PENDING)
#: Permission and name in the audit: of a consumer's letter, of the relay's.
_NAMES: dict[LetterAct, tuple[tuple[Act, str], tuple[Act, str]]] = {
    "redrive": ((Act.REDRIVE, "letter.redrive"), (Act.UNPARK, "outbox.unpark")),
    "ignore": ((Act.IGNORE, "letter.ignore"), (Act.IGNORE_PARKED, "outbox.ignore")),
}
#: What an act may still change.
_CHANGEABLE: dict[LetterAct, Sequence[LetterStatus]] = {"redrive": (LetterStatus.OPEN,), "ignore": LIVE}


class _Sql(Queries, file="letters.sql"):
    choose: str
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterFilter:
    """Which letters; what is None or empty does not matter.

    Attributes:
        keys: Record keys.
        consumer: Its name; "relay" for events that were never sent.
        cause: Of one group, as `letter_groups` names it.
        since: Failed last at most so long ago, or since then.
    """

    statuses: Sequence[LetterStatus] = LIVE
    topic: str | None = None
    code: str | None = None
    keys: Sequence[bytes] = ()
    consumer: str | None = None
    cause: str | None = None
    since: timedelta | datetime | None = None

    def parameters(self, scope: Scope = EVERYTHING) -> tuple[Any, ...]:
        """Return what the queries on letters take, in front of their own parameters.

        A letter belongs to no saga: whoever may see only some sagas sees no letter.
        """
        tenants = None if scope.tenants is None else sorted(scope.tenants)
        owner = self.consumer
        return (
            [status.value for status in self.statuses],
            self.topic,
            self.code,
            list(self.keys),
            None if owner is None else "relay" if owner == "relay" else scope_of(owner),
            self.since if isinstance(self.since, datetime) else None,
            self.since if isinstance(self.since, timedelta) else None,
            self.cause,
            tenants if scope.sagas is None else [],
        )


@dataclass(frozen=True, slots=True)
class LetterOutcome:
    """What became of one letter.

    Attributes:
        word: ASKED (its process carries it out), IGNORED, NOOP, BEHIND (an earlier one of its key is first), REFUSED.
        text: Why, where it is not done.
        code: Of the refusal.
    """

    n: int
    word: Literal["ASKED", "IGNORED", "NOOP", "BEHIND", "REFUSED"]
    text: str = ""
    code: str | None = None


async def choose(
    connection: asyncpg.Connection[Any], act: LetterAct, wanted: LetterFilter, *, scope: Scope, limit: int
) -> list[int]:
    """Return the numbers of the letters that a filter chooses and the act can change, in the order to go through them.

    Args:
        scope: What the actor may see.
        limit: At most so many.
    """
    rows = await connection.fetch(
        _Sql.choose, *wanted.parameters(scope), [status.value for status in _CHANGEABLE[act]], limit
    )
    return [row["n"] for row in rows]


async def act_on(
    connection: asyncpg.Connection[Any], actor: Actor, act: LetterAct, n: int, *, reason: str, ids: Ids
) -> LetterOutcome:
    """Redrive or ignore one letter, and say what became of it; twice changes nothing more.

    What is not permitted, and what the letter's state refuses, is kept in the audit. The connection must have no open
    transaction, which would take that back.

    Args:
        actor: Who acts.
        n: The letter's number.
        reason: Why; both are kept in the audit.
    """
    place = await connection.fetchrow(_Sql.place, n)
    if place is None:
        return LetterOutcome(n, "REFUSED", f"letter {n}: there is no such letter.", "MP440")
    relay = place["stage"] == "RELAY"
    wanted, name = _NAMES[act][relay]
    evidence = {"letter": str(place["id"]) if relay else n, "scope": place["scope"], "code": place["code"]}
    attempt = Attempt(act=wanted, name=name, reason=reason, tenant=place["tenant"], evidence=evidence)
    said: dict[str, Any] = {"by": actor.name, "reason": reason, "ids": ids, "kind": actor.kind.value}
    answer: Any
    try:
        async with attempting(connection, actor, attempt, ids=ids):
            if relay:
                of_relay = ask_relay if act == "redrive" else ignore_parked
                answer = await of_relay(connection, place["id"], **said)
            else:
                of_consumer = asking.redrive if act == "redrive" else asking.ignore
                answer = await of_consumer(connection, n, **said)
    except StateError as error:
        word: Literal["BEHIND", "REFUSED"] = "BEHIND" if error.code in {"MP442", "MP421"} else "REFUSED"
        return LetterOutcome(n, word, error.text, error.code)
    return LetterOutcome(n, answer.outcome, answer.text if answer.outcome == "NOOP" else "")


async def edit_letter(
    connection: asyncpg.Connection[Any],
    actor: Actor,
    n: int,
    change: Edit,
    *,
    reason: str,
    ids: Ids,
    max_bytes: int,
    redrive: bool = False,
) -> NewLetter:
    """Make a new letter of one, as `inbox.editing.edit` says; a refusal is kept in the audit.

    Raises:
        StateError: MP660 or MP664 when the actor may not; MP440, MP773 to MP775.
        UsageError: MP770 to MP772.
    """
    place = await connection.fetchrow(_Sql.place, n)
    if place is None:
        raise StateError(
            "MP440", f"letter {n}: there is no such letter. `milepost dead list` shows those there are."
        )
    evidence = {"letter": n, "scope": place["scope"], "code": place["code"]}
    attempt = Attempt(
        act=Act.EDIT_LETTER, name="letter.edit", reason=reason, tenant=place["tenant"], evidence=evidence
    )
    async with attempting(connection, actor, attempt, ids=ids):
        return await edit(
            connection,
            n,
            change,
            by=actor.name,
            kind=actor.kind.value,
            reason=reason,
            ids=ids,
            max_bytes=max_bytes,
            redrive=redrive,
        )
