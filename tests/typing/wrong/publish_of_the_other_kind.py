"""publish awaits and publish_sync blocks: each takes the transactions of its own kind, whatever the driver."""

import psycopg
from base import Delivered, Place, order, service
from milepost import Tombstone, publish, publish_sync
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session

EVENT = Delivered(number="p")
Async = psycopg.AsyncConnection[tuple[object, ...]]
Sync = psycopg.Connection[tuple[object, ...]]


async def tell(
    session: AsyncSession, connection: AsyncConnection, raw: Async, blocking: Session, other: Sync
) -> None:
    await publish(session, EVENT)
    await publish(connection, EVENT, Tombstone(Delivered, key="p"))
    await publish(raw, EVENT)
    await publish(blocking, EVENT)  # expect: arg-type
    await publish(other, EVENT)  # expect: arg-type
    await service.start(raw, order, Place(id="o"))  # expect: arg-type


def tell_blocking(
    session: Session, connection: Connection, raw: Sync, awaiting: AsyncSession, other: Async
) -> None:
    publish_sync(session, EVENT)
    publish_sync(connection, EVENT, Tombstone(Delivered, key="p"))
    publish_sync(raw, EVENT)
    publish_sync(awaiting, EVENT)  # expect: arg-type
    publish_sync(other, EVENT)  # expect: arg-type
    publish_sync(EVENT)  # expect: arg-type
    publish(session, EVENT)  # expect: arg-type, unused-coroutine
