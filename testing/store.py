"""The kit's named statements."""

from __future__ import annotations

from ..streams.queries import Queries


class Setup(Queries, file="setup.sql"):
    """What a kit's database has beside the schema."""

    install: str


class Sql(Queries):
    """What the kit asks."""

    set_clock: str
    current_database: str
    kit_databases: str
    drop_statement: str
    new_outbox_rows: str
    published: str
    run_state: str
    passed_run: str
    passed_step: str
    step_result: str
    sent_command: str
    open_question: str
    is_held: str
    next_due: str
    next_delay: str
    timeline_runs: str
    timeline_run: str
    timeline_steps: str
    timeline_history: str
    dead_letters: str
