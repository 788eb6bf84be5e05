"""What `milepost doctor` makes of the facts it has read. Pure: facts in, findings out."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from .model import Lag
from .output import span

Severity = Literal["ok", "warning", "error"]

#: Partitions must reach at least this many days ahead.
DAYS_AHEAD = 3
#: A committed event that is older and not sent means that no relay works.
OLDEST_UNSENT = timedelta(minutes=1)
#: A row whose time to be looked at is past by more means that nobody looks.
OVERDUE = timedelta(minutes=1)
AGES_TOO_SLOW = (
    "how old everything is was not read in 2 s: the database is overloaded, or its tables need a vacuum."
)
AGES_FIX = "Look at the database: load, locks, old transactions, dead rows of milepost.step."


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: What was looked at; stable.
        severity: "ok", "warning" or "error".
        text: What was seen, and what it means.
        code: The finding's code; None when all is well.
        fix: What to do next; '' when all is well.
    """

    name: str
    severity: Severity
    text: str
    code: str | None = None
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """Rows of one kind that wait for somebody.

    Attributes:
        what: State, or where the letters lie.
        oldest: Age of the oldest.
        first: The oldest run, "order/o-1"; '' where there is none.
    """

    what: str
    amount: int
    oldest: timedelta
    first: str = ""


@dataclass(frozen=True, slots=True)
class Worker:
    """A process that holds its lease."""

    service: str
    name: str
    roles: Sequence[str]


def judge_schema(found: int, known: int) -> Check:
    """Compare the database's schema version with the package's."""
    if found == known:
        return Check("schema", "ok", f"schema version {found}")
    if found > known:
        return Check(
            "schema",
            "error",
            f"the database has schema version {found}, this milepost knows only {known}.",
            "MP620",
            "Install the newer milepost; schemas never go back.",
        )
    return Check(
        "schema",
        "error",
        f"the database has schema version {found}, this milepost needs {known}.",
        "MP620",
        "Run `milepost migrate`.",
    )


def judge_partitions(ahead: Mapping[str, int]) -> Check:
    """See whether every partitioned table has room for the coming days.

    Args:
        ahead: Days ahead by table; -1 when even today's partition is missing.
    """
    table, days = min(ahead.items(), key=lambda item: item[1])
    if days >= DAYS_AHEAD:
        return Check("partitions", "ok", f"partitions: {days} days ahead or more")
    meaning = (
        "has no partition for today, so writing to it fails now"
        if days < 0
        else f"has partitions for today and {days} more days only; after that writing to it fails"
    )
    return Check(
        "partitions",
        "error",
        f"table {table} {meaning}.",
        "MP621",
        "Run `milepost migrate` as the schema's owner now; a process with the role upkeep does it daily.",
    )


def judge_outbox(lag: Lag) -> Check:
    """See whether committed events leave."""
    waits = lag.oldest is not None and lag.oldest > OLDEST_UNSENT
    behind = (
        "nothing waits" if lag.oldest is None else f"{lag.rows} rows wait, the oldest for {span(lag.oldest)}"
    )
    if not lag.leased:
        never = "no relay has ever run here" if lag.epoch is None else "no relay runs now"
        return Check(
            "relay",
            "error" if waits else "warning",
            f"{never}; {behind}. Committed events do not reach Kafka.",
            "MP622",
            "Start one: `milepost serve --roles relay`.",
        )
    if waits:
        return Check(
            "relay",
            "error",
            f"a relay holds the lease (epoch {lag.epoch}), yet {behind}. Kafka may be away, or it is stuck.",
            "MP623",
            "Look at the Kafka line here and at the relay's log.",
        )
    return Check("relay", "ok", f"relay epoch {lag.epoch}; {behind}")


def judge_workers(workers: Sequence[Worker], live_runs: int) -> Check:
    """See whether anybody carries the runs on."""
    if workers:
        names = ", ".join(dict.fromkeys(f"{worker.service} {worker.name}" for worker in workers[:5]))
        more = f" and {len(workers) - 5} more" if len(workers) > 5 else ""
        amount = "1 worker process" if len(workers) == 1 else f"{len(workers)} worker processes"
        return Check("workers", "ok", f"{amount}: {names}{more}")
    return Check(
        "workers",
        "error" if live_runs else "warning",
        f"no worker process holds a lease, and {counted(live_runs, 'run')} "
        f"{'is' if live_runs == 1 else 'are'} open.",
        "MP624",
        "Start one: `milepost serve`.",
    )


