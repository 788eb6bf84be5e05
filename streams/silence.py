"""Noticing that the other end of a database connection is gone without a word.

A server that is switched off, or a network that drops its packets, ends no connection. Who waits for an answer would
wait for ever, and who sends for a quarter of an hour; every change of a process could stand still behind that.
"""

from __future__ import annotations

import os
import socket
from typing import Any, cast

import asyncpg

#: Silence before the other end is asked whether it is there, between two questions, and how many stay unanswered before
#: the connection is given up; seconds.
IDLE, INTERVAL, QUESTIONS = 10, 5, 3
#: How long what was sent may stay unacknowledged, in seconds.
UNACKNOWLEDGED = IDLE + INTERVAL * QUESTIONS

#: By name, for not every system has all of them.
_OPTIONS = {
    "TCP_KEEPIDLE": IDLE,
    "TCP_KEEPALIVE": IDLE,  # what macOS calls it
    "TCP_KEEPINTVL": INTERVAL,
    "TCP_KEEPCNT": QUESTIONS,
    "TCP_USER_TIMEOUT": UNACKNOWLEDGED * 1000,
}


async def notice_silence(connection: asyncpg.Connection[Any]) -> None:
    """Have the operating system end a new connection whose other end does not answer any more."""
    found = cast(Any, connection)._transport.get_extra_info("socket")
    if found is None or found.family == getattr(socket, "AF_UNIX", None):
        return
    # A descriptor of our own: event loops do not hand out a socket on which options may be set.
    with socket.socket(fileno=os.dup(found.fileno())) as own:
        own.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _OPTIONS.items():
            option = getattr(socket, name, None)
            if option is not None:
                own.setsockopt(socket.IPPROTO_TCP, option, value)
