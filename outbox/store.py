"""The outbox room's named statements."""

from __future__ import annotations

from ..streams.queries import Queries


class Sql(Queries):
    """Queries of this room."""

    lock_keys: str
    insert_rows: str
    known_topics: str
