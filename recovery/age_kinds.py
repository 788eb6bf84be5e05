"""How old what waits may become before somebody is told: one table for `milepost doctor`, the worklist and the alerts.

Pure. What is seen early costs a look; what is seen late costs an order. So everything shows within ten seconds where
the workflow is not of severity LOW, and what differs by severity is when it is an error, which wakes people.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..schemas.states import Risk
from .age_bounds import Bounds, rising, same
from .model import Drift

_S, _M, _H, _D = 1.0, 60.0, 3_600.0, 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of row that waits for somebody.

    Attributes:
        what: Its name, in metrics, alerts and the command line.
        table: Where the rows lie.
        words: What one such row is, for people: "step that nobody has claimed".
        means: What it means when it grows old.
        fix: What to do then.
        bounds: By severity of the workflow; where rows belong to none, those of `severity`.
        severity: Of rows that belong to no workflow.
        runbook: The drift whose runbook goes through it; None where `fix` is all there is to say.
        listed: Whether it is put on the worklist; what stands in front of a person anyway is there by itself.
    """

    what: str
    table: str
    words: str
    means: str
    fix: str
    bounds: Mapping[Risk, Bounds]
    runbook: Drift | None = None
    severity: Risk = Risk.HIGH
    listed: bool = True


_PROVIDER = "`milepost runs show RUN --history`; see whether the other side answers."
_SERVE = "Start `milepost serve` with all roles for that service."

