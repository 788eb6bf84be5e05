"""What is stored of requests when they are carried out, and of what persons say to a question."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import asyncpg

from ..sagas.model import Run as SagaRun
from ..sagas.model import Said
from ..schemas.ids import Ids
from ..streams.queries import Queries


class Sql(Queries, file="requests.sql"):
    """Queries of carrying out."""

    open_requests: str
    take_request: str
    answer_request: str
    hold_request: str
    insert_approvals: str


async def keep_said(
    connection: asyncpg.Connection[Any], run: SagaRun, said: Sequence[Said], ids: Ids
) -> None:
    """Keep who approved and who rejected, in the transaction of the decision.

    A person counts once for a question, which the table holds too.
    """
    await connection.executemany(
        Sql.insert_approvals,
        [
            (
                *(ids.new(), run.tenant, run.id, one.step, one.iteration, one.generation, one.hash),
                *(one.by, list(one.roles), "APPROVED" if one.approved else "REJECTED", one.reason),
            )
            for one in said
        ],
    )
