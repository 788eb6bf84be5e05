"""The outbox room's named statements."""

from __future__ import annotations

from ..streams.queries import Queries


class Sql(Queries):
    """Queries of this room."""

    lock_keys: str
    insert_row: str
    insert_rows: str
    known_topics: str
    ensure_lease: str
    take_lease: str
    renew_lease: str
    release_lease: str
    fence: str
    load_position: str
    system_identifier: str
    write_position: str
    trim_positions: str
    force_plan: str
    force_session: str
    begin_read: str
    end_read: str
    read_new: str
    find_floors: str
    read_page: str
    read_plain: str
    oldest_unsent: str
    lease_state: str


class ParkingSql(Queries, file="parking.sql"):
    """Queries about what is put aside."""

    load_holds: str
    park_rows: str
    add_hold: str
    mark_missing: str
    still_denied: str
    topic_letters: str
    move_letters: str
    release_topic: str
    forsaken_topics: str
    asked_topics: str
    due_keys: str
    key_letters: str
    loose_letters: str
    resolve_letters: str
    refuse_letters: str
    release_keys: str
    load_topics: str
    store_topics: str
    forget_topics: str