KINDS: Mapping[str, Kind] = {
    kind.what: kind
    for kind in (
        Kind(
            what="step_pending",
            table="step",
            words="step that nobody has claimed",
            means="its message was lost, no worker serves its queue, or all are busy",
            fix="See that a process with the role worker serves its queue; a lost message is sent again by itself.",
            bounds=rising((5, _M), (5, 5 * _M), (5, 15 * _M), (_M, _H)),
            runbook=Drift.NOT_TOLD,
        ),
        Kind(
            what="undo_pending",
            table="step",
            words="undo that nobody has claimed",
            means="no compensator serves its queue, or all are busy",
            fix="See that a process with the role compensator serves its queue.",
            bounds=rising((5, _M), (5, 5 * _M), (5, 15 * _M), (_M, _H)),
            runbook=Drift.UNDO_STOPPED,
        ),
        Kind(
            what="step_running",
            table="step",
            words="call that has taken more than a twentieth of its time",
            means="the other side does not answer, or is slow",
            fix=_PROVIDER,
            bounds=rising((5, _M), (5, 5 * _M), (5, 30 * _M), (_M, 6 * _H)),
        ),
        Kind(
            what="step_retry",
            table="step",
            words="step that fails and is tried again",
            means="the other side refuses or is away; the age counts from its first try",
            fix=_PROVIDER,
            bounds=rising((5, 5 * _M), (5, 15 * _M), (5, _H), (_M, _D)),
        ),
        Kind(
            what="step_unknown",
            table="step",
            words="step whose outcome nobody knows",
            means="a probe settles it, else a person is asked",
            fix="See why no probe settles it: `milepost reconcile RUN` asks now, and shows the answer.",
            bounds=rising((0, 5 * _M), (0, 15 * _M), (0, _H), (_M, _D)),
            runbook=Drift.UNKNOWN,
        ),
        Kind(
            what="step_stale",
            table="step",
            words="step held by a process that is gone",
            means="the lease of whoever held it is over, and nobody has taken it on yet",
            fix="See that a process with the role waker runs for that service, with the run's version of its saga.",
            bounds=rising((0, _M), (0, 2 * _M), (0, 5 * _M), (_M, _H)),
            runbook=Drift.WORKER_LOST,
        ),
        Kind(
            what="step_person",
            table="step",
            words="step that waits for a person",
            means="nothing goes on by itself",
            fix="`milepost worklist`, then decide: docs/acts.md.",
            bounds=rising((0, 15 * _M), (0, _H), (0, 8 * _H), (0, 2 * _D)),
            listed=False,
        ),
        Kind(
            what="undo_failed",
            table="step",
            words="undo that failed for good",
            means="something is half done outside",
            fix="Treat it as an incident: `milepost worklist --kind undo`.",
            bounds=rising((0, 0), (0, 5 * _M), (0, 15 * _M), (0, _H)),
            runbook=Drift.UNDO_STOPPED,
            listed=False,
        ),
        Kind(
            what="approval",
            table="step",
            words="approval that was not given",
            means="the run waits for a person's yes or no",
            fix="`milepost worklist --kind approval`, then approve or reject.",
            bounds=rising((_H, _D), (4 * _H, 2 * _D), (_D, 7 * _D), (7 * _D, 30 * _D)),
            listed=False,
        ),
        Kind(
            what="due",
            table="step",
            words="row that should have been looked at",
            means="no waker works for its service",
            fix="Start a process of that service with the role waker: `milepost serve`.",
            bounds=same(3, _M),
        ),
        Kind(
            what="worker",
            table="worker",
            words="worker process that has gone silent",
            means="it was killed, is frozen, or cannot reach the database; its lease still holds back its steps",
            fix="See what became of the process; when its lease ends, its steps are settled by others.",
            bounds=same(6, 25),
            runbook=Drift.WORKER_LOST,
        ),
        Kind(
            what="consumer",
            table="reader",
            words="process that reads events and has gone silent",
            means="it was killed, is frozen, or cannot reach the database; where no other one reads, nobody does",
            fix="See what became of it; where no other reads, start one: `milepost serve --roles consumers,signals`.",
            bounds=same(6, 25),
            runbook=Drift.WORKER_LOST,
        ),
        Kind(
            what="outbox",
            table="outbox",
            words="committed event that was not sent",
            means="no relay runs, Kafka is away, or the relay is stuck",
            fix="Start one: `milepost serve --roles relay`; see the relay's health and Kafka.",
            bounds=same(5, _M),
            runbook=Drift.OUTBOX_BEHIND,
            severity=Risk.CRITICAL,
        ),
        Kind(
            what="outbox_parked",
            table="dead_letter",
            words="committed event that could not be sent",
            means="its topic is missing or denied, or the broker refuses the record",
            fix="`milepost dead list --consumer relay`; mend the cause, then `milepost outbox unpark`.",
            bounds=same(0, 5 * _M),
            runbook=Drift.OUTBOX_PARKED,
        ),
        Kind(
            what="dead_letter",
            table="dead_letter",
            words="event that a consumer did not apply",
            means="its handler failed, or it is no event for the consumer",
            fix="`milepost dead list`; mend the cause, then `milepost dead redrive` or `milepost dead ignore`.",
            bounds=same(0, _H),
            runbook=Drift.LETTER_OPEN,
        ),
        Kind(
            what="hold",
            table="hold",
            words="key that is held",
            means="later events of the key wait behind one that was not applied or sent",
            fix="`milepost dead list`; redrive or ignore the first letter of the key.",
            bounds=same(0, _H),
            runbook=Drift.KEY_HELD,
        ),
        Kind(
            what="signal_unmatched",
            table="signal",
            words="event that no run waits for",
            means="it came for a key that nobody has, or before its wait; it expires by itself",
            fix="`milepost signals list --unmatched`; compare its key with the run's.",
            bounds=same(_H, _D),
            severity=Risk.MEDIUM,
        ),
        Kind(
            what="wait",
            table="wait",
            words="wait for an event",
            means="whoever should tell has not told",
            fix="`milepost runs show RUN`; ask the other side.",
            bounds=rising((_D, 7 * _D), (3 * _D, 14 * _D), (7 * _D, 30 * _D), (30 * _D, 90 * _D)),
            runbook=Drift.WAIT_OLD,
        ),
        Kind(
            what="request",
            table="request",
            words="act of a person that was not carried out",
            means="no process with the role orchestrator and the run's version of its saga runs",
            fix="Start `milepost serve` with the role orchestrator for that service.",
            bounds=same(5, _M),
        ),
        Kind(
            what="confirm",
            table="request",
            words="act that waits for a second person",
            means="nothing is done until somebody else confirms it or declines it",
            fix="`milepost worklist --kind confirm`, then `milepost confirm` or `milepost decline`.",
            bounds=rising((5 * _M, _H), (15 * _M, 4 * _H), (_H, _D), (_D, 7 * _D)),
            listed=False,
        ),
        Kind(
            what="bulk_held",
            table="bulk",
            words="act on many that waits for a second person",
            means="nothing of it is done until somebody else confirms or stops it",
            fix="`milepost bulk list`, then `milepost bulk confirm` or `milepost bulk stop`.",
            bounds=same(5 * _M, _H),
            severity=Risk.CRITICAL,
            listed=False,
        ),
        Kind(
            what="proposal",
            table="proposal",
            words="proposal that nobody has decided",
            means="recovery or an agent would mend something, and may not without a person's yes",
            fix="`milepost proposals list`, then accept or reject it.",
            bounds=same(15 * _M, _D),
        ),
        Kind(
            what="resume_check",
            table="resume_check",
            words="look before going on that nobody has done",
            means="no process with the role worker does it",
            fix=_SERVE,
            bounds=same(30, 5 * _M),
        ),
        Kind(
            what="handover",
            table="handover",
            words="message that waits for a process with its version",
            means="no live process has the version of the saga that the run is pinned to",
            fix="Start a process that has that version, or move the runs: `milepost runs migrate`.",
            bounds=same(10, _H),
        ),
        Kind(
            what="resource_queue",
            table="resource_queue",
            words="run that waits for a lock",
            means="another run has the resource",
            fix="`milepost runs show RUN` says who has it.",
            bounds=rising((_M, 15 * _M), (5 * _M, _H), (_H, 8 * _H), (8 * _H, 2 * _D)),
            runbook=Drift.LOCK_LEFT,
        ),
        Kind(
            what="operation_unknown",
            table="operation",
            words="operation whose outcome nobody knows",
            means="it is not repeated until somebody knows",
            fix="`milepost operations list --unknown`; look at the other side, then `milepost operations settle`.",
            bounds=same(0, _H),
            runbook=Drift.UNKNOWN,
        ),
        Kind(
            what="webhook",
            table="webhook",
            words="webhook that nobody works on",
            means="no process with the role signals runs for its application",
            fix="Start `milepost serve` with the role signals for the application that declares it.",
            bounds=same(5, _M),
        ),
        Kind(
            what="webhook_failed",
            table="webhook",
            words="webhook that failed",
            means="what it says was not done",
            fix="`milepost webhooks list --state FAILED`; mend the cause, then `milepost webhooks redrive`.",
            bounds=same(0, _H),
        ),
    )
}
