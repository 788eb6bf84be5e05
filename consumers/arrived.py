"""Signs that a request had arrived although its exception looks as if it had not: what follows is then unknown."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from typing import Any

#: Redirects that clients follow with GET: the request itself was answered, mostly once it was carried out (RFC 9110,
#: 15.4.2 to 15.4.4). 307 and 308 have it sent again as it is.
_ANSWERED_BY = frozenset({301, 302, 303})
#: Functions in which a connection is being made: of asyncio, uvloop and socket.
_CONNECTING = frozenset(
    {"create_connection", "_connect_sock", "sock_connect", "_sock_connect", "open_connection"}
)


def may_have_arrived(error: BaseException) -> bool:
    """Tell whether an exception that reads as a definite no came after an answer, or after the request was written."""
    return _was_redirected(error) or _broken_protocol(error)


def connecting(error: BaseException) -> bool:
    """Tell whether an error of the operating system was raised while a connection was made, and not on one that stood.

    A network that goes away under an established connection is EHOSTUNREACH too (RFC 1122, 4.2.3.9).
    """
    names = {frame.f_code.co_name.rpartition(".")[2] for frame, _ in traceback.walk_tb(error.__traceback__)}
    return not names.isdisjoint(_CONNECTING)


def _was_redirected(error: BaseException) -> bool:
    return any(
        getattr(answer, "status_code", getattr(answer, "status", None)) in _ANSWERED_BY
        for history in _histories(error)
        if isinstance(history, list | tuple)
        for answer in history
    )


def _histories(error: BaseException) -> Iterator[Any]:
    """Give the answers that came before: of the error's own answer, else of the client's call that raised it.

    A connection that fails after a redirect raises the same as the first one; only the client's frames know.
    """
    yield getattr(error, "history", None)
    yield getattr(getattr(error, "response", None), "history", None)
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] in {"httpx", "aiohttp"}:
            yield frame.f_locals.get("history")


def _broken_protocol(error: BaseException) -> bool:
    """Tell whether httpx blames the request after it was written: a body of another length, or HTTP/2 gone wrong."""
    local = any(kind.__name__ == "LocalProtocolError" for kind in type(error).__mro__)
    return local and not str(error).startswith(("Illegal ", "Missing "))
