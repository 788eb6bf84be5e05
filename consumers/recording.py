"""An app's answer, kept back until it is stored; of one that is too long to be kept only the end is kept back."""

from __future__ import annotations

from dataclasses import dataclass

from ..inbox.http_model import Recorded
from .asgi import Message, Receive, Scope, Send


class Recording:
    """Stands between an app and its client.

    Args:
        send: To the client.
        most: Longest answer that is kept, in bytes.

    Attributes:
        passed_on: Whether the answer is too long to be kept.
        begun: Whether something of it was sent to the client.
    """

    def __init__(self, send: Send, *, most: int) -> None:
        self._send = send
        self._most = most
        self._messages: list[Message] = []
        self._parts: list[bytes] = []
        self._start: Message | None = None
        self._size = 0
        self._complete = False
        self.passed_on = False
        self.begun = False

    async def send(self, message: Message) -> None:
        """Take a message of the app."""
        if message["type"] == "http.response.start":
            self._start = message
        elif message["type"] == "http.response.body":
            self._complete = not message.get("more_body", False)
            self._size += len(message.get("body", b""))
        self._messages.append(message)
        if not self.passed_on and message["type"] == "http.response.body":
            self._parts.append(message.get("body", b""))
            self.passed_on = self._size > self._most
            if self.passed_on:
                self._parts.clear()
        if self.passed_on and not self._complete:
            await self.pass_on()

    async def pass_on(self) -> None:
        """Send what was kept back."""
        messages, self._messages = self._messages, []
        self.begun = self.begun or bool(messages)
        for message in messages:
            await self._send(message)

    @property
    def recorded(self) -> Recorded | None:
        """The whole answer, without its body where it was sent on; None while it is not complete."""
        if not self._complete or self._start is None:
            return None
        body = None if self.passed_on else b"".join(self._parts)
        return Recorded(int(self._start["status"]), list(self._start.get("headers", [])), body)


#: Ways to answer that leave no body to be kept.
_PAST_US = frozenset({"http.response.pathsend", "http.response.zerocopysend", "http.response.trailers"})


@dataclass
class Request:
    """A request whose body has been read, and may be read once more."""

    scope: Scope
    receive: Receive
    send: Send
    body: bytes
    read: bool = False

    @property
    def recordable(self) -> Scope:
        """The scope without those of the server's extensions that would send an answer past whoever records it."""
        given = self.scope.get("extensions") or {}
        return {
            **self.scope,
            "extensions": {name: item for name, item in given.items() if name not in _PAST_US},
        }

    async def replayed(self) -> Message:
        """Give the body, then what else comes: that the client has gone."""
        if not self.read:
            self.read = True
            return {"type": "http.request", "body": self.body, "more_body": False}
        return await self.receive()
