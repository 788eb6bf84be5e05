"""What stored webhooks mean: the event they are turned into is published in the transaction that marks them done."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, cast
from uuid import UUID

import asyncpg

from ..inbox.webhook_model import Claimed, WebhookState
from ..inbox.webhooks import claim_webhooks, finish_webhook, release_webhook, retry_webhook
from ..outbox.publish import publish_events
from ..sagas.retry import delay
from ..sagas.words import clean, clean_code
from ..schemas.errors import MilepostError, Refused
from ..schemas.events import Event
from ..schemas.options import Retry
from ..streams.lifecycle import Health, Stop
from ..streams.tracing import span
from .engine import DATABASE_ERRORS, will_pass
from .webhooks import Webhook

if TYPE_CHECKING:
    from .app import Milepost

logger = logging.getLogger("milepost")

#: Webhooks taken per look, and the pauses after a look that found some and one that found none, in seconds.
BATCH = 50
PAUSE_BUSY = 0.0
PAUSE_IDLE = 0.2
#: Tries of one webhook; they end about ten minutes after the first.
RETRY = Retry(attempts=8, first=timedelta(seconds=2), factor=3.0, cap=timedelta(minutes=5), within=None)


class NotMine(Exception):
    """Somebody else has this webhook by now; what was done for it is rolled back."""


class WebhookWork:
    """Takes stored webhooks and publishes what they mean.

    Args:
        service: The application.
        pool: Database.
        lease: How long a taken webhook is left alone by others.
    """

    name = "webhooks"

    def __init__(self, service: Milepost, pool: asyncpg.Pool[asyncpg.Record], *, lease: timedelta) -> None:
        self._service = service
        self._pool = pool
        self._lease = lease
        self._trouble: str | None = None

    @property
    def _webhooks(self) -> Mapping[str, Webhook]:
        return self._service.webhooks

    async def run(self, stop: Stop) -> None:
        """Look again and again until asked to stop."""
        while not stop.asked:
            taken = await self._guarded(stop)
            await stop.wait(PAUSE_BUSY if taken else PAUSE_IDLE)

    async def _guarded(self, stop: Stop) -> int:
        try:
            taken = await self.turn(stop)
        except DATABASE_ERRORS as error:
            if self._trouble is None:
                logger.warning("webhooks: %s: %s; trying again", type(error).__name__, error)
            self._trouble = f"{type(error).__name__}: {error}"
            await stop.wait(1.0)
            return 0
        self._trouble = None
        return taken

    async def turn(self, stop: Stop | None = None) -> int:
        """Take what is due and work on it, one after the other.

        Returns:
            How many were taken.
        """
        if not self._webhooks:
            return 0
        clock = self._service.clock
        ends = clock.monotonic() + self._lease.total_seconds() / 2
        async with self._pool.acquire() as connection:
            claimed = await claim_webhooks(
                connection, self._service.name, list(self._webhooks), most=BATCH, lease=self._lease
            )
        for one in claimed:
            if (stop is not None and stop.asked) or clock.monotonic() >= ends:
                async with self._pool.acquire() as connection:
                    await release_webhook(connection, one)
            else:
                await self._work(one)
        return len(claimed)

    async def _work(self, claimed: Claimed) -> None:
        if claimed.attempts > RETRY.attempts:
            await self._fail(claimed, "PROCESS_DIED", "the process ended each time it was worked on")
            return
        try:
            event = self._webhooks[claimed.request.provider].to_event(claimed.request)
        except Refused as refused:
            await self._fail(claimed, refused.code, refused.message)
        except Exception as error:  # to_event is the user's, whatever it raises
            await self._again(claimed, error)
        else:
            await self._tell(claimed, event)

    async def _tell(self, claimed: Claimed, event: Event | None) -> None:
        try:
            with span(f"process webhook {claimed.request.provider}", traceparent=claimed.traceparent):
                await self._apply(claimed, event)
        except NotMine:
            logger.info("webhook %s was taken over by another process", claimed.event_id)
        except Exception as error:  # such as of the event's own serializers
            if isinstance(error, DATABASE_ERRORS) and will_pass(error):
                raise
            await self._again(claimed, error)

    async def _apply(self, claimed: Claimed, event: Event | None) -> None:
        """Publish what it means and mark it, in one transaction.

        Raises:
            NotMine: It is no longer this process's.
        """
        async with self._pool.acquire() as proxy, proxy.transaction(isolation="read_committed"):
            connection = cast("asyncpg.Connection[asyncpg.Record]", proxy)
            published = None if event is None else await self._publish(connection, claimed, event)
            state = WebhookState.IGNORED if event is None else WebhookState.PROCESSED
            if not await finish_webhook(connection, claimed, state, published=published):
                raise NotMine

    async def _publish(
        self, connection: asyncpg.Connection[asyncpg.Record], claimed: Claimed, event: Event
    ) -> UUID:
        (published,) = await publish_events(
            connection,
            [event],
            ids=self._service.ids,
            clock=self._service.clock,
            tenant=claimed.request.tenant,
            correlation_id=str(claimed.id),
            causation_id=clean(claimed.event_id, 200),
        )
        return published

    async def _again(self, claimed: Claimed, error: Exception) -> None:
        """Put it back for another try; after the last one it is FAILED, which a person sees."""
        code = error.code if isinstance(error, MilepostError) else type(error).__name__.upper()
        message = clean(f"{type(error).__name__}: {error}")
        if claimed.attempts >= RETRY.attempts:
            await self._fail(claimed, code, message)
            return
        after = delay(RETRY, claimed.attempts, self._service.randomness.uniform(), None)
        # Of an exception only its class: its text may quote the body. The record keeps it.
        logger.warning(
            "webhook %s of %s: try %d of %d: %s %s; again in %.1f s. `milepost webhooks show` has its text.",
            claimed.event_id,
            claimed.request.provider,
            claimed.attempts,
            RETRY.attempts,
            code,
            type(error).__name__,
            after.total_seconds(),
        )
        async with self._pool.acquire() as connection:
            await retry_webhook(connection, claimed, after=after, code=clean_code(code), message=message)

    async def _fail(self, claimed: Claimed, code: str, message: str) -> None:
        logger.error(
            "webhook %s of %s FAILED: %s", claimed.event_id, claimed.request.provider, clean_code(code)
        )
        async with self._pool.acquire() as connection:
            await finish_webhook(
                connection, claimed, WebhookState.FAILED, code=clean_code(code), message=clean(message)
            )

    def health(self) -> Health:
        """Red while the database does not answer."""
        return Health(self._trouble is None, self._trouble or "looking")
