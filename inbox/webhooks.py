"""The table of webhooks: stored once per (tenant, provider, event id), worked on under a lease and a fence."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

from ..streams.queries import Queries
from .webhook_model import Claimed, Taken, WebhookRequest, WebhookState, kept_headers

if TYPE_CHECKING:
    import asyncpg
    from asyncpg.pool import PoolConnectionProxy

    Connection: TypeAlias = asyncpg.Connection[Any] | PoolConnectionProxy[Any]


class _Sql(Queries, file="webhooks.sql"):
    insert_webhook: str
    same_body: str
    count_conflict: str
    claim_webhooks: str
    finish_webhook: str
    retry_webhook: str
    release_webhook: str


async def store_webhook(  # noqa: PLR0917 - the columns of the row
    connection: Connection,
    row: UUID,
    service: str,
    request: WebhookRequest,
    event_id: str,
    traceparent: str | None,
) -> Taken:
    """Store a webhook unless its id is there already; another body under the same id is counted, and left out.

    Args:
        connection: In autocommit: the row is durable when this returns.
        row: Id of the new row.
    """
    identity = (request.tenant, request.provider, event_id)
    stored = await connection.fetchval(
        _Sql.insert_webhook,
        row,
        request.tenant,
        service,
        request.provider,
        event_id,
        request.path.replace("\x00", "\ufffd"),
        kept_headers(request.headers),
        request.body,
        request.fingerprint,
        traceparent,
    )
    if stored is not None:
        return Taken.STORED
    if await connection.fetchval(_Sql.same_body, *identity, request.fingerprint) is not False:
        return Taken.REPEATED
    await connection.execute(_Sql.count_conflict, *identity)
    return Taken.CONFLICT


async def claim_webhooks(
    connection: Connection, service: str, providers: Sequence[str], *, most: int, lease: timedelta
) -> list[Claimed]:
    """Take what is due: new ones, those to be tried again, and those whose worker's lease has ended.

    Args:
        providers: Only these; what a process has no `webhook` for is left to one that has.
        most: At most so many.
        lease: How long nobody else takes them.
    """
    rows = await connection.fetch(_Sql.claim_webhooks, service, list(providers), most, lease)
    return [
        Claimed(
            row["id"],
            row["fence"],
            row["attempts"],
            row["event_id"],
            row["traceparent"],
            WebhookRequest(
                row["provider"],
                row["path"],
                json.loads(row["headers"]),
                row["body"],
                row["tenant"],
                row["received_at"],
            ),
        )
        for row in sorted(rows, key=lambda row: (row["received_at"], row["id"]))
    ]


async def finish_webhook(
    connection: Connection,
    claimed: Claimed,
    state: WebhookState,
    *,
    code: str | None = None,
    message: str | None = None,
    published: UUID | None = None,
) -> bool:
    """End one that is PROCESSING under this fence.

    Returns:
        False when somebody else has it by now.
    """
    arguments = (claimed.id, claimed.fence, state.value, code, message, published)
    return await connection.fetchval(_Sql.finish_webhook, *arguments) is not None


async def retry_webhook(
    connection: Connection, claimed: Claimed, *, after: timedelta, code: str, message: str
) -> bool:
    """Put one back, to be taken again after a while; False when somebody else has it by now."""
    arguments = (claimed.id, claimed.fence, after, code, message)
    return await connection.fetchval(_Sql.retry_webhook, *arguments) is not None


async def release_webhook(connection: Connection, claimed: Claimed) -> None:
    """Give one back that was not tried; it is due at once, and the try does not count."""
    await connection.execute(_Sql.release_webhook, claimed.id, claimed.fence)
