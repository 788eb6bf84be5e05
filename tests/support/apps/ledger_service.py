"""The service of `ledger.py`, as `milepost serve` loads it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from milepost import Milepost, Saga, Settings, Transaction
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from tests.support.apps.ledger import PREFIX, SAGAS, Delivered, last_item
from tests.support.apps.ledger_approvals import APPROVALS
from tests.support.apps.ledger_world import World


def made(sagas: Sequence[Saga[Any]]) -> Milepost:
    """Return a service with these sagas, which notes every delivery."""
    settings = Settings.from_env()
    engine = create_async_engine(settings.sqlalchemy_url)
    service = Milepost(PREFIX, sagas=sagas, engine=engine, settings=settings)
    service.provide(World, World.connect)

    @service.consumer(f"{PREFIX}-books").on(Delivered)
    async def note(event: Delivered, tx: Transaction) -> None:
        await tx.session.execute(
            text("INSERT INTO effect (key, what) VALUES (:key, 'noted')"),
            {"key": f"{event.name}:{tx.envelope.id}"},
        )

    return service


service = made([*SAGAS, last_item, *APPROVALS])
