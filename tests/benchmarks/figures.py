"""What is measured, against which floor and stretch, and what is missing where the stretch is not reached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any


@dataclass(frozen=True)
class Figure:
    """One figure.

    Attributes:
        what: In words, with the unit.
        floor: Must hold.
        stretch: Where it is going.
        lower: Whether less is better.
        missing: What the stretch would take, as far as is known.
    """

    what: str
    floor: float
    stretch: float
    lower: bool = False
    missing: str = ""

    def reached(self, value: float, mark: float) -> bool:
        """Whether a value is at a mark or beyond."""
        return value <= mark if self.lower else value >= mark


_CLIENT = "aiokafka copies a request's bytes seven times on their way to the socket; a client that gathers would not"
_DECODE = "half of it is pydantic and the canonical fingerprint; a codec beside JSON would halve that"

_STEP = "half a step's processor time is Python's: reading its run, deciding, writing it"
_ALONE = "a run is read before each of its changes, and a tick of the relay waits up to 5 ms"

FIGURES: Mapping[str, Figure] = {
    "R0": Figure("lost or misordered events, adversarial mix, SIGKILLs", 0, 0, lower=True),
    "R0.repeated": Figure("repeated events per kill, in pages of 3,000 rows", 1, 1, lower=True),
    "R1": Figure("relay drain ÷ raw aiokafka send()", 1.5, 2.2, missing=_CLIENT),
    "R2": Figure("relay drain ÷ raw aiokafka send_batch()", 0.40, 0.65, missing=_CLIENT),
    "R3": Figure("relay drain ÷ naive relay", 4, 8, missing="as R1"),
    "R4": Figure("relay drain with a held snapshot ÷ without", 0.90, 0.97, missing="noise of two drains"),
    "R5": Figure(
        "transactions with publish and a running relay ÷ plain inserts of the two rows",
        0.80,
        0.90,
        missing="the relay's own work shares the processors with the clients",
    ),
    "R6": Figure(
        "insert → consumer at 500/s, p50, ms", 6, 2.9, lower=True, missing="a tick waits up to 5 ms"
    ),
    "R6.p99": Figure(
        "insert → consumer at 500/s, p99, ms", 18, 8, lower=True, missing="a processor for each of the four"
    ),
    "R7": Figure(
        "relay while rows stream in ÷ relay drain",
        0.35,
        0.60,
        missing="writers, database, relay and broker share two processors",
    ),
    "R8": Figure("relay drain ÷ txoutbox drain", 8, 15, missing="as R1"),
    "R8.cpu": Figure("relay, CPU seconds per 100,000 rows", 1, 0.5, lower=True, missing=_CLIENT),
    "R8.rss": Figure(
        "relay, resident memory, MB", 120, 60, lower=True, missing="imports of FastStream and SQLAlchemy"
    ),
    "R9": Figure(
        "SIGKILL of the leader → first record, s beyond the lease",
        1,
        0.2,
        lower=True,
        missing="a standby looks every 0.25 s",
    ),
    "I1": Figure(
        "batch inbox, one statement a message, pipelined ÷ raw getmany", 0.08, 0.20, missing=_DECODE
    ),
    "I2": Figure("set-based inbox ÷ raw getmany", 0.15, 0.35, missing=_DECODE),
    "I3": Figure("batch inbox, one statement a message ÷ one transaction a message", 15, 30, missing="as I1"),
    "S1": Figure("saga steps/s ÷ dbos steps/s, 64 in flight", 8, 18, missing=_STEP),
    "S2": Figure("changes of many runs together ÷ one by one, steps/s", 1.5, 3, missing=_STEP),
    "S3": Figure(
        "commands to a participant and their replies, over Kafka ÷ S1 rate",
        0.3,
        0.7,
        missing="two transactions a command, and two messages through outbox, relay and broker",
    ),
    "S4": Figure("one run alone, five steps, start to end, p50, ms", 10, 5, lower=True, missing=_ALONE),
    "S4.p99": Figure("one run alone, five steps, start to end, p99, ms", 20, 10, lower=True, missing=_ALONE),
    "T1": Figure(
        "timers fired/s ÷ unnest insert rate",
        0.3,
        0.6,
        missing="a timer is found, locked and rewritten besides",
    ),
    "T1.p99": Figure("lateness of timers at 1,000/s, p99, ms", 100, 50, lower=True),
    "G1": Figure("worst rate at many retained rows ÷ the same at 100,000", 0.8, 0.95),
}


def judged(rounds: Mapping[str, Sequence[float]]) -> dict[str, dict[str, Any]]:
    """Return what is written for each figure: median, rounds, floor, stretch and whether they hold."""
    found = {}
    for name, values in rounds.items():
        figure, middle = FIGURES[name], median(values)
        found[name] = {
            "median": middle,
            "rounds": list(values),
            "floor": figure.floor,
            "stretch": figure.stretch,
            "what": figure.what,
            "holds": figure.reached(middle, figure.floor),
            "stretched": figure.reached(middle, figure.stretch),
        }
    return found
