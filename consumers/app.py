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
from ..inbox.verify import Verifier
from ..inbox.webhook_model import WebhookRequest
from ..sagas.context import RunRef
from ..sagas.facts import Verdict
from ..sagas.registry import Definitions
from ..sagas.saga import Saga
from ..schemas.errors import DefinitionError, UsageError
from ..schemas.events import Event
from ..schemas.ids import Clock, Ids, Randomness, SystemClock, SystemIds, SystemRandomness
from ..schemas.options import Retry
from ..schemas.settings import Settings
from ..schemas.transaction import AnyTx, AsyncpgTx, Transaction
from ..streams.database import Database
from .answering import write_reply
from .asgi import ASGIApp
from .publishing import publish_in
from .replay_plan import Offsets
from .replay_run import ReplayReport
from .replaying import replayer
from .signalling import SignalRef, give_signal
from .starting import start_run
from .webhooks import Webhook, declare_webhook, no_tenant

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

I = TypeVar("I", bound=BaseModel)  # noqa: E741
T = TypeVar("T")

Factory = Callable[[], AbstractAsyncContextManager[Any]]


class Milepost:
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
        self.name = name
        self.sagas = tuple(sagas)
        self.definitions = Definitions(sagas)
        self.engine = engine
        self.consumers: dict[str, Consumer] = {}
        self.webhooks: dict[str, Webhook] = {}
        self.factories: dict[type[Any], Factory] = {}
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
        """Say how a client that steps ask for with `ctx.use(kind)` is opened; opened in workers only.

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

    def classify(
        self, error: type[Exception], verdict: Literal["retry", "fatal", "unknown", "not_sent"], code: str
    ) -> None:
        """Say what an exception of a step means; httpx, aiohttp and asyncpg come filled in.

        Args:
            error: The exception's class; subclasses follow it unless listed themselves.
            verdict: retry = transient; fatal = a definite no, nothing happened; unknown = it may have happened;
                not_sent = the request certainly never left.
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

    async def start(self, tx: AsyncpgTx, saga: Saga[I], input: I, *, tenant: str = "") -> RunRef:
        """Start a run in the caller's transaction; it exists when that commits, or not at all.

        Args:
            tx: The open transaction (READ COMMITTED).
            saga: One of this service's sagas.
            input: Its input; the saga's key function names the run.
            tenant: Tenant of the run.

        Returns:
            The run. Starting again with the same key and the same input returns the run that is there.

        Raises:
            UsageError: MP301, MP307 as publish; MP308 on psycopg; MP309 for a saga that this service does not have.
            StateError: MP302 when the key is taken with another input.
        """
        if self.definitions.get(saga.name, saga.version) is not saga.definition:
            raise UsageError(
                "MP309",
                f"start(): saga {saga.name} v{saga.version} is not one of service {self.name}. Add it to "
                f"Milepost({self.name!r}, sagas=[...]).",
            )
        return await start_run(self, tx, saga, input, tenant)

    async def signal(
        self,
        tx: AnyTx,
        event: Event,
        *,
        tenant: str = "",
        keep: timedelta = timedelta(days=7),
        event_id: str | None = None,
    ) -> SignalRef:
        """Give an awaited event to the sagas of this service, in the caller's transaction.

        It is stored first and matched second: it ends the oldest wait for it (and every one that says broadcast), or
        stays for the first that comes. Call it late in the transaction: it takes a lock on the event's key.

        Args:
            tx: The open transaction (READ COMMITTED).
            event: Its class declares `correlate=`, what waits match on.
            tenant: Tenant of the runs that wait.
            keep: How long it may wait for somebody to wait for it; expired, it never matches.
            event_id: The sender's own id of it; given twice, the second time does nothing. None: a new one.

        Raises:
            UsageError: MP301, MP306, MP307, MP308 as publish; MP456 for an event that nothing can match or store.
        """
        return await give_signal(self, tx, event, tenant=tenant, keep=keep, event_id=event_id)

    def webhook(
        self,
        provider: str,
        *,
        verify: Verifier,
        event_id: Callable[[WebhookRequest], str],
        to_event: Callable[[WebhookRequest], Event | None],
        max_body: int = 1_048_576,
        tenant: Callable[[WebhookRequest], str] = no_tenant,
    ) -> ASGIApp:
        """Take a provider's webhooks: verified, stored, answered with 200, and turned into an event later.

        It is an ASGI app: `api.routes.append(Route("/hooks/carrier", service.webhook("carrier", ...)))` with Starlette's
        Route, or `api.mount`; a mount answers its path without a slash at the end by a redirect, which providers do not
        follow. Declare it in the application's own module: the work is done by `milepost serve` with the role signals,
        which has to know it.

        Args:
            provider: Its name here; with tenant and event id it makes a webhook unique.
            verify: `StandardWebhooks(...)`, `HmacSignature(...)`, or the service's own.
            event_id: Returns the provider's id of the event. An id that comes again is answered with 200 and does
                nothing, with another body too (which is counted: the first one stands).
            to_event: Returns the event that is published, None when it means nothing here. Called once or, when it
                raises, again with growing pauses; `Refused` ends that at once. It gets no transaction: what follows
                from the event is done by consumers and sagas.
            max_body: Longest body, in bytes; more is answered with 413.
            tenant: Returns whose it is, from what is verified.

        Raises:
            DefinitionError: MP455 when it is declared twice or wrongly.
        """
        return declare_webhook(self, Webhook(self, provider, verify, event_id, to_event, tenant, max_body))

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