def judge_overdue(overdue: Group) -> Check:
    """See whether rows are looked at when they want to be."""
    if not overdue.amount:
        return Check("due", "ok", "nothing is overdue")
    return Check(
        "due",
        "error",
        f"{counted(overdue.amount, 'row')} should have been looked at, the oldest "
        f"({overdue.first}) {span(overdue.oldest)} ago. No waker works for them.",
        "MP625",
        "Start a process of that service with all roles: `milepost serve`.",
    )


_STATES: Mapping[str, tuple[str, Severity, str, str]] = {
    "UNKNOWN": (
        "MP626",
        "warning",
        "nobody knows the outcome yet; probes settle it, else a person is asked.",
        "Nothing, unless it grows old: then see why no probe settles it, `milepost reconcile RUN`.",
    ),
    "MANUAL_REQUIRED": (
        "MP627",
        "warning",
        "a person has to decide; nothing is lost, and nothing goes on by itself.",
        "`milepost worklist`, then `milepost runs show RUN --history`, and decide: docs/acts.md.",
    ),
    "COMPENSATION_FAILED": (
        "MP628",
        "error",
        "an undo failed for good, so something is half done outside.",
        "Treat it as an incident: `milepost worklist --kind undo`; then retry, or undo by hand and mark it.",
    ),
}


def judge_states(groups: Sequence[Group]) -> Iterator[Check]:
    """See which steps wait for a person or for knowledge."""
    for group in groups:
        code, severity, meaning, fix = _STATES[group.what]
        text = f"{counted(group.amount, 'step')} {group.what} (oldest {group.first}, {span(group.oldest)}): {meaning}"
        yield Check(group.what.lower(), severity, text, code, fix)
    if not groups:
        yield Check("steps", "ok", "no step is UNKNOWN, MANUAL_REQUIRED or COMPENSATION_FAILED")


def judge_durability(steps: Sequence[str], *, synchronous: bool) -> Check | None:
    """See whether a fail-over of the database could forget the claim of a step that must not be repeated.

    Args:
        steps: The ASK_FIRST and NEVER steps of the application: "order v1 charge_card".
        synchronous: Whether the server waits for a standby.
    """
    if synchronous or not steps:
        return None
    names = ", ".join(steps[:3]) + (f" and {len(steps) - 3} more" if len(steps) > 3 else "")
    return Check(
        "durability",
        "warning",
        f"{names} must not be repeated blindly, but this server has no synchronous standby: after a fail-over "
        "to an asynchronous one the last claims may be forgotten, and such a call be made twice.",
        "MP630",
        "Set synchronous_standby_names, or accept it where losing the server means restoring it.",
    )


def judge_topics(wanted: Collection[str], present: Collection[str], *, served: bool) -> Check | None:
    """See whether the service's own topics exist.

    Args:
        served: Whether some process of it runs, which should have made them.
    """
    missing = sorted(set(wanted) - set(present))
    if not wanted:
        return None
    if not missing:
        return Check("topics", "ok", f"{counted(len(wanted), 'internal topic')}, none missing")
    return Check(
        "topics",
        "error" if served else "warning",
        f"missing internal {_topics(missing)}.",
        "MP631",
        "`milepost serve` creates them where Kafka lets it; else create them by hand.",
    )


def judge_event_topics(wanted: Collection[str], present: Collection[str], *, create: bool) -> Check | None:
    """See whether the topics exist that the service reads events from.

    Args:
        wanted: Topics of its consumers and of the events that its sagas wait for.
        create: Whether `serve` may create them (MILEPOST_CREATE_TOPICS).
    """
    missing = sorted(set(wanted) - set(present))
    if not wanted:
        return None
    if not missing:
        amount = counted(len(wanted), "topic")
        return Check("event_topics", "ok", f"{amount} that this service reads, none missing")
    text = f"this service reads the {_topics(missing)}, which Kafka does not have"
    if create:
        fix = "Nothing: `milepost serve` creates what is missing, because MILEPOST_CREATE_TOPICS is on."
        return Check("event_topics", "warning", f"{text}.", "MP632", fix)
    fix = (
        "Create what is missing, with as many partitions as you need, or set MILEPOST_CREATE_TOPICS=true for "
        "development."
    )
    return Check("event_topics", "error", f"{text}: `milepost serve` refuses to start.", "MP632", fix)


def counted(amount: int, noun: str) -> str:
    """Write an amount and its noun: "1 topic", "2 topics"."""
    return f"{amount} {noun}" if amount == 1 else f"{amount} {noun}s"


def _topics(names: Sequence[str]) -> str:
    return f"topic{'s' if len(names) != 1 else ''} {', '.join(names)}"
