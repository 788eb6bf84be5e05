"""Connections of a pool end by themselves when their other end is gone without a word."""

from __future__ import annotations

import socket
import sys
from typing import Any, cast

import pytest
from milepost.streams.database import Database
from milepost.streams.silence import IDLE, INTERVAL, QUESTIONS, UNACKNOWLEDGED

from tests.support.engine import settings_for


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have other names for these options")
async def test_every_connection_of_a_pool_asks_whether_the_other_end_is_there(database_url: str) -> None:
    database = Database(settings_for(database_url), max_size=2)
    await database.open()
    try:
        async with database.pool.acquire() as one, database.pool.acquire() as other:
            for connection in (one, other):
                assert await connection.fetchval("SELECT 1") == 1, "its own socket is left open"
                found: socket.socket = cast(Any, connection)._con._transport.get_extra_info("socket")

                def tcp(option: int, found: socket.socket = found) -> int:
                    return found.getsockopt(socket.IPPROTO_TCP, option)

                assert found.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
                asked = [
                    tcp(socket.TCP_KEEPIDLE),
                    tcp(socket.TCP_KEEPINTVL),
                    tcp(socket.TCP_KEEPCNT),
                    tcp(socket.TCP_USER_TIMEOUT),
                ]
                assert asked == [IDLE, INTERVAL, QUESTIONS, UNACKNOWLEDGED * 1000]
        assert settings_for(database_url).lease.total_seconds() > UNACKNOWLEDGED, "seen within a lease"
    finally:
        await database.close()
