"""What an exception of a user's call says about its effect: the table of requirement R1, extended by the service."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from ..sagas.facts import Verdict
from ..schemas.errors import Refused

#: By qualified class name, so that no client library has to be installed.
_BY_NAME: Mapping[str, tuple[Verdict, str]] = {
    "httpx.ConnectError": ("not_sent", "CONNECT_FAILED"),
    "httpx.ConnectTimeout": ("not_sent", "CONNECT_TIMEOUT"),
    "httpx.PoolTimeout": ("not_sent", "POOL_TIMEOUT"),
    "httpx.TimeoutException": ("unknown", "TIMEOUT"),
    "httpx.TransportError": ("unknown", "CONNECTION_LOST"),
    "httpx.InvalidURL": ("fatal", "INVALID_URL"),
    "aiohttp.client_exceptions.ClientConnectorError": ("not_sent", "CONNECT_FAILED"),
    "aiohttp.client_exceptions.ServerTimeoutError": ("unknown", "TIMEOUT"),
    "aiohttp.client_exceptions.ClientConnectionError": ("unknown", "CONNECTION_LOST"),
    "asyncpg.exceptions.SerializationError": ("retry", "SERIALIZATION_FAILURE"),
    "asyncpg.exceptions.DeadlockDetectedError": ("retry", "DEADLOCK"),
    "asyncpg.exceptions.CannotConnectNowError": ("not_sent", "CONNECT_FAILED"),
    "asyncpg.exceptions.TooManyConnectionsError": ("not_sent", "CONNECT_FAILED"),
    "asyncpg.exceptions.UniqueViolationError": ("fatal", "UNIQUE_VIOLATION"),
    "asyncpg.exceptions.CheckViolationError": ("fatal", "CHECK_VIOLATION"),
    "aiokafka.errors.KafkaConnectionError": ("not_sent", "CONNECT_FAILED"),
    "builtins.ConnectionRefusedError": ("not_sent", "CONNECT_FAILED"),
    "socket.gaierror": ("not_sent", "NAME_NOT_RESOLVED"),
    "builtins.TimeoutError": ("unknown", "TIMEOUT"),
    "builtins.ConnectionError": ("unknown", "CONNECTION_LOST"),
}

#: Statuses after which the same request may pass (RFC 9110, RFC 6585); other 4xx are a definite no.
_TRANSIENT = frozenset({408, 425, 429, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class Classified:
    """What an exception means; see `sagas.model.TryFailed`."""

    verdict: Verdict
    code: str
    message: str
    retry_after: timedelta | None = None


def _clean(text: str) -> str:
    return text.replace("\x00", "").encode("utf-8", "replace").decode()[:2000]


def _status(error: BaseException) -> tuple[int, Any] | None:
    """Status and headers of an httpx or aiohttp answer, if the error carries one."""
    response = getattr(error, "response", None)
    status = getattr(response, "status_code", None)
    if isinstance(status, int):
        return status, getattr(response, "headers", None)
    status = getattr(error, "status", None)
    if isinstance(status, int) and type(error).__module__.startswith("aiohttp."):
        return status, getattr(error, "headers", None)
    return None


def _retry_after(headers: Any) -> timedelta | None:
    value = headers.get("Retry-After") if headers is not None else None
    if isinstance(value, str) and value.isdigit() and len(value) < 7:
        return timedelta(seconds=int(value))
    return None


def _by_status(status: int, headers: Any) -> tuple[Verdict, str, timedelta | None]:
    code = f"HTTP_{status}"
    if status in _TRANSIENT:
        return "retry", code, _retry_after(headers)
    return ("fatal" if 400 <= status < 500 else "unknown"), code, None


def _qualified(kind: type[BaseException]) -> str:
    module = kind.__module__
    if module.startswith("httpx."):
        module = "httpx"
    return f"{module}.{kind.__qualname__}"


def _under(error: BaseException) -> object:
    """Return the driver's error that SQLAlchemy has wrapped, or None."""
    wrapped = getattr(error, "orig", None)
    return wrapped.__cause__ if isinstance(wrapped, BaseException) else None


def _place(error: BaseException) -> str:
    """Where an exception that nobody listed was raised, for people."""
    frames = traceback.extract_tb(error.__traceback__)
    return (
        f" (at {Path(frames[-1].filename).name}:{frames[-1].lineno} in {frames[-1].name})" if frames else ""
    )


def classify(error: BaseException, extra: Mapping[type[Exception], tuple[Verdict, str]]) -> Classified:
    """Say what an exception means for the effect of the call.

    Args:
        error: What the user's function raised.
        extra: What the service was told by `classify()`; the nearest class wins over the built-in table.

    Returns:
        The verdict. An exception that nobody listed is "unknown": it may have been raised after the effect happened.
    """
    message = _clean(f"{type(error).__name__}: {error}")
    if isinstance(error, Refused):
        return Classified("fatal", _clean(error.code), _clean(error.message))
    for kind in type(error).__mro__:
        if kind in extra:
            verdict, code = extra[kind]
            return Classified(verdict, code, message)
    answered = _status(error)
    if answered is not None:
        verdict, code, wait = _by_status(*answered)
        return Classified(verdict, code, message, wait)
    for kind in (*type(error).__mro__, *type(_under(error)).__mro__):
        known = _BY_NAME.get(_qualified(kind))
        if known is not None:
            return Classified(*known, message)
    return Classified("unknown", type(error).__name__.upper(), message + _place(error))
