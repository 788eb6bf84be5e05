"""Every metric that there is; docs/metrics.md is this table in words, and a test holds both and the endpoint equal."""

from __future__ import annotations

from .metrics import Metric

_RUN = ("service", "saga")
_STEP = ("service", "saga", "step")
_QUICK = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1_800, 3_600, 21_600, 86_400)
_LONG = (0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3_600, 21_600, 86_400, 259_200, 604_800)

# counted where it happens

STARTED = Metric(
    "milepost.runs.started", "counter", _RUN, "Runs on which the engine has acted for the first time."
)
ENDED = Metric(
    "milepost.runs.ended",
    "counter",
    (*_RUN, "severity", "state"),
    "Runs that have ended, by how: SUCCEEDED, PARTIALLY_SUCCEEDED, FAILED, COMPENSATED, CANCELLED, EXPIRED.",
)
RUN_DURATION = Metric(
    "milepost.run.duration",
    "histogram",
    (*_RUN, "state"),
    "From the start of a run to its end, by how it ended.",
    "s",
    _LONG,
)
COMPENSATING = Metric(
    "milepost.runs.compensating", "counter", _RUN, "Runs that began to undo what they had done."
)
MANUAL = Metric(
    "milepost.runs.manual",
    "counter",
    (*_RUN, "severity", "state"),
    "Times that a run came to stand in front of a person: MANUAL_REQUIRED, COMPENSATION_FAILED.",
)
REPAIR = Metric(
    "milepost.run.repair.duration",
    "histogram",
    _RUN,
    "How long a run stood in front of a person until it went on or ended; its mean is the MTTR.",
    "s",
    _LONG,
)
TRIES = Metric("milepost.step.tries", "counter", _STEP, "Tries of steps and undos that began.")
STEPS = Metric(
    "milepost.steps.ended", "counter", (*_STEP, "state"), "Steps, waits and undos that have ended, by how."
)
STEP_DURATION = Metric(
    "milepost.step.duration",
    "histogram",
    _STEP,
    "From the first try of a step, or since a wait began, to its end.",
    "s",
    _QUICK,
)
RETRIES = Metric("milepost.step.retries", "counter", _STEP, "Tries that failed and will be made again.")
ERRORS = Metric(
    "milepost.step.errors",
    "counter",
    (*_STEP, "code"),
    "Tries that failed, by code: the same one again and again is one cause.",
)
UNKNOWN = Metric(
    "milepost.steps.unknown", "counter", _STEP, "Times that nobody knew whether a call had taken effect."
)
RECONCILED = Metric(
    "milepost.reconciliations",
    "counter",
    (*_RUN, "decision"),
    "What probes and recovery have looked at, by what followed: MARK_AS_SUCCESS, RETRY, ESCALATED, PROPOSED …",
)
ACTS = Metric(
    "milepost.requests.answered",
    "counter",
    ("service", "act", "outcome"),
    "What persons asked for and was answered: accepted or refused.",
)
SENT = Metric("milepost.relay.sent", "counter", (), "Events that Kafka has acknowledged.")
UNSENDABLE = Metric(
    "milepost.relay.parked", "counter", ("code",), "Events that could not be sent and were put aside."
)
EVENTS = Metric(
    "milepost.consumer.events",
    "counter",
    ("consumer", "outcome"),
    "Records that consumers have dealt with: applied, duplicate, parked (a dead letter), passed (not theirs).",
)
LETTERS = Metric("milepost.dead.letters", "counter", ("consumer", "code"), "New dead letters, by code.")

# observed in this process

WELL = Metric(
    "milepost.part.well",
    "gauge",
    ("service", "part"),
    "1 while a part of this process makes progress, else 0.",
)
STUCK = Metric(
    "milepost.part.stuck",
    "gauge",
    ("service", "part"),
    "How long a reader of this process has been without progress.",
    "s",
)
LAG = Metric(
    "milepost.consumer.lag",
    "gauge",
    ("service", "part", "topic"),
    "Records that this process's readers are behind the ends of their partitions.",
)

# observed in the database

ROWS = Metric(
    "milepost.live.rows",
    "gauge",
    ("what", "service", "saga", "severity"),
    "Rows that wait for somebody, counted up to 2,000 of a kind.",
)
AGE = Metric(
    "milepost.live.age",
    "gauge",
    ("what", "service", "saga", "severity"),
    "Age of the oldest row that waits for somebody; 0 where there is none.",
    "s",
)
RUNS = Metric(
    "milepost.runs.live",
    "gauge",
    (*_RUN, "state"),
    "Runs that have not ended, or not well, by state; of each state the oldest 5,000 are counted.",
)
WORKERS = Metric("milepost.workers", "gauge", ("service",), "Worker processes that hold their lease.")
RESUMED = Metric(
    "milepost.runs.resumed",
    "gauge",
    (*_RUN, "outcome"),
    "Runs that a person let go on in the last day: well, open, again (in front of a person), failed.",
)
PARTITIONS = Metric(
    "milepost.partitions.days",
    "gauge",
    ("table",),
    "Days for which a table has partitions; below 0 writing fails.",
)
DATABASE = Metric(
    "milepost.database.up", "gauge", (), "1 when the last look at the database was answered, else 0."
)
LOOK = Metric("milepost.look.duration", "gauge", (), "How long the last look at the database took.", "s")

CATALOG: tuple[Metric, ...] = (
    STARTED,
    ENDED,
    RUN_DURATION,
    COMPENSATING,
    MANUAL,
    REPAIR,
    TRIES,
    STEPS,
    STEP_DURATION,
    RETRIES,
    ERRORS,
    UNKNOWN,
    RECONCILED,
    ACTS,
    SENT,
    UNSENDABLE,
    EVENTS,
    LETTERS,
    WELL,
    STUCK,
    LAG,
    ROWS,
    AGE,
    RUNS,
    WORKERS,
    RESUMED,
    PARTITIONS,
    DATABASE,
    LOOK,
)
