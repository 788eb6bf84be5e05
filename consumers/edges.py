"""What of the application meets the outside: signals, webhooks, effects that happen once, and items of fan-outs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel

from ..inbox.verify import Verifier
from ..inbox.webhook_model import WebhookRequest
from ..sagas.context import RunRef
from ..sagas.nodes import Node
from ..schemas.events import Event
from ..schemas.fanout import FanOut, FanOutItem
from ..schemas.options import Probe, R, Repeat
from ..schemas.states import ItemState
from ..schemas.transaction import AnyTx, AsyncpgTx
from .asgi import ASGIApp
from .fanout_items import fanout_items
from .once_call import OnceCall
from .signalling import SignalRef, give_signal
from .webhooks import Webhook, declare_webhook, no_tenant

if TYPE_CHECKING:
    from .app import Milepost


class Edges:
    """A part of `Milepost`, which is the only class that has it."""

    def _service(self) -> Milepost:
        return cast("Milepost", self)

    async def signal(
        self,
        tx: AsyncpgTx,
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
        return await give_signal(self._service(), tx, event, tenant=tenant, keep=keep, event_id=event_id)

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

        It is an ASGI app: `api.routes.append(Route("/hooks/carrier", service.webhook("carrier", ...)))` with
        Starlette's Route, or `api.mount`; a mount answers its path without a slash at the end by a redirect, which
        providers do not follow. Declare it in the application's own module: the work is done by `milepost serve` with
        the role signals, which has to know it.

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
        return declare_webhook(
            self._service(), Webhook(self._service(), provider, verify, event_id, to_event, tenant, max_body)
        )

    async def once(
        self,
        *,
        kind: str,
        key: str,
        request: BaseModel,
        result: type[R],
        repeat: Repeat,
        do: Callable[[str], Awaitable[R]],
        probe: Callable[[str], Awaitable[Probe[R]]] | None = None,
        tenant: str = "",
        keep: timedelta = timedelta(days=30),
        settle: timedelta = timedelta(minutes=1),
    ) -> R:
        """Cause an effect outside once for (tenant, kind, key), and give the stored answer to whoever asks again.

        The record is committed on its own, not in the caller's transaction: call it before that begins.

        Args:
            kind: What is done, such as "refund"; two kinds with one key are two operations.
            key: Which one, such as the order's id.
            request: What it means; asking again with another request is refused. Only a hash of it is kept.
            result: Class of what `do` returns; `type(None)` for nothing. Its fields resource_type and resource_id, if
                it has them, are kept in columns of their own.
            repeat: What to do when nobody knows whether it took effect. SAFE: call `do` again under the same key.
                ASK_FIRST: ask `probe` before. NEVER: a person has to look.
            do: Receives the idempotency key to pass on: always the same for this operation, whatever the try.
            probe: Receives the same key; says whether it took effect. Raising leaves it unknown.
            keep: How long the record is kept after it ended; then the same key is a new operation. One whose outcome is
                unknown is kept until it is known.
            settle: How long after a doubtful try ended "absent" does not count yet.

        Returns:
            What `do` returned, now or the first time.

        Raises:
            IdempotencyKeyReused: MP460, the key belongs to another request.
            OperationInProgress: MP461, somebody does it now.
            OutcomeUnknown: MP462, nobody knows whether it took effect.
            Refused: The other side said no, for good: `do` raised it, or an error that is classified as fatal.
            UsageError: MP463 for a call that is wrong, MP464 for a result that cannot be kept.
            StateError: MP459, the stored result is of another form than `result`.
            ConnectError: MP468 and MP501, the store did not answer; MP468 says whether the effect was caused.
            Exception: What `do` raised, where the same call may simply be made again.
        """
        call: OnceCall[R] = OnceCall(kind, key, tenant, request, result, repeat, do, probe, settle, keep)
        return await call.on(self._service())

    async def fanout_items(
        self,
        tx: AnyTx,
        run: RunRef,
        node: Node[Any, FanOut],
        /,
        *,
        state: ItemState | None = None,
        iteration: str = "",
        after: int = -1,
        limit: int = 1000,
    ) -> list[FanOutItem]:
        """Read the items of a fan-out, page by page, also of a run that has ended.

        Args:
            tx: The open transaction, as `publish` takes it.
            run: The run.
            node: What `saga.each` returned.
            state: Only those in this state, such as those that have failed.
            iteration: Which round, where the node is in a loop.
            after: Number of the last item that was read.
            limit: Most items of one page, from 1 to 10,000.

        Returns:
            The next items in the order of the list; an empty list after the last.

        Raises:
            UsageError: MP301, MP306, MP308 as publish; MP395 for a limit that is none.
            StateError: MP396 when the run has no list of that node.
        """
        return await fanout_items(
            tx, run, node.name, state=state, iteration=iteration, after=after, limit=limit
        )
