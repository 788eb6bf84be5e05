"""`service.replay`: a service's consumers, made ready for a replay."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ..inbox.consumer import Consumer
from ..inbox.intake import Intake
from ..inbox.store import InboxStore
from ..schemas.errors import UsageError
from ..streams.database import Database
from .dead_topic import reporter
from .judging import judge_of
from .publishing import publish_in
from .replay import Replayer
from .replay_run import Tell, tell_nobody
from .signals import signal_consumer

if TYPE_CHECKING:
    from .app import Milepost


def consumers_of(service: Milepost) -> Mapping[str, Consumer]:
    """Return the consumers that a service can replay for, by name: its own, and that of its awaited events."""
    signals = signal_consumer(service)
    return service.consumers | ({signals.name: signals} if signals.topics else {})


def _intakes(service: Milepost, database: Database) -> Callable[[Consumer, InboxStore], Intake]:
    """Return what makes a consumer's intake as `serve` does, but on a given inbox."""

    def made(consumer: Consumer, store: InboxStore) -> Intake:
        return Intake(
            consumer,
            database,
            publish_in,
            clock=service.clock,
            dice=service.randomness,
            judge=judge_of(service),
            report=reporter(service, consumer.name),
            store=store,
        )

    return made


def replayer(
    service: Milepost,
    database: Database,
    name: str,
    *,
    report: Path | None = None,
    tell: Tell = tell_nobody,
    by: str = "",
    reason: str = "service.replay",
) -> Replayer:
    """Return what replays for one of a service's consumers.

    Args:
        database: Open.
        by: Who has events applied, for the audit; the service itself when empty.
        reason: And why.

    Raises:
        UsageError: MP490 when the service has no such consumer.
    """
    known = consumers_of(service)
    if name not in known:
        raise UsageError(
            "MP490",
            f"replay: service {service.name} has no consumer {name}. It has: {', '.join(sorted(known)) or 'none'}.",
        )

    return Replayer(
        database=database,
        ids=service.ids,
        name=name,
        consumer=known[name],
        intake=_intakes(service, database),
        tell=tell,
        report=report,
        by=by or service.name,
        reason=reason,
    )
