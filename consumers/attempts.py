"""Which claims of a process are under way, have been begun, or were never answered: so that each is begun once.

A claim whose answer was lost may have been committed: the row then says that this process holds a step which it does
not run. That alone proves nothing, for it is true as well of a step that has been run and could not be stored. So a
claim is taken up again only when this process has asked for the very hold that the row shows (lease and fence), has
had no answer, nobody else here waits for an answer about that hold, and none of them has begun it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from ..sagas.model import Decision, Run, Step
from ..schemas.states import HELD_STEP_STATES
from .known import Known


class Changed(Protocol):
    """A change that the database has answered."""

    @property
    def decision(self) -> Decision: ...

    @property
    def known(self) -> Known | None: ...


@dataclass(frozen=True, slots=True)
class Hold:
    """A row as a claim leaves it: of all claims that ask for the same hold, one at most is committed."""

    run: UUID
    step: str
    iteration: str
    worker: UUID | None
    fence: int

    @classmethod
    def of(cls, run: UUID, step: Step) -> Hold:
        """Return the hold that a claimed row shows."""
        return cls(run, step.name, step.iteration, step.worker, step.fence)


@dataclass(frozen=True, slots=True)
class Claimed:
    """A step row that this process holds.

    Attributes:
        asked_at: When the claim was decided, by the process's clock for elapsed time.
        known: The run as the claim has left it, where it need not be read again.
    """

    run: Run
    step: Step
    asked_at: float
    known: Known | None = None


class Attempts:
    """What one worker asks the database about runs, as far as steps may be claimed by it.

    Args:
        held: Whether this process's lease still holds under an id.
        monotonic: The clock for elapsed time.
        within: Seconds after which what was claimed is not begun any more: it would end after its hard timeout.
    """

    def __init__(
        self, held: Callable[[UUID | None], bool], monotonic: Callable[[], float], within: float
    ) -> None:
        self._held = held
        self._monotonic = monotonic
        self._within = within
        self._under_way: dict[UUID, set[Attempt]] = {}
        self._begun: dict[UUID, set[Hold]] = {}
        self._lost: dict[Hold, float] = {}

    def attempt(self, run: UUID) -> Attempt:
        """Return a context in which something is asked about a run."""
        return Attempt(self, run)

    def enter(self, attempt: Attempt) -> None:
        """Say that something is asked."""
        self._under_way.setdefault(attempt.run, set()).add(attempt)

    def leave(self, attempt: Attempt) -> None:
        """Say that it is asked no more."""
        others = self._under_way[attempt.run]
        others.discard(attempt)
        if not others:
            # Only who asked while it was not begun yet could still take it for lost.
            del self._under_way[attempt.run]
            self._begun.pop(attempt.run, None)

    def late(self, asked_at: float) -> bool:
        """Whether it is too late to begin what was claimed then."""
        return self._monotonic() - asked_at >= self._within

    def now(self) -> float:
        """Return the present moment, for `late`."""
        return self._monotonic()

    def begin(self, hold: Hold) -> None:
        """Say that somebody runs what is held."""
        self._lost.pop(hold, None)
        self._begun.setdefault(hold.run, set()).add(hold)

    def lose(self, hold: Hold, asked_at: float) -> None:
        """Say that nobody knows whether a claim was stored."""
        self._lost = {lost: at for lost, at in self._lost.items() if not self.late(at)}
        if hold not in self._begun.get(hold.run, ()):
            self._lost[hold] = asked_at

    def take_up(self, hold: Hold, by: Attempt) -> float | None:
        """Begin a lost claim whose row has been seen; returns when it was asked for, None when it is not lost."""
        asked_at = self._lost.get(hold)
        if asked_at is None or self.late(asked_at) or not self._held(hold.worker):
            return None
        if any(other.asked == hold for other in self._under_way.get(hold.run, ()) if other is not by):
            return None
        self.begin(hold)
        return asked_at

    def put_back(self, hold: Hold, asked_at: float) -> None:
        """Say that a claim which was taken up is not begun after all."""
        self._begun.get(hold.run, set()).discard(hold)
        self._lost[hold] = asked_at


class Attempt:
    """One change of a run, asked for until the database has answered.

    As a context it is under way; what has no answer when an exception comes is remembered.

    Attributes:
        asked: The hold that it would get by what was decided last, while that has no answer.
    """

    def __init__(self, attempts: Attempts, run: UUID) -> None:
        self._attempts = attempts
        self.run = run
        self._asked_at = 0.0
        self._recovered: Claimed | None = None
        self.asked: Hold | None = None

    def __enter__(self) -> Attempt:
        self._attempts.enter(self)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self.unanswered()
        self._attempts.leave(self)

    def anew(self) -> None:
        """It is decided anew: of what was decided before, nothing is stored."""
        self.asked = None
        if self._recovered is not None:
            was, self._recovered = self._recovered, None
            self._attempts.put_back(Hold.of(was.run.id, was.step), was.asked_at)

    def asks(self, hold: Hold) -> None:
        """It was decided to claim this."""
        self.asked, self._asked_at = hold, self._attempts.now()

    def recover(self, run: Run, *steps: Step) -> bool:
        """Take up the first of these rows whose claim was stored without an answer; whether there is one."""
        for step in steps:
            hold = Hold.of(run.id, step)
            asked_at = self._attempts.take_up(hold, self) if step.state in HELD_STEP_STATES else None
            if asked_at is not None:
                self._recovered = Claimed(run, step, asked_at)
                return True
        return False

    def answered(self, change: Changed | None) -> Claimed | None:
        """Take the database's answer; returns what this process now holds by it, and has to begin."""
        step = None if change is None else change.decision.claimed
        recovered, self._recovered, self.asked = self._recovered, None, None
        if change is None or step is None:
            return recovered
        run = change.decision.run
        self._attempts.begin(Hold.of(run.id, step))
        return Claimed(run, step, self._asked_at, change.known)

    def unanswered(self) -> None:
        """Nobody knows what became of what was decided last."""
        asked, asked_at = self.asked, self._asked_at
        self.anew()
        if asked is not None:
            self._attempts.lose(asked, asked_at)
