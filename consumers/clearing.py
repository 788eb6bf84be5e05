"""The upkeep role's part that clears the store of artifacts: objects whose time is over go with their rows."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any

import asyncpg

from ..schemas.artifacts import ArtifactStoreUnavailable
from ..streams.lifecycle import Stop
from .artifact_store import ArtifactStore, open_store
from .retention import Kind, Policy, Retention, Sql

logger = logging.getLogger("milepost")

#: Objects of one transaction: each is a request to a bucket, and as long the rows are locked.
_OBJECTS = 100

#: The instant that counts is when it was made; an artifact of a live run stays, however old.
CLEARED: dict[Kind, Policy] = {
    "artifacts": Policy(lambda s: s.keep_artifacts, Sql.clear_artifacts, rows=_OBJECTS)
}


class Clearing(Retention):
    """Removes old artifacts, object first; a process without `MILEPOST_ARTIFACTS` leaves that to others.

    Whatever ends it in between, the row is still there, and removing an object that is gone is no error. Arguments as
    `Retention`; several processes may do it at once.
    """

    @property
    def name(self) -> str:
        """What health calls it; `--roles upkeep` runs it."""
        return "clearing"

    @property
    def policies(self) -> Mapping[Kind, Policy]:
        """What this part walks."""
        return CLEARED if self._database.settings.artifacts is not None else {}

    async def _walk(
        self, connection: asyncpg.Connection[Any], kind: Kind, policy: Policy, bound: datetime, stop: Stop
    ) -> None:
        store = open_store(self._database.settings)
        assert store is not None, "without a store there is nothing to walk"
        before = self.removed.get(kind, 0)
        try:
            while not stop.asked and await self._resting(
                partial(self._clear, connection, store, bound, policy.rows), stop
            ):
                pass
        except ArtifactStoreUnavailable as error:
            logger.warning("retention: %s They are tried again at the next walk.", error)
        if gone := self.removed.get(kind, 0) - before:
            logger.info("retention: removed %d artifacts made before %s", gone, bound.isoformat())

    async def _clear(
        self, connection: asyncpg.Connection[Any], store: ArtifactStore, bound: datetime, rows: int
    ) -> int:
        async with connection.transaction():
            found = await connection.fetch(Sql.clear_artifacts, bound, rows)
            for row in found:
                await store.delete(row["location"])
        self.removed["artifacts"] = self.removed.get("artifacts", 0) + len(found)
        return len(found)
