"""The Idempotency-Key header: a request is answered once, and its answer given again to whoever asks with the same key.

After draft-ietf-httpapi-idempotency-key-header-07 and RFC 9457. The app behind it is not in our transaction: a process
that dies in between leaves UNKNOWN, which is answered 409 with a link and never repeated by itself.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from ..inbox.http_model import OUTCOME, OUTCOMES, Recorded, fingerprint_of, key_problem, read_key
from ..inbox.operation_model import (
    HTTP,
    Act,
    Asked,
    Decision,
    Ending,
    Name,
    Operation,
    OperationState,
    decide,
)
from ..inbox.operations import Hold, Operations
from ..sagas.definition import text_problem
from ..sagas.words import WORKER_LOST, clean, clean_code
from ..schemas.errors import ConnectError
from ..schemas.options import Repeat
from .asgi import (
    RETRY_AFTER,
    ASGIApp,
    Gone,
    Receive,
    Scope,
    Send,
    TooLarge,
    answer,
    problem,
    read_body,
)
from .engine import DATABASE_ERRORS
from .held import Held, LeaseGone, seconds
from .recording import Recording, Request

if TYPE_CHECKING:
    from .app import Milepost

logger = logging.getLogger("milepost")

#: How long the store may take before the client is told to come again, in seconds.
STORE_WITHIN = 5.0
#: Longest wait that a client is told while the same request runs, in seconds.
LONGEST_WAIT = timedelta(seconds=5)


class IdempotencyMiddleware:
    """ASGI middleware: `api.add_middleware(IdempotencyMiddleware, service=service, tenant=who)`.

    A request with an `Idempotency-Key` is handled once for (tenant, key). The same request again gets the stored answer
    with `Idempotency-Replayed: true`, 409 and Retry-After while the first one runs, and 409 with a link where nobody
    knows what became of it. Another request under the key gets 422. Answers with 401, 403, 408, 421, 425, 429 and 503
    say that nothing was done, so they are not stored; other 5xx answers, and an exception, say nothing of what was
    done, so they leave the outcome unknown.

    An answer is stored before the client gets it, so it is kept back until it is complete.

    Args:
        app: The app behind it.
        service: Whose database keeps the records.
        tenant: Returns whose request it is, from the ASGI scope; keys of two tenants never meet. Take it from what
            is authenticated, or one tenant could read another's answers.
        methods: Which requests; others pass.
        required: Refuse such requests without the header, with 400.
        keep: How long an answer is given again; then the same key is a new request.
        max_body: Longest request body, 413 beyond it; also the longest answer that is kept. A longer one is sent on
            as it comes, and asked for again, the client hears that it was done (409).
        docs: URL of the API's own page on this; named in the answers.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        service: Milepost,
        tenant: Callable[[Scope], str],
        methods: frozenset[str] = frozenset({"POST"}),
        required: bool = False,
        keep: timedelta = timedelta(hours=24),
        max_body: int = 1_048_576,
        docs: str = "",
    ) -> None:
        self._app = app
        self._service = service
        self._tenant = tenant
        self._methods = methods
        self._required = required
        self._keep = keep
        self._max_body = max_body
        self._docs = docs

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request: ASGI."""
        if scope["type"] != "http" or scope["method"] not in self._methods:
            await self._app(scope, receive, send)
            return
        given = [value for name, value in scope["headers"] if name.lower() == b"idempotency-key"]
        if not given and not self._required:
            await self._app(scope, receive, send)
            return
        key = read_key(given)
        if key is None:
            await self._problem(send, 400, "MP465", key_problem(given))
            return
        try:
            body = await read_body(scope, receive, self._max_body)
        except Gone:
            return
        except TooLarge:
            detail = f"The body is larger than {self._max_body} bytes."
            await self._problem(send, 413, "MP451", detail, close=True)
            return
        await self._keyed(Request(scope, receive, send, body), key)

    async def _keyed(self, request: Request, key: str) -> None:
        tenant = self._tenant(request.scope)
        if tenant and (wrong := text_problem(tenant, longest=200)):
            raise ValueError(f"IdempotencyMiddleware: what tenant() returned {wrong}")
        name: Name = (tenant, HTTP, key)
        asked = Asked(fingerprint_of(request.scope, request.body), Repeat.NEVER)
        before = self._service.clock.monotonic()
        try:
            async with asyncio.timeout(STORE_WITHIN):
                database = await self._service._opened()
                operations = Operations(
                    database.pool, self._service.name, self._service.ids, self._service.settings.lease
                )
                found = await self._claim(operations, name, asked)
        except (*DATABASE_ERRORS, ConnectError) as error:
            logger.error("MP453 request under an idempotency key not begun: %s", type(error).__name__)
            detail = "The request was not begun, because it could not be noted. Please send it again."
            await self._problem(request.send, 503, "MP453", detail, after=RETRY_AFTER)
            return
        if isinstance(found, Hold):
            await self._handle(request, Held(operations, found, self._service.clock, before))
        else:
            await self._known(request.send, *found)

    async def _claim(
        self, operations: Operations, name: Name, asked: Asked
    ) -> Hold | tuple[Operation, Decision]:
        """Claim the request's record, or say what is known of it."""
        while True:
            hold = await operations.begin(name, asked, self._keep)
            found = None if hold is not None else await operations.read(name)
            if hold is not None:
                return hold
            if found is None:
                continue
            record, now = found
            decision = decide(record, asked, now)
            if decision.act is Act.LOST:
                await operations.mark_lost(name, record, WORKER_LOST, "the process that handled it is gone")
                continue
            if decision.act not in {Act.BEGIN, Act.TRY}:
                return record, decision
            if decision.act is Act.BEGIN:
                hold = await operations.claim_anew(name, record, asked, self._keep)
            else:
                hold = await operations.claim(name, record, Repeat.NEVER, self._keep, doubt_at=None)
            if hold is not None:
                return hold

    # --- known ------------------------------------------------------------------------------------------

    async def _known(self, send: Send, record: Operation, decision: Decision) -> None:
        if decision.act is Act.ANSWER:
            await self._again(send, record)
        elif decision.act is Act.REUSED:
            detail = "This Idempotency-Key was used with another request. A new intent needs a new key."
            await self._problem(send, 422, "MP460", detail, record)
        elif decision.act is Act.WAIT:
            wait = min(decision.retry_after or LONGEST_WAIT, LONGEST_WAIT)
            detail = "A request with this Idempotency-Key is being handled."
            await self._problem(send, 409, "MP461", detail, record, after=seconds(wait))
        elif decision.act is Act.REFUSE:
            detail = "The request with this Idempotency-Key failed for good; whoever looked into it said so."
            await self._problem(send, 409, "MP478", detail, record)
        else:
            detail = (
                "An earlier request with this Idempotency-Key did not end in order, and nobody knows whether it took "
                "effect. It is not repeated: look at what it was to do before you use a new key."
            )
            await self._problem(send, 409, "MP462", detail, record)

    async def _again(self, send: Send, record: Operation) -> None:
        """Give the stored answer."""
        if record.response_code is None or record.response_body is None:
            detail = "The request with this Idempotency-Key was done; its answer was not kept."
            await self._problem(send, 409, "MP466", detail, record)
            return
        headers = [(n.encode("latin-1"), v.encode("latin-1")) for n, v in record.response_headers.items()]
        await answer(
            send, record.response_code, [*headers, (b"idempotency-replayed", b"true")], record.response_body
        )

    async def _problem(
        self,
        send: Send,
        status: int,
        code: str,
        detail: str,
        record: Operation | None = None,
        *,
        after: int | None = None,
        close: bool = False,
    ) -> None:
        """Send a problem, with a link to the API's own page or to the record."""
        headers = {"Connection": "close"} if close else {}
        if code in OUTCOMES:
            headers[OUTCOME] = OUTCOMES[code]
        if after is not None:
            headers["Retry-After"] = str(after)
        instance = f"urn:uuid:{record.id}" if record is not None else None
        if self._docs:
            headers["Link"] = f'<{self._docs}#{code}>; rel="describedby"'
        elif instance is not None:
            headers["Link"] = f'<{instance}>; rel="related"'
        kind = f"{self._docs}#{code}" if self._docs else "about:blank"
        await problem(send, status, code, detail, kind=kind, instance=instance, headers=headers)

    # --- new --------------------------------------------------------------------------------------------

    async def _handle(self, request: Request, held: Held) -> None:
        """Let the app answer, store the answer, then send it."""
        recording = Recording(request.send, most=self._max_body)
        try:
            await held.run(lambda: self._app(request.recordable, request.replayed, recording.send))
        except LeaseGone:
            await self._unknown(held, WORKER_LOST, "its lease ran out")
            await self._lost(request.send, held, recording)
            return
        except asyncio.CancelledError:
            await self._unknown(held, "CALLER_CANCELLED", "it was cancelled while it ran")
            raise
        except Exception as error:
            await self._unknown(held, type(error).__name__.upper(), f"{type(error).__name__} in the app")
            raise
        await self._answered(request.send, held, recording)

    async def _answered(self, send: Send, held: Held, recording: Recording) -> None:
        recorded = recording.recorded
        if recorded is None:
            await self._unknown(held, "NO_ANSWER", "the app ended without a whole answer")
            await recording.pass_on()
            return
        try:
            stored = await held.finish(self._ending(recorded))
        except DATABASE_ERRORS as error:
            # It was done, and the client hears so. The record's lease ends by itself; then the key counts as unknown.
            logger.error("MP468 an answer could not be stored: %s", type(error).__name__)
            stored = True
        if stored:
            await recording.pass_on()
        else:
            await self._lost(send, held, recording)

    async def _lost(self, send: Send, held: Held, recording: Recording) -> None:
        """Say that nobody knows, unless an answer is on its way already."""
        if not recording.begun:
            found = await held.read()
            detail = "The request took so long that nobody knows whether it took effect."
            await self._problem(send, 409, "MP462", detail, found)

    def _ending(self, recorded: Recorded) -> Ending:
        if recorded.not_done:
            return Ending(state=OperationState.PENDING, keep=self._keep, code=f"HTTP_{recorded.status}")
        if recorded.status >= 500:
            return Ending(state=OperationState.UNKNOWN, doubt=True, code=f"HTTP_{recorded.status}")
        return Ending(
            state=OperationState.SUCCEEDED,
            keep=self._keep,
            code="ANSWER_NOT_KEPT" if recorded.body is None else None,
            response_code=recorded.status,
            response_headers=json.dumps(recorded.kept_headers),
            response_body=recorded.body,
        )

    async def _unknown(self, held: Held, code: str, message: str) -> None:
        ending = Ending(
            state=OperationState.UNKNOWN, doubt=True, code=clean_code(code), message=clean(message)
        )
        logger.error("MP462 request of operation %s: %s", held.hold.id, code)
        try:
            await held.finish(ending)
        except DATABASE_ERRORS as error:
            logger.error("MP468 that it is unknown could not be stored: %s", type(error).__name__)
