"""Traces (OpenTelemetry): one trace id from the sender's span through outbox, Kafka and handlers.

Without an exporter spans cost next to nothing, yet trace ids are still made and handed on, so that rows and
records carry them and a service downstream that does export sees its parent.
"""

from __future__ import annotations

import os
import random
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeGuard

from opentelemetry import context as context_api
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, SpanKind, StatusCode, TraceFlags

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

Kind: TypeAlias = Literal["internal", "server", "client", "producer", "consumer"]
Attributes: TypeAlias = Mapping[str, str | int | float | bool]

_SCOPE, _SDK = "milepost", "opentelemetry.sdk.trace"
_KINDS: dict[Kind, SpanKind] = {
    "internal": SpanKind.INTERNAL,
    "server": SpanKind.SERVER,
    "client": SpanKind.CLIENT,
    "producer": SpanKind.PRODUCER,
    "consumer": SpanKind.CONSUMER,
}
# W3C Trace Context level 1, https://www.w3.org/TR/trace-context/#traceparent-header: lower-case hex only.
_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
#: Length of a traceparent of version 00.
_USUAL = 55
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _State:
    provider: TracerProvider | None = None


def setup_tracing(service: str) -> Callable[[], None]:
    """Start exporting spans over OTLP/HTTP when OTEL_EXPORTER_OTLP_ENDPOINT is set; else nothing is exported.

    A tracer provider that the application installed itself is left alone, and its spans are used.

    Args:
        service: Resource attribute `service.name` of every span.

    Returns:
        A function that sends what is left, waits at most five seconds for it and stops exporting. It blocks:
        call it in a thread from asynchronous code.
    """
    installed = _is_sdk(trace.get_tracer_provider()) and _State.provider is None
    if installed or not _endpoint():
        return lambda: None
    provider = _exporting(service)
    before, _State.provider = _State.provider, provider

    def shutdown() -> None:
        if _State.provider is provider:
            _State.provider = before
        # Flushing retries towards a collector that is away; a thread keeps the process's grace time.
        flushing = threading.Thread(target=provider.shutdown, name="milepost-tracing", daemon=True)
        flushing.start()
        flushing.join(5.0)

    return shutdown


def _exporting(service: str) -> TracerProvider:
    # 6 MB, which a process that exports nothing need not have.
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased  # noqa: PLC0415

    provider = TracerProvider(
        resource=Resource.create({"service.name": service}),
        sampler=ParentBased(ALWAYS_ON),
        shutdown_on_exit=False,
    )
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(), schedule_delay_millis=500))
    return provider


def _endpoint() -> str | None:
    return os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or os.environ.get(
        "OTEL_EXPORTER_OTLP_ENDPOINT"
    )


def valid_traceparent(text: str | None) -> bool:
    """Tell whether `text` is a usable W3C traceparent; upper-case, multi-valued and all-zero ones are not."""
    return _context_of(text) is not None


def traceparent_of(span: Span) -> str | None:
    """Return a span's context as a W3C traceparent, or None when it has none."""
    context = span.get_span_context()
    if not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"


def current_traceparent() -> str | None:
    """Return the current span's context as a W3C traceparent, or None outside any span."""
    return traceparent_of(trace.get_current_span())


def handing_on(name: Callable[[], str], *, kind: Kind) -> AbstractContextManager[str | None]:
    """Open a span as `span` does, for a block that only hands its trace on, and give its traceparent.

    Where nobody records spans no context is made current: that costs four times what the traceparent does.

    Args:
        name: Returns the span's name; called where spans are recorded.
        kind: Role of the span.
    """
    return _Text(_text_passed_on()) if _recording() is None else _opened(name(), kind)


def span(
    name: str,
    *,
    traceparent: str | None = None,
    links: Sequence[str] = (),
    kind: Kind = "internal",
    attributes: Attributes | Callable[[], Attributes] | None = None,
    secret: bool = False,
) -> AbstractContextManager[Span]:
    """Open a span and make it the current one inside the block.

    Args:
        name: Low-cardinality name such as "process shop.order-placed".
        traceparent: Remote parent. None takes the current span; a malformed one is dropped, never an error.
        links: Traceparents of related traces; malformed ones are dropped.
        kind: Role of the span.
        attributes: Details, or what returns them; kept, and asked for, only where spans are recorded.
        secret: Of an exception inside only the class is recorded: its words may quote an encrypted event.

    Returns:
        A context manager that gives the span; an exception inside is recorded on it and raised again.
    """
    parent = _parent(traceparent)
    provider = _recording()
    if provider is None:
        return _Quiet(parent)
    opened = provider.get_tracer(_SCOPE).start_as_current_span(
        name,
        context=parent,
        kind=_KINDS[kind],
        attributes=attributes() if callable(attributes) else attributes,
        links=_links(links),
        record_exception=not secret,
        set_status_on_exception=not secret,
    )
    return _without_words(opened) if secret else opened


