"""The open transaction that a handler receives, and which connections count as one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias
from uuid import UUID

from .envelope import Envelope
from .errors import UsageError
from .events import Publishable

if TYPE_CHECKING:
    import asyncpg
    import sqlalchemy
    from asyncpg.pool import PoolConnectionProxy
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
    from sqlalchemy.orm import Session, scoped_session


class PsycopgAsync(Protocol):
    """psycopg.AsyncConnection, known by what only it has: psycopg is optional, and a name that is missing would make
    type checkers take anything for a transaction.
    """

    @property
    def pgconn(self) -> Any:
        """libpq's connection."""
        ...

    async def set_autocommit(self, value: bool) -> None:
        """Choose whether statements outside transaction blocks commit by themselves."""
        ...


class PsycopgSync(Protocol):
    """psycopg.Connection; see `PsycopgAsync`."""

    @property
    def pgconn(self) -> Any:
        """libpq's connection."""
        ...

    def set_autocommit(self, value: bool) -> None:
        """Choose whether statements outside transaction blocks commit by themselves."""
        ...


#: What `start` takes: an open transaction that asyncpg runs.
AsyncpgTx: TypeAlias = (
    "AsyncSession | AsyncConnection | asyncpg.Connection[Any] | PoolConnectionProxy[Any] | Transaction"
)
#: What `publish` takes.
AnyTx: TypeAlias = "AsyncpgTx | PsycopgAsync"
#: What `publish_sync` takes.
SyncTx: TypeAlias = "Session | scoped_session[Any] | sqlalchemy.Connection | PsycopgSync"
Publisher: TypeAlias = "Callable[[Transaction, tuple[Any, ...]], Awaitable[list[UUID]]]"


@dataclass(frozen=True, slots=True)
class Cause:
    """What everything that leaves with a transaction belongs to.

    Attributes:
        correlation_id: Business id that it all shares.
        causation_id: CloudEvents id of the event being handled; '' in a step.
    """

    tenant: str
    correlation_id: str
    causation_id: str


@dataclass
class Transaction:
    """An open transaction, handed to consumers' handlers and to transactional steps.

    It commits together with Milepost's own mark (inbox row or checkpoint), or not at all. Handlers write through it
    and neither commit nor roll back.
    """

    _connection: asyncpg.Connection[Any]
    _publisher: Publisher
    _session: AsyncSession | None = None
    _envelope: Envelope | None = None
    closed: bool = field(default=False)
    _ended: Callable[[], bool] | None = field(default=None, repr=False, compare=False)
    _envelopes: Sequence[Envelope] = field(default=(), repr=False, compare=False)
    _run: Cause | None = field(default=None, repr=False, compare=False)

    @property
    def session(self) -> AsyncSession:
        """The SQLAlchemy session of this transaction.

        Raises:
            UsageError: MP304 when the service was made without engine=.
        """
        self._check()
        if self._session is None:
            raise UsageError(
                "MP304",
                "tx.session: this service has no SQLAlchemy engine. Pass engine= to Milepost(...), or use "
                "tx.connection.",
            )
        return self._session

    @property
    def connection(self) -> asyncpg.Connection[Any]:
        """The asyncpg connection that the transaction is open on."""
        self._check()
        return self._connection

    @property
    def envelope(self) -> Envelope:
        """Envelope of the event being handled.

        Raises:
            UsageError: MP305 outside a consumer's handler, and for several events together.
        """
        if self._envelope is None:
            raise UsageError(
                "MP305",
                "tx.envelope: only a consumer's handler has one. A step reads ctx.run instead; a handler of events "
                "together reads tx.envelopes.",
            )
        return self._envelope

    @property
    def envelopes(self) -> Sequence[Envelope]:
        """Envelopes of the events being handled together (`on_batch`), in their order; empty outside a handler."""
        return self._envelopes

    @property
    def _cause(self) -> Cause | None:
        """What is written here belongs to the event being handled, or to the run of the step."""
        found = self._envelope
        if found is None:
            return self._run
        return Cause(found.tenant, found.correlation_id or found.event_id, found.event_id)

    async def publish(self, *events: Publishable) -> list[UUID]:
        """Write events and tombstones to the outbox in this transaction.

        Returns:
            The new events' ids, in order.
        """
        self._check()
        return await self._publisher(self, events)

    def _check(self) -> None:
        if self.closed:
            raise UsageError(
                "MP306",
                "this transaction has ended with its handler. Do the work inside the handler, and await it there.",
            )
