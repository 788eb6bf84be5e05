"""What an agent is offered: reading, and proposing. Nothing here changes anything but the list of proposals."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, Literal
from uuid import UUID

import asyncpg
from pydantic import TypeAdapter

from ..recovery.auditing import AuditFilter, entries
from ..recovery.letters import LetterFilter
from ..recovery.model import Drift
from ..recovery.permissions import Actor, Scope, scope_of
from ..recovery.proposals import proposals
from ..recovery.proposing import Idea, propose
from ..recovery.runbooks import runbook, runbooks
from ..schemas.errors import MilepostError, StateError, UsageError
from ..schemas.masking import MASK
from ..schemas.states import LetterStatus, RunState
from .model import ByKey, run_reference
from .store import Store, changing
from .views import letters as letter_views
from .views.masking import masked
from .views.run import run_view
from .views.runs import Search, search
from .views.whose import whose
from .views.worklist import worklist

_ANY: TypeAdapter[Any] = TypeAdapter(Any)
#: Most rows that one call returns.
MOST = 200
ProposedAct = Literal[
    "retry", "skip", "mark_succeeded", "compensate", "resume", "cancel", "redrive", "ignore"
]


def plain(found: Any) -> Any:
    """Return something as JSON has it."""
    return _ANY.dump_python(found, mode="json")


@dataclass(frozen=True, slots=True)
class Tools:
    """The tools of one agent. Each returns JSON; what is not permitted raises an error of ours.

    Args:
        database: PostgreSQL, as postgresql://….
        actor: The agent, with what was granted to it.
    """

    database: str
    actor: Actor

    @property
    def scope(self) -> Scope:
        """What the agent may see."""
        return scope_of(self.actor)

    @asynccontextmanager
    async def _connected(self) -> AsyncGenerator[asyncpg.Connection[Any]]:
        async with changing(self.database) as connection:
            yield connection

    async def _find(self, connection: asyncpg.Connection[Any], run: str) -> UUID:
        """Return the id of a run that the agent may see: what it may not see is not there, and is not told of."""
        meant = run_reference(run)
        q = run if isinstance(meant, ByKey) else run.strip().rstrip("….")
        found = (await search(connection, self.scope, Search(q=q, limit=MOST))).runs
        if isinstance(meant, ByKey):
            ids = [one.id for one in found if (one.saga, one.key) == (meant.saga, meant.key)]
        else:
            ids = [one.id for one in found if meant.low <= one.id <= meant.high]
        if not ids:
            raise StateError("MP604", f"{run}: there is no such run.")
        if len(ids) > 1:
            names = ", ".join(map(str, ids[:10]))
            raise UsageError("MP606", f"{run}: that may mean several runs. Say which by its id: {names}.")
        return ids[0]

    async def list_runs(
        self, q: str = "", saga: str | None = None, states: list[RunState] | None = None, limit: int = 50
    ) -> dict[str, Any]:
        """List runs, the youngest first. q is the beginning of an id, a key, SAGA/KEY or a correlation id."""
        wanted = Search(q=q, saga=saga, states=tuple(states or ()), limit=max(1, min(limit, MOST)))
        async with self._connected() as connection:
            page = await search(connection, self.scope, wanted)
        return {"runs": plain(page.runs), "more": page.next is not None}

    async def show_run(self, run: str) -> dict[str, Any]:
        """Show a run (order/o-1 or its id): steps, tries, codes, evidence, decisions. Payloads are masked."""
        async with self._connected() as connection:
            found = await run_view(
                connection, self.scope, await self._find(connection, run), actor=self.actor
            )
        if found is None:
            raise StateError("MP604", f"{run}: there is no such run.")
        shown: dict[str, Any] = plain(found)
        return shown

    async def show_worklist(self, saga: str | None = None, limit: int = 50) -> dict[str, Any]:
        """List what waits for a person, the most urgent first, and what may be done with it."""
        async with self._connected() as connection:
            found = await worklist(connection, self.scope, saga=saga, limit=max(1, min(limit, MOST)))
        shown: dict[str, Any] = plain(found)
        return shown

    async def list_dead_letters(
        self, consumer: str | None = None, code: str | None = None, limit: int = 50
    ) -> dict[str, Any]:
        """List dead letters that wait for somebody: events that could not be applied, and why."""
        wanted = LetterFilter(
            statuses=(LetterStatus.OPEN, LetterStatus.RETRY_PENDING), consumer=consumer, code=code
        )
        async with self._connected() as connection:
            found = await letter_views.letters(connection, self.scope, wanted, limit=max(1, min(limit, MOST)))
        shown: dict[str, Any] = plain(found)
        return shown

    async def show_dead_letter(self, letter: int) -> dict[str, Any]:
        """Show a dead letter by its number, with how it failed. What the event says is masked."""
        async with self._connected() as connection:
            found = await letter_views.letter(connection, self.scope, letter, readable=False)
        shown: dict[str, Any] = plain(found)
        return shown

    async def list_audit(
        self, run: str | None = None, actor: str | None = None, hours: float | None = None, limit: int = 50
    ) -> dict[str, Any]:
        """List entries of the audit, the youngest first: who did what, or was refused, and why."""
        async with self._connected() as connection:
            about = None if run is None else await self._find(connection, run)
            since = None if hours is None else timedelta(hours=hours)
            wanted = AuditFilter(run=about, actor=actor, since=since)
            found = await entries(connection, self.scope, wanted, limit=max(1, min(limit, MOST)))
        return {"entries": [_without_payload(plain(asdict(one))) for one in found]}

    async def list_runbooks(self) -> dict[str, Any]:
        """List runbooks: for each drift what it is and how it shows."""
        return {
            "runbooks": [
                {"drift": one.drift.value, "title": one.title, "symptom": one.symptom} for one in runbooks()
            ]
        }

    async def read_runbook(self, drift: Drift) -> dict[str, Any]:
        """Read the runbook of a drift, as Markdown: checks, what happens by itself, what a person does."""
        return {"drift": drift.value, "text": runbook(drift).text}

    async def list_proposals(self, run: str | None = None, only_open: bool = True) -> dict[str, Any]:
        """List proposals, and what persons have decided on them."""
        async with self._connected() as connection:
            about = None if run is None else await self._find(connection, run)
            found = await proposals(connection, self.scope, run=about, only_open=only_open, limit=MOST)
        return {"proposals": [_without_payload(plain(asdict(one))) for one in found]}

    async def propose_act(
        self,
        *,
        act: ProposedAct,
        reason: str,
        drift: str,
        observed: dict[str, Any],
        expected: dict[str, Any],
        idempotent: bool,
        rollback: str,
        run: str | None = None,
        step: str | None = None,
        iteration: str = "",
        letter: int | None = None,
        arguments: dict[str, Any] | None = None,
        evidence: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Propose an act for a person to accept or reject; it is done only if one accepts, and nothing else is.

        retry, skip and mark_succeeded name a step of a run; compensate, resume and cancel mean a run (cancel takes
        arguments {"undo": true or false}); redrive and ignore mean a dead letter. drift says how what you observed
        differs from what you expected; idempotent, whether doing it twice does no more than once; rollback, how it
        would be taken back.
        """
        async with self._connected() as connection:
            hidden = await self._hidden(connection, run, letter)
            idea = Idea(
                act=act,
                reason=reason,
                drift=drift,
                observed=observed,
                expected=expected,
                idempotent=idempotent,
                rollback=rollback,
                run=hidden or (None if run is None else await self._find(connection, run)),
                step=step,
                iteration=iteration,
                letter=letter,
                arguments=arguments or {},
                evidence=evidence or {},
            )
            if hidden is not None or (
                letter is not None and not await letter_views.may_see(connection, self.scope, letter)
            ):
                with suppress(MilepostError):
                    await propose(connection, self.actor, idea)  # refused, which the audit keeps
                raise _not_there(run, letter)
            written = await propose(connection, self.actor, idea)
            found = await proposals(connection, self.scope, id=written)
        return {"proposal": str(written), "state": found[0].state if found else "OPEN"}

    async def _hidden(
        self, connection: asyncpg.Connection[Any], run: str | None, letter: int | None
    ) -> UUID | None:
        """Return the id of a run that is there and that the agent may not see; None for any other."""
        if run is None or letter is not None:
            return None
        try:
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                found = await Store(connection).find(run_reference(run))
        except MilepostError:
            return None
        own = await whose(connection, "run", found)
        return found if own is not None and not self.scope.allows(own.tenant, own.saga) else None


def _not_there(run: str | None, letter: int | None) -> StateError:
    if letter is not None:
        return StateError("MP440", f"letter {letter}: there is no such letter.")
    return StateError("MP604", f"{run}: there is no such run.")


def _without_payload(row: Any) -> Any:
    """Hide what steps returned, which a few acts carry along, and whatever is called like a secret."""
    if isinstance(row, Mapping):
        return {
            name: MASK if name == "result" and value is not None else _without_payload(value)
            for name, value in masked(row, readable=True).items()
        }
    return [_without_payload(one) for one in row] if isinstance(row, list) else row


def agent(name: str, *, sagas: list[str], tenants: list[str]) -> Actor:
    """Return an agent that may read and propose, for these sagas and tenants; empty for all.

    Raises:
        UsageError: MP614 without a name.
    """
    from ..recovery.permissions import ActorKind, Grant, Role
    from ..recovery.requests import check_words

    check_words("mcp", by=name, reason="an agent")
    grant = Grant(Role.AGENT, frozenset(tenants) or None, frozenset(sagas) or None)
    return Actor(name.strip(), ActorKind.AGENT, (grant,))