@contextmanager
def _without_words(opening: AbstractContextManager[Span]) -> Iterator[Span]:
    with opening as opened:
        try:
            yield opened
        except Exception as error:
            opened.set_status(StatusCode.ERROR, type(error).__name__)
            raise


class _Quiet:
    """A span that nobody records: it only hands the trace on. A generator would cost three times as much."""

    def __init__(self, parent: Context | None) -> None:
        self._span = NonRecordingSpan(_passed_on(parent))

    def __enter__(self) -> Span:
        self._token = context_api.attach(trace.set_span_in_context(self._span))
        return self._span

    def __exit__(self, *error: object) -> None:
        context_api.detach(self._token)


class _Text:
    """A span that nobody records and nobody asks for inside."""

    def __init__(self, traceparent: str) -> None:
        self._traceparent = traceparent

    def __enter__(self) -> str:
        return self._traceparent

    def __exit__(self, *error: object) -> None:
        pass


@contextmanager
def _opened(name: str, kind: Kind) -> Iterator[str | None]:
    with span(name, kind=kind) as opened:
        yield traceparent_of(opened)


def past_span(
    name: str,
    *,
    start: datetime,
    end: datetime,
    traceparent: str | None = None,
    links: Sequence[str] = (),
    kind: Kind = "internal",
    attributes: Attributes | None = None,
) -> None:
    """Record a span of something that is already over, such as a wait that ended.

    Args:
        start: When it began, timezone-aware.
        end: When it ended, timezone-aware.
        traceparent: Parent, as in `span`.
        links: As in `span`.
        kind: As in `span`.
        attributes: As in `span`.
    """
    provider = _recording()
    if provider is None:
        return
    opened = provider.get_tracer(_SCOPE).start_span(
        name,
        context=_parent(traceparent),
        kind=_KINDS[kind],
        attributes=attributes,
        links=_links(links),
        start_time=_nanoseconds(start),
    )
    opened.end(_nanoseconds(end))


def _recording() -> trace.TracerProvider | None:
    if _State.provider is not None:
        return _State.provider
    if _SDK not in sys.modules:
        return None  # nobody makes spans; asking who does would read the environment each time
    installed = trace.get_tracer_provider()
    return installed if _is_sdk(installed) else None


def _is_sdk(provider: trace.TracerProvider) -> TypeGuard[TracerProvider]:
    """Tell whether a provider makes spans; who installed it has loaded the SDK."""
    loaded = sys.modules.get(_SDK)
    return loaded is not None and isinstance(provider, loaded.TracerProvider)


def _trace_id() -> int:
    return random.getrandbits(128) or 1  # all zeros is none


def _span_id() -> int:
    return random.getrandbits(64) or 1


def _context_of(text: str | None) -> SpanContext | None:
    if not text:
        return None
    return _remembered(text) if len(text) == _USUAL else _read(text)


def _read(text: str) -> SpanContext | None:
    found = _TRACEPARENT.fullmatch(text)
    if found is None:
        return None
    version, trace_id, span_id, flags, rest = found.groups()
    if version == "ff" or (version == "00" and rest):
        return None
    context = SpanContext(
        int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=TraceFlags(int(flags, 16))
    )
    return context if context.is_valid else None


#: The steps of a run all name the same one.
_remembered = lru_cache(maxsize=1024)(_read)


def _parent(traceparent: str | None) -> Context | None:
    """Return the context to start under: None is the current one, an empty one a new trace."""
    if traceparent is None:
        return None
    context = _context_of(traceparent)
    return Context() if context is None else trace.set_span_in_context(NonRecordingSpan(context), Context())


def _passed_on(parent: Context | None) -> SpanContext:
    context = trace.get_current_span(parent).get_span_context()
    if context.is_valid:
        return context
    return SpanContext(
        _trace_id(),
        _span_id(),
        is_remote=False,
        trace_flags=TraceFlags(TraceFlags.SAMPLED),
    )


def _text_passed_on() -> str:
    """What `_passed_on` gives under the current span, as a traceparent."""
    found = trace.get_current_span().get_span_context()
    if found.is_valid:
        return f"00-{found.trace_id:032x}-{found.span_id:016x}-{found.trace_flags:02x}"
    return f"00-{_trace_id():032x}-{_span_id():016x}-01"


def _links(traceparents: Sequence[str]) -> list[Link]:
    return [Link(context) for context in map(_context_of, traceparents) if context is not None]


def _nanoseconds(instant: datetime) -> int:
    since = instant - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000_000 + since.microseconds * 1_000
