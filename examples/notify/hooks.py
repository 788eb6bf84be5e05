"""The provider's webhooks: signed by Standard Webhooks, sent again until they are answered, and not always well."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import secrets
import time

import httpx

from .faults import HookFault, bounces, hook_fault
from .ledger import Hook, Ledger, Message

#: How long a message is on its way, in seconds.
TRANSIT = 0.7
#: When a late report comes: after the service has asked by itself, in seconds.
LATE = 8.0
#: How often a report is sent until it is answered with 2xx, and the pause between, in seconds.
TRIES, PAUSE = 40, 0.5


class Hooks:
    """What is due to be reported, and reporting it.

    Args:
        ledger: Where messages and webhooks are booked.
        url: Where the service takes webhooks.
        secret: What they are signed with: "whsec_" and base64.
    """

    def __init__(self, ledger: Ledger, url: str, secret: str) -> None:
        self._ledger = ledger
        self._url = url
        self._secret = secret
        self._http = httpx.AsyncClient(timeout=5)
        self._due: set[asyncio.Task[None]] = set()

    @property
    def due(self) -> int:
        """Messages on their way, or not yet reported."""
        return len(self._due)

    def later(self, message: Message) -> None:
        """Deliver after the transit time, then report as its fault says."""
        task = asyncio.create_task(self._after_transit(message))
        self._due.add(task)
        task.add_done_callback(self._due.discard)

    async def now(self, message: Message) -> None:
        """Deliver and report at once."""
        await self._report(message, await self._deliver(message), "1")

    async def stop(self) -> None:
        """Forget what is due."""
        for task in self._due:
            task.cancel()
        await asyncio.gather(*self._due, return_exceptions=True)
        await self._http.aclose()

    async def _after_transit(self, message: Message) -> None:
        await asyncio.sleep(TRANSIT)
        state = await self._deliver(message)
        fault = hook_fault(message.tag)
        if fault is HookFault.NEVER:
            return
        if fault is HookFault.FORGED:
            await self._forge(message)
        if fault is HookFault.LATE:
            await asyncio.sleep(LATE)
        await self._report(message, state, "1")
        if fault in (HookFault.TWICE, HookFault.AGAIN):
            await self._report(message, state, "1" if fault is HookFault.TWICE else "2")

    async def _forge(self, message: Message) -> None:
        """Report what is not true, signed with another secret, until somebody answers."""
        for _ in range(TRIES):
            if await self._post(message, "bounced", f"forged-{message.id}", new_secret(), forged=True):
                return
            await asyncio.sleep(PAUSE)

    async def _deliver(self, message: Message) -> str:
        state = "bounced" if bounces(message.tag) else "delivered"
        await self._ledger.end(message.n, state)
        return state

    async def _report(self, message: Message, state: str, number: str) -> None:
        for _ in range(TRIES):
            if 200 <= await self._post(message, state, f"{message.id}-{number}", self._secret) < 300:
                return
            await asyncio.sleep(PAUSE)

    async def _post(
        self, message: Message, state: str, event_id: str, secret: str, *, forged: bool = False
    ) -> int:
        body = json.dumps({"type": f"message.{state}", "message": message.id, "tag": message.tag}).encode()
        headers = {"content-type": "application/json", **signed(event_id, body, secret, int(_now()))}
        try:
            answer = (await self._http.post(self._url, content=body, headers=headers)).status_code
        except httpx.HTTPError:
            answer = 0
        await self._ledger.hook(Hook(message.n, event_id, forged, answer))
        return answer


def signed(event_id: str, body: bytes, secret: str, at: int) -> dict[str, str]:
    """Return the headers of a signed webhook: https://www.standardwebhooks.com.

    Args:
        secret: "whsec_" and base64.
        at: Seconds since 1970.
    """
    key = base64.b64decode(secret.removeprefix("whsec_"))
    digest = hmac.new(key, f"{event_id}.{at}.".encode() + body, hashlib.sha256).digest()
    return {
        "webhook-id": event_id,
        "webhook-timestamp": str(at),
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }


def new_secret() -> str:
    """Return a new secret."""
    return f"whsec_{base64.b64encode(secrets.token_bytes(24)).decode()}"


def _now() -> float:
    return time.time()  # noqa: TID251  a signature carries the machine's time
