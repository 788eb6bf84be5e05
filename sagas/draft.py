"""A decision in the making: the run and its rows as they are to be, and everything that leaves with them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from ..schemas.states import (
    FINAL_RUN_STATES,
    FINAL_STEP_STATES,
    HELD_STEP_STATES,
    RunState,
    StepKind,
    StepState,
)
from . import retry, standing, timing
from .changing import made, replace
from .definition import Definition
from .model import (
    Answer,
    CloseWait,
    Decision,
    Entry,
    Json,
    Limits,
    LockAct,
    OpenWait,
    Run,
    Said,
    Seek,
    Send,
    Settled,
    Step,
    Work,
)
from .transitions import Cause, check_run, check_step, fit_together

_PERSONS_RUN = frozenset({RunState.MANUAL_REQUIRED, RunState.COMPENSATION_FAILED})


@dataclass
class Draft:
    """Collects changes; every change of a state passes the table of legal transitions.

    Attributes:
        cause: Who makes this decision.
        dice: Uniform in [0, 1), for jitter.
    """

    definition: Definition
    run: Run
    now: datetime
    cause: Cause
    dice: float
    limits: Limits
    changed: dict[tuple[str, str], Step] = field(default_factory=dict)
    history: list[Entry] = field(default_factory=list)
    work: list[Work] = field(default_factory=list)
    sends: list[Send] = field(default_factory=list)
    seeks: list[Seek] = field(default_factory=list)
    opens: list[OpenWait] = field(default_factory=list)
    closes: list[CloseWait] = field(default_factory=list)
    settled: list[Settled] = field(default_factory=list)
    said: list[Said] = field(default_factory=list)
    lock: LockAct | None = None

    def __post_init__(self) -> None:
        #: Rows that no decision can have written are left as they are, and so is their run.
        self._odd = not fit_together(self.run.state, self.run.steps)

    # --- steps ---------------------------------------------------------------------------------------

    def create(
        self, name: str, kind: StepKind, state: StepState, *, wake_at: datetime | None, **values: Any
    ) -> Step:
        """Add a step row; one that is made final has no `wake_at`."""
        check_step(None, state, self.cause)
        if wake_at is None:
            values["finished_at"] = self.now
        step = made(
            Step, name=name, kind=kind, state=state, since=self.now, generation=1, wake_at=wake_at, **values
        )
        return self._put(step)

    def move(self, step: Step, state: StepState, *, wake_at: datetime | None = None, **values: Any) -> Step:
        """Change a row's state; a live state needs `wake_at`, and every new `wake_at` raises the generation.

        The generation of a wait that stays open does not rise: the database knows the wait under it.
        """
        check_step(step.state, state, self.cause)
        final = state in FINAL_STEP_STATES
        assert final == (wake_at is None), (step.name, state, wake_at)
        values.setdefault(
            "generation", step.generation if final or _open_wait(step, state) else step.generation + 1
        )
        if state is not step.state:
            values.setdefault("since", self.now)
            values.setdefault("nudges", 0)
        if state not in HELD_STEP_STATES:
            values["worker"] = None
        if final:
            values["finished_at"] = self.now
        return self._put(replace(step, state=state, wake_at=wake_at, **values))

    def finish(self, step: Step, state: StepState, **values: Any) -> Step:
        """Move a row to a final state and give it its place in the order of completion."""
        self.run = replace(self.run, finish_n=self.run.finish_n + 1)
        return self.move(step, state, finish_no=self.run.finish_n, **values)

    def _put(self, step: Step) -> Step:
        name, iteration = step.name, step.iteration
        self.changed[name, iteration] = step
        steps = list(self.run.steps)
        for n, old in enumerate(steps):
            if old.name == name and old.iteration == iteration:
                steps[n] = step
                break
        else:
            steps.append(step)
        self.run = replace(self.run, steps=tuple(steps))
        return step

    def announce(self, step: Step) -> None:
        """Tell the workers of the step's queue."""
        lane = "compensation" if step.kind is StepKind.UNDO else "work"
        self.work.append(
            Work(step.name, "compensation" if lane == "compensation" else "work", step.queue, step.iteration)
        )

    def first_nudge(self) -> datetime:
        """When freshly announced work is announced again, if nobody has claimed it."""
        return retry.later(self.now, self.limits.nudge)

    def next_nudge(self, step: Step) -> datetime:
        """When the work is announced yet again; doubles."""
        return retry.later(self.now, retry.nudge(self.limits.nudge, self.limits.nudge_cap, step.nudges + 1))

    def reminder(self) -> datetime:
        """When the person is reminded."""
        return retry.later(self.now, self.limits.reminder)

    # --- run -----------------------------------------------------------------------------------------

    @property
    def stopping(self) -> bool:
        """Whether the run goes no longer forward: what fails is not tried again, and nothing new begins."""
        return standing.stopping(self.run)

    def move_run(self, state: RunState, **values: Any) -> None:
        """Change the run's state; `wake_at` follows from it."""
        check_run(self.run.state, state, self.cause)
        self.run = timing.counted(self.definition, self.run, state, self.now)
        if state in FINAL_RUN_STATES:
            self.run = replace(self.run, state=state, wake_at=None, finished_at=self.now, **values)
            self.lock = "leave" if self.run.resource is not None else None
            return
        self.run = replace(self.run, state=state, **values)
        if state in _PERSONS_RUN:
            self.run = replace(self.run, wake_at=self.next_look())
        else:
            self.keep_awake()

    def keep_awake(self) -> None:
        """Set the run's next look when it is missing, passed, or later than its time limit.

        Otherwise leave it, so that the row stays HOT: a look that comes too early costs less than an index entry.
        """
        at, limit = self.run.wake_at, timing.limit(self.definition, self.run)
        if at is None or at <= self.now or (limit is not None and limit[0] < at):
            self.run = replace(self.run, wake_at=self.next_look())

    def next_look(self) -> datetime:
        """When the run is looked at although nothing has happened: its time limit if that is sooner, else the sweep."""
        sweep = retry.later(self.now, self.sweep())
        limit = timing.limit(self.definition, self.run)
        return sweep if limit is None else min(sweep, limit[0])

    def sweep(self) -> timedelta:
        """How long until the run is looked at: daily reminder for a person's states, else the sweep."""
        return self.limits.reminder if self.run.state in _PERSONS_RUN else self.limits.sweep

    # --- what is told --------------------------------------------------------------------------------

    def note(self, event: str, step: Step | None = None, **data: Json) -> None:
        """Add a history row; None values are left out."""
        self.history.append(
            Entry(
                event,
                step=None if step is None else step.name,
                iteration="" if step is None else step.iteration,
                attempt=step.attempt or None if step is not None else None,
                data={name: value for name, value in data.items() if value is not None},
            )
        )

    def stand(self) -> None:
        """Bring the run's state in line with its rows."""
        if self.run.state in FINAL_RUN_STATES or self._odd:
            return
        state = standing.state_of(self.run)
        if state is not self.run.state:
            held = next((step for step in self.run.steps if step.state.value == state.value), None)
            self.move_run(state, code=None if held is None or state not in _PERSONS_RUN else held.code)

    def decision(self, *, claimed: Step | None = None, reason: str = "") -> Decision:
        """Return the change; with a `reason` it is not the one that a person asked for."""
        self.stand()
        return self._answer("changed", reason, claimed)

    def ignored(self, reason: str) -> Decision:
        """Return that nothing changes: the fact is right, but late or repeated."""
        return self._answer("ignored", reason, None)

    def refused(self, reason: str) -> Decision:
        """Return that nothing changes: the fact is illegal in this state."""
        return self._answer("refused", reason, None)

    def _answer(self, answer: Answer, reason: str, claimed: Step | None) -> Decision:
        return Decision(
            answer=answer,
            reason=reason,
            run=replace(self.run, history_n=self.run.history_n + len(self.history))
            if self.history
            else self.run,
            changed=tuple(self.changed.values()),
            history=tuple(self.history),
            work=tuple(self.work),
            sends=tuple(self.sends),
            seeks=tuple(self.seeks),
            opens=tuple(self.opens),
            closes=tuple(self.closes),
            settled=tuple(self.settled),
            said=tuple(self.said),
            claimed=claimed,
            lock=self.lock,
        )


def _open_wait(step: Step, state: StepState) -> bool:
    return step.kind is StepKind.WAIT and state in {
        StepState.WAITING,
        StepState.UNKNOWN,
        StepState.RECONCILING,
    }
