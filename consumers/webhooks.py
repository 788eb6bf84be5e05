"""The door for webhooks: verified, stored, answered; what they mean is worked out later (webhook_work.py)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..inbox.verify import SignatureRefused, Verifier
from ..inbox.webhook_model import Taken, WebhookRequest, headers_of
from ..inbox.webhooks import store_webhook
from ..sagas.definition import text_problem
from ..schemas.errors import ConnectError, DefinitionError
from ..schemas.events import Event
from ..schemas.texts import INDEXED, too_long_to_index
from ..streams.tracing import current_traceparent, span, valid_traceparent
from .asgi import (
    RETRY_AFTER,
    Gone,
    Receive,
    Scope,
    Send,
    TooLarge,
    answer_json,
    lifespan,
    problem,
    read_body,
)
from .engine import DATABASE_ERRORS

if TYPE_CHECKING:
    from .app import Milepost

logger = logging.getLogger("milepost")

#: How long storing may take before the provider is told to come again, in seconds; most give up after ten.
STORE_WITHIN = 5.0
#: Longest event id and tenant, in characters.
LONGEST = 1000


class Unreadable(Exception):
    """A genuine webhook does not say what it has to; the text goes to the provider."""


@dataclass(frozen=True)
class Webhook:
    """What the service says about one provider; also the ASGI app that takes its webhooks.

    Args:
        service: The application.
        provider: Its name here.
        verify: Tells a genuine webhook.
        event_id: Returns the provider's id of the event.
        to_event: Returns what it means; None when nothing.
        tenant: Returns whose it is.
        max_body: Longest body, in bytes.
    """

    service: Milepost
    provider: str
    verify: Verifier
    event_id: Callable[[WebhookRequest], str]
    to_event: Callable[[WebhookRequest], Event | None]
    tenant: Callable[[WebhookRequest], str]
    max_body: int

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take a request: ASGI."""
        if scope["type"] == "lifespan":
            await lifespan(receive, send)
            return
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._other(scope, receive, send)
            return
        try:
            request, event_id = self._named(await self._verified(scope, receive))
        except Gone:
            return
        except TooLarge:
            detail = f"The body is larger than {self.max_body} bytes."
            await problem(send, 413, "MP451", detail, headers={"Connection": "close"})
        except SignatureRefused as refused:
            logger.warning("MP450 webhook of %s refused: %s", self.provider, refused)
            await problem(send, 401, "MP450", f"The signature was not accepted: {refused}.")
        except Unreadable as unreadable:
            logger.warning("MP452 webhook of %s is genuine, but %s", self.provider, unreadable)
            await problem(send, 400, "MP452", f"The webhook is genuine, but {unreadable}.")
        else:
            await self._store(request, event_id, send)

    async def _other(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})
            return
        await problem(send, 405, "MP454", "Webhooks are sent with POST.", headers={"Allow": "POST"})

    async def _verified(self, scope: Scope, receive: Receive) -> WebhookRequest:
        body = await read_body(scope, receive, self.max_body)
        now = self.service.clock.now()
        headers = headers_of(scope["headers"])
        self.verify.verify(headers, body, now)
        return WebhookRequest(self.provider, scope["path"], headers, body, received_at=now)

    def _named(self, request: WebhookRequest) -> tuple[WebhookRequest, str]:
        """Return the request with its tenant, and the event's id; the user's functions see what is genuine only.

        Raises:
            Unreadable: They raise, or return what cannot be stored.
        """
        request = replace(request, tenant=_called("tenant", self.tenant, request, may_be_empty=True))
        event_id = _called("event_id", self.event_id, request, may_be_empty=False)
        if too_long_to_index(request.tenant, self.provider, event_id):
            raise Unreadable(f"what tenant() and event_id() return is longer than {INDEXED} bytes")
        return request, event_id

    async def _store(self, request: WebhookRequest, event_id: str, send: Send) -> None:
        try:
            taken = await self._taken(request, event_id)
        except (*DATABASE_ERRORS, ConnectError) as error:
            logger.error("MP453 webhook of %s not stored: %s", self.provider, type(error).__name__)
            detail = "It could not be stored now. Please send it again."
            await problem(send, 503, "MP453", detail, headers={"Retry-After": str(RETRY_AFTER)})
        else:
            if taken is Taken.CONFLICT:
                logger.warning(
                    "webhook %s of %s came again with another body; kept the first", event_id, self.provider
                )
            await answer_json(send, 200, {"status": taken.value})

    async def _taken(self, request: WebhookRequest, event_id: str) -> Taken:
        given = request.headers.get("traceparent")
        parent = given if valid_traceparent(given) else None
        with span(f"webhook {self.provider}", traceparent=parent, kind="server"):
            async with asyncio.timeout(STORE_WITHIN):
                database = await self.service._opened()
                async with database.pool.acquire() as connection:
                    return await store_webhook(
                        connection,
                        self.service.ids.new(),
                        self.service.name,
                        request,
                        event_id,
                        current_traceparent(),
                    )


def _called(
    what: str, call: Callable[[WebhookRequest], str], request: WebhookRequest, *, may_be_empty: bool
) -> str:
    try:
        found = call(request)
    except Exception as error:  # whatever a body may make the user's code raise
        raise Unreadable(f"{what}() raised {type(error).__name__}") from error
    wrong = "" if found == "" and may_be_empty else text_problem(found, longest=LONGEST)
    if wrong:
        raise Unreadable(f"what {what}() returns {wrong}")
    return found


def no_tenant(request: WebhookRequest) -> str:
    """Say that a webhook is of no tenant."""
    return ""


def declare_webhook(service: Milepost, webhook: Webhook) -> Webhook:
    """Register a provider's webhook with its service.

    Raises:
        DefinitionError: MP455 for a name that is empty, odd or taken, or a bound that takes nothing.
    """
    place, problems = f"webhook({webhook.provider!r})", text_problem(webhook.provider, longest=200)
    if problems:
        raise DefinitionError("MP455", f"{place}: the provider's name {problems}.")
    if webhook.max_body < 1:
        raise DefinitionError("MP455", f"{place}: max_body={webhook.max_body} takes nothing.")
    if webhook.provider in service.webhooks:
        raise DefinitionError(
            "MP455", f"{place} is declared twice in service {service.name}. Mount the first one everywhere."
        )
    service.webhooks[webhook.provider] = webhook
    return webhook
