"""What an exception of a user's call says about its effect: the table of verdicts.py, extended by the service."""

from __future__ import annotations

import errno
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ..inbox.http_model import OUTCOME
from ..sagas.facts import Verdict
from ..schemas.errors import PolicyDenied, QualityFailed, Refused
from ..schemas.ids import SystemClock
from .arrived import connecting, may_have_arrived
from .verdicts import BY_CLASS, BY_STATE, DOUBTFUL_OUTCOMES, TRANSIENT_STATUSES, Meaning

#: errno of a connection that was not made.
_NOT_CONNECTED = frozenset(
    {errno.ECONNREFUSED, errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EHOSTDOWN, errno.EADDRNOTAVAIL}
)
#: How far causes are followed.
_DEPTH = 8


@dataclass(frozen=True, slots=True)
class Classified:
    """What an exception means; see `sagas.model.TryFailed`."""

    verdict: Verdict
    code: str
    message: str
    retry_after: timedelta | None = None


def classify(
    error: BaseException,
    extra: Mapping[type[Exception], Meaning],
    *,
    now: datetime | None = None,
) -> Classified:
    """Say what an exception means for the effect of the call.

    Args:
        error: What the user's function raised.
        extra: What the service was told by `classify()`; the nearest class wins over the built-in table.
        now: For a Retry-After that names an instant, where the answer has no Date; default: by the machine's clock.

    Returns:
        The verdict. An exception that nobody listed is "unknown": it may have been raised after the effect happened.
    """
    found = listed(error, extra, now=now)
    if found is not None:
        return found
    return Classified("unknown", type(error).__name__.upper(), _message(error) + _place(error))


def listed(
    error: BaseException,
    extra: Mapping[type[Exception], Meaning],
    *,
    now: datetime | None = None,
) -> Classified | None:
    """Say what an exception means, as `classify`; None for one that neither the service nor the table lists."""
    message = _message(error)
    if isinstance(error, Refused):
        return Classified(_of_refusal(error), _clean(error.code), _clean(error.message))
    for kind in type(error).__mro__:
        if kind in extra:
            return Classified(*extra[kind], message)
    answered = _status(error)
    if answered is not None:
        found = _answered(*answered, message, now)
    elif known := _of_state(error) or _of_class(error):
        found = Classified(*known, message)
    else:
        return None
    doubtful = found.verdict in {"fatal", "not_sent"} and may_have_arrived(error)
    return replace(found, verdict="unknown") if doubtful else found


def _of_refusal(error: Refused) -> Verdict:
    if isinstance(error, PolicyDenied):
        return "policy"
    return "quality" if isinstance(error, QualityFailed) else "fatal"


def _clean(text: str) -> str:
    return text.replace("\x00", "").encode("utf-8", "replace").decode()[:2000]


def _message(error: BaseException) -> str:
    """Return an exception's class and words.

    Of pydantic's, which quotes data, only where it misfits; of a database's neither the detail nor the parameters that
    SQLAlchemy adds.
    """
    if isinstance(error, ValidationError):
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        own = "[" not in error.title  # of a mapping's value the place is a key, which is data too
        words = ", ".join(
            f"{item['loc'][0] if own and item['loc'] and item['type'] != 'extra_forbidden' else 'it'}: {item['type']}"
            for item in faults[:20]
        )
        return _clean(f"{type(error).__name__} of {error.title}: {words}")
    of_server = [one for one in _drivers(error) if isinstance(getattr(one, "sqlstate", None), str)]
    words = str(of_server[-1]).partition("\nDETAIL:")[0] if of_server else str(error)
    return _clean(f"{type(error).__name__}: {words}")


def quotes(error: BaseException) -> bool:
    """Whether a traceback of this exception would show what pydantic read or what a statement was given."""
    return any(
        isinstance(one, ValidationError) or isinstance(getattr(one, "sqlstate", None), str)
        for cause in _causes(error)
        for one in _drivers(cause)
    )


def _place(error: BaseException) -> str:
    """Where an exception that nobody listed was raised, for people: in the last line that is no installed library's."""
    every = traceback.extract_tb(error.__traceback__)
    frames = [frame for frame in every if "site-packages" not in frame.filename] or every
    return (
        f" (at {Path(frames[-1].filename).name}:{frames[-1].lineno} in {frames[-1].name})" if frames else ""
    )


# HTTP -----------------------------------------------------------------------------------------------


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


