"""The application: what a service publishes, consumes and runs, and the calls its own code makes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from uuid import UUID

from pydantic import BaseModel

from ..inbox.consumer import Consumer
from ..recovery.requests import Request, ask
from ..sagas.context import RunRef
from ..sagas.facts import Verdict
from ..sagas.limiting import Limit, check
from ..sagas.registry import Definitions
from ..sagas.saga import Saga
from ..schemas.errors import DefinitionError, UsageError
from ..schemas.ids import Clock, Ids, Randomness, SystemClock, SystemIds, SystemRandomness
from ..schemas.options import Retry
from ..schemas.settings import Settings
from ..schemas.transaction import AnyTx, AsyncpgTx, Transaction
from ..streams.database import Database
from ..streams.drivers import run_in
from .answering import write_reply
from .edges import Edges
from .engine import changes_of
from .publishing import publish_in
from .repairing import Repairing
from .replay_plan import Offsets
from .replay_run import ReplayReport
from .replaying import replayer
from .starting import start_run
from .webhooks import Webhook

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

I = TypeVar("I", bound=BaseModel)  # noqa: E741
T = TypeVar("T")

Factory = Callable[[], AbstractAsyncContextManager[Any]]


class Milepost(Edges, Repairing):
    """One service: its sagas, consumers and clients.

    Args:
        name: Lower case name; prefix of the service's own topics and groups.
        sagas: Definitions that this service starts and runs; several versions of one saga may stand side by side.
        engine: SQLAlchemy engine on the same database; with it handlers get `tx.session`.
        settings: Default: read from the environment when first needed.

    Raises:
        DefinitionError: MP120 for a bad name, MP121 for two sagas of one name and version.
    """

    def __init__(
        self,
        name: str,
        *,
        sagas: Sequence[Saga[Any]] = (),
        engine: AsyncEngine | None = None,
        settings: Settings | None = None,
    ) -> None:
        if not name or not all(c.isascii() and (c.islower() or c.isdigit() or c in "-_") for c in name):
            raise DefinitionError(
                "MP120", f"Milepost({name!r}): a service's name is lower case letters, digits, '-' and '_'."
            )
        super().__init__()
        self.name = name
        self.sagas = tuple(sagas)
        self.definitions = Definitions(sagas)
        self.engine = engine
        self.consumers: dict[str, Consumer] = {}
        self.webhooks: dict[str, Webhook] = {}
        self.factories: dict[type[Any], Factory] = {}
        self.limits: dict[str, Limit] = {}
        self.verdicts: dict[type[Exception], tuple[Verdict, str]] = {}
        self.clock: Clock = SystemClock()
        self.ids: Ids = SystemIds()
        self.randomness: Randomness = SystemRandomness()
        self._settings = settings
        self._database: Database | None = None

    @property
    def settings(self) -> Settings:
        """Effective settings.

        Raises:
            StartError: MP203 when the environment lacks some.
        """
        if self._settings is None:
            self._settings = Settings.from_env()
        return self._settings

    def provide(self, kind: type[T], factory: Callable[[], AbstractAsyncContextManager[T]]) -> None:
        """Say how a client that steps ask for with `ctx.use(kind)` is opened, in workers and where one inspects.

        Args:
            kind: The client's class.
            factory: Returns an async context manager that yields it; entered once per process.

        Raises:
            DefinitionError: MP125 when the factory cannot be called.
        """
        if not callable(factory):
            raise DefinitionError(
                "MP125",
                f"provide({kind.__name__}): {factory!r} is no factory. Pass a function that returns an async context "
                f"manager, such as {kind.__name__}.connect, not a ready client.",
            )
        self.factories[kind] = factory

    def limit(self, name: str, *, calls: int, per: timedelta, queue: str | None = None) -> None:
        """Declare a rate limit that holds over all processes of this service.

        Steps count for it that say `limits=name`, or all work of a queue; their probes and undos count too. A step that
        may not begin yet goes back, keeps no worker busy and uses no try up.

        Args:
            name: What steps call it, usually the other system.
            calls: Most calls let through in any span of `per`.
            per: 1 ms to 31 days.
            queue: All steps of this queue count.

        Raises:
            DefinitionError: MP126 when it lets nothing through, or is declared twice.
        """
        limit = Limit(name=name, calls=calls, per=per, queue=queue)
        check(limit)
        if name in self.limits:
            raise DefinitionError("MP126", f"limit({name!r}) is declared twice. Delete one.")
        self.limits[name] = limit

    def classify(self, error: type[Exception], verdict: Verdict, code: str) -> None:
        """Say what an exception of a step means; httpx, aiohttp and asyncpg come filled in.

        Args:
            error: The exception's class; subclasses follow it unless listed themselves.
            verdict: retry = transient; fatal = a definite no, nothing happened; unknown = it may have happened;
                not_sent = the request certainly never left; quality = what was made is not good enough; policy = a rule
                forbids it, and the run stops.
            code: What people see.
        """
        self.verdicts[error] = (verdict, code)

    def consumer(
        self,
        name: str,
        *,
        unknown: Literal["skip", "dead_letter"] = "skip",
        batch: int = 500,
        retry: Retry = Retry(attempts=3),
        hold_key: bool = False,
    ) -> Consumer:
        """Make a consumer. Its name is Kafka group and inbox identity at once: renaming it reads its topics anew.

        Args:
            unknown: What to do with event types that it has no handler for.
            batch: Most events in one transaction.
            retry: Tries of one failing event before it is parked as a dead letter.
            hold_key: A dead letter holds its key: later events of the key are parked behind it, in order, until it is
                redriven or ignored. Other keys flow.

        Raises:
            DefinitionError: MP122 when the name is taken.
        """
        if name in self.consumers:
            raise DefinitionError(
                "MP122", f"consumer {name!r} is made twice in service {self.name}. Use the first one."
            )
        consumer = Consumer(
            name, unknown=unknown, batch=batch, retry=retry, hold_key=hold_key, reply=write_reply
        )
        self.consumers[name] = consumer
        return consumer

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Transaction]:
        """Open a transaction of its own, for code that has neither a session nor a connection at hand."""
        database = await self._opened()
        async with database.transaction(publish_in) as tx:
            yield tx

    async def start(
        self, tx: AsyncpgTx, saga: Saga[I], input: I, *, tenant: str = "", reuse: bool = False
    ) -> RunRef:
        """Start a run in the caller's transaction; it exists when that commits, or not at all.

        Args:
            tx: The open transaction (READ COMMITTED).
            saga: One of this service's sagas.
            input: Its input; the saga's key function names the run.
            tenant: Tenant of the run.
            reuse: Return the run of equal fingerprint that has succeeded or is under way, if there is one; its
                `reused` is then set.

        Returns:
            The run. Starting again with the same key and the same input returns the run that is there.

        Raises:
            UsageError: MP301, MP307 as publish; MP308 on psycopg; MP309 for a saga that this service does not have;
                MP368 for a fingerprint that cannot be had.
            StateError: MP302 when the key is taken with another input; MP334 when the saga says if_locked="reject" and
                another run has its lock; the transaction is then as it was.
        """
        if self.definitions.get(saga.name, saga.version) is not saga.definition:
            raise UsageError(
                "MP309",
                f"start(): saga {saga.name} v{saga.version} is not one of service {self.name}. Add it to "
                f"Milepost({self.name!r}, sagas=[...]).",
            )
        return await start_run(changes_of(self), tx, saga, input, tenant, reuse=reuse)

    async def cancel(self, tx: AnyTx, run: RunRef, *, undo: bool, by: str, reason: str) -> None:
        """Ask for a run to be cancelled, in the caller's transaction; when that commits, the orchestrator does it.

        The run stops at its next safe boundary: a call that is under way ends first. It may also have ended by then,
        and then it stays as it ended. `milepost runs show RUN --history` tells.

        Args:
            tx: The open transaction, as `publish` takes it.
            run: The run, of this service or of another one with the same database.
            undo: Whether what was done is undone.
            by: Who wants it.
            reason: Why; both are kept.

        Raises:
            UsageError: MP301, MP306, MP308 as publish; MP614 when who or why is not said.
            StateError: MP604 when there is no such run.
        """
        wanted = Request(run=run.id, what="cancel", by=by, reason=reason, undo=undo, kind="SYSTEM")
        await ask(await run_in(tx, "cancel()"), wanted, self.ids, "cancel()")

    async def replay(
        self,
        consumer: str,
        *,
        topic: str,
        since: datetime | Offsets,
        until: datetime | Offsets | None = None,
        apply: bool = False,
        report: Path | None = None,
        resume: UUID | None = None,
    ) -> ReplayReport:
        """Hold a slice of a topic against a consumer's inbox; its live group is neither joined nor moved.

        Args:
            consumer: Name of one of this service's consumers.
            since: Where to begin: an instant, or the first offset to read by partition.
            until: Where to end: an instant, or the first offset not to read by partition. Default: the topic's end;
                with `apply`, how far the consumer has come.
            apply: Pass what is missing through the inbox, with the consumer's handlers.
            report: File for one line of JSON per event.
            resume: An interrupted replay (`ReplayReport.id`) to go on with; its slice counts, not the given one.

        Raises:
            UsageError: MP490, MP491 for a consumer or slice that is none.
            StateError: MP492, MP493 for what may not be applied; MP494, MP495 when it cannot go on.
            ConnectError: MP496, MP502 when a server goes away; the replay can be resumed.
        """
        ready = replayer(self, await self._opened(), consumer, report=report)
        if resume is not None:
            return await ready.resume(resume)
        return await ready.replay(topic=topic, since=since, until=until, apply=apply)

    async def close(self) -> None:
        """Close the pool that `transaction()` opened."""
        if self._database is not None:
            await self._database.close()
            self._database = None

    async def _opened(self) -> Database:
        if self._database is None:
            self._database = Database(self.settings, engine=self.engine)
        await self._database.open()
        return self._database