def _answered(status: int, headers: Any, message: str, now: datetime | None) -> Classified:
    code = f"HTTP_{status}"
    after = retry_after(headers, now)
    # 409 with Retry-After: the same request under this key is still being handled, so it may well take effect.
    if status in TRANSIENT_STATUSES or (status == 409 and after is not None):
        return Classified("retry", code, message, after)
    refused = 400 <= status < 500 and not (status == 409 and _doubtful(headers))
    return Classified("fatal" if refused else "unknown", code, message)


def _doubtful(headers: Any) -> bool:
    """Whether an answer says of an earlier request under the same key that it has or may have taken effect."""
    value = headers.get(OUTCOME) if headers is not None else None
    return isinstance(value, str) and value.strip().lower() in DOUBTFUL_OUTCOMES


def retry_after(headers: Any, now: datetime | None = None) -> timedelta | None:
    """Return how long an answer asks to wait: in seconds, or as a date, which counts from the answer's own Date.

    RFC 9110, sections 10.2.3 and 5.6.7.
    """
    value = headers.get("Retry-After") if headers is not None else None
    if not isinstance(value, str):
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return timedelta(seconds=int(text)) if len(text) < 7 else None
    until = _date(text)
    if until is None:
        return None
    since = _date(headers.get("Date")) or now or SystemClock().now()
    return max(timedelta(0), until - since)


def _date(text: object) -> datetime | None:
    try:
        found = parsedate_to_datetime(str(text))
    except ValueError:
        return None
    return found if found.tzinfo is not None else None


# PostgreSQL -----------------------------------------------------------------------------------------


def _of_state(error: BaseException) -> Meaning | None:
    """Look an SQLSTATE up, of the driver's own error or of one that SQLAlchemy has wrapped."""
    for one in _drivers(error):
        state = getattr(one, "sqlstate", None)
        if isinstance(state, str):
            return next((BY_STATE[state[:n]] for n in (5, 3, 2) if state[:n] in BY_STATE), None)
    return None


def _drivers(error: BaseException) -> Iterator[BaseException]:
    """Give the error itself, then what SQLAlchemy has wrapped in it, then the driver's under that."""
    yield error
    wrapped = getattr(error, "orig", None)
    if isinstance(wrapped, BaseException):
        yield wrapped
        if wrapped.__cause__ is not None:
            yield wrapped.__cause__


# by class -------------------------------------------------------------------------------------------


def _of_class(error: BaseException) -> Meaning | None:
    for one in _drivers(error):
        if _psycopg_connecting(one) or _not_connected(one):
            return _why_not(one)
        for kind in type(one).__mro__:
            known = BY_CLASS.get(_qualified(kind))
            if known is not None:
                return _why_not(one) if known == ("not_sent", "CONNECT_FAILED") else known
    return None


def _qualified(kind: type[BaseException]) -> str:
    module = kind.__module__
    if module.startswith("httpx."):
        module = "httpx"
    return f"{module}.{kind.__qualname__}"


def _psycopg_connecting(error: BaseException) -> bool:
    """Tell whether psycopg raised this while it connected: only then its error has the connection that failed."""
    kind = type(error)
    if not kind.__module__.startswith("psycopg") or kind.__name__ == "ConnectionTimeout":
        return False
    if getattr(error, "sqlstate", None) is not None:
        return False
    return getattr(error, "pgconn", None) is not None or _unresolved(error)


def _unresolved(error: BaseException) -> bool:
    # psycopg resolves names itself and keeps nothing but the words.
    return str(error).startswith("failed to resolve host ")


def _not_connected(error: BaseException) -> bool:
    """Tell whether this says that a connection was not made: by aiokafka, or by the system for one or more addresses.

    aiokafka raises the same class for a request that was written when its connection broke.
    """
    if _qualified(type(error)) == "aiokafka.errors.KafkaConnectionError":
        return "Unable to bootstrap" in str(error)
    if type(error) is not OSError:
        return False
    several = str(error).startswith("Multiple exceptions: ") and "Connect call failed" in str(error)
    return several or (error.errno in _NOT_CONNECTED and connecting(error))


def _why_not(error: BaseException) -> Meaning:
    """Say why a connection was not made, as far as the causes tell."""
    names = _names(error)
    if "socket.gaierror" in names or _unresolved(error):
        return "not_sent", "NAME_NOT_RESOLVED"
    if any(name.startswith("ssl.") for name in names):
        return "not_sent", "TLS_FAILED"
    return "not_sent", "CONNECT_FAILED"


def _names(error: BaseException) -> set[str]:
    return {f"{type(cause).__module__}.{type(cause).__name__}" for cause in _causes(error)}


def _causes(error: BaseException) -> Iterator[BaseException]:
    one: BaseException | None = error
    for _ in range(_DEPTH):
        if one is None:
            return
        yield one
        one = one.__cause__ or one.__context__
