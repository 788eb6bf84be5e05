"""Going on from what the rows say: begin what has become runnable, give up what is not wanted, join, or stop the run.

The rows are all that counts, so it does not matter which branch reports last, and doing it again changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..schemas.states import FINAL_RUN_STATES, RunState, StepKind, StepState
from . import (
    asking,
    children,
    expiring,
    guarding,
    rounds,
    sending,
    standing,
    stopping,
    timers,
    tree,
    undoing,
    waits,
)
from .changing import replace
from .draft import Draft
from .model import Step
from .standing import Standing
from .words import OUTCOME_UNKNOWN

#: How the rows begin that wait without a worker.
_WAITING = {
    StepKind.WAIT: waits.begin,
    StepKind.TIMER: timers.begin,
    StepKind.COMMAND: sending.begin,
    StepKind.APPROVAL: guarding.begin,
    StepKind.CHILD: children.begin,
}

#: How a part stands in which something may begin yet, or is to be given up.
_GOES_ON = frozenset({Standing.OPEN, Standing.LOST})


def go_on(draft: Draft, step: Step) -> None:
    """Go on after a row that is over: forward, or, when the run is stopping, with the undo."""
    if draft.stopping:
        undoing.proceed(draft)
    else:
        advance(draft, after=step)


def go_round(draft: Draft, step: Step) -> bool:
    """End the round of the innermost loop in which a step's work was not good enough, and go on with the next.

    Returns:
        False for a step in no loop, and where the run goes no longer forward.
    """
    loop = rounds.loop_around(draft.definition.flow, step.name)
    if loop is None or draft.stopping:
        return False
    ended = draft.move(step, StepState.FAILED)
    asking.round_failed(draft, loop, ended)
    advance(draft, after=ended)
    return True


def tidy(draft: Draft) -> None:
    """Give up a row that goes on although its part is not wanted any more."""
    if draft.run.state not in FINAL_RUN_STATES and not draft.stopping:
        advance(draft)


def would_stop(draft: Draft, step: Step) -> bool:
    """Whether the run would stop if this row failed for good now."""
    rows = standing.rows_of(draft.run)
    rows[step.name, step.iteration] = replace(step, state=StepState.FAILED)
    return standing.look(draft.definition.flow, rows) in {Standing.FAILED, Standing.LOST}


def advance(draft: Draft, *, after: Step | None = None) -> None:
    """Bring a run that goes forward as far as its rows allow.

    Args:
        after: The row that has just ended, to say why a run stops that has no other reason left.
    """
    flow, walk, rows = draft.definition.flow, _Walk(draft), draft.run.steps
    standing_now = walk.look(flow)
    if standing_now is Standing.OPEN:
        walk.into(flow, "", wanted=True)
        if walk.stopped:
            return
        if draft.run.steps is not rows:
            standing_now = walk.look(flow)
        if standing_now is Standing.OPEN:
            walk.begin()
    if standing_now is Standing.OK:
        part = standing.in_part(draft.run)
        draft.note("run.completed", in_part=part or None)
        draft.move_run(RunState.PARTIALLY_SUCCEEDED if part else RunState.SUCCEEDED, code=None)
    elif standing_now is not Standing.OPEN:
        _stop(draft, after)


def _stop(draft: Draft, after: Step | None) -> None:
    lost = standing.culprit(draft.definition.flow, standing.rows_of(draft.run)) or after
    node = None if lost is None else draft.definition.node(lost.name)
    code = (lost.code if lost is not None else None) or OUTCOME_UNKNOWN
    stopping.stop(draft, code, undo=node is None or node.undoes_after(code))


@dataclass
class _Walk:
    """One way through the tree; what may begin does so at its end, when all choices and rounds have been asked.

    Until then an answer may still show that it is not wanted.

    Attributes:
        stopped: The run's time was over, so nothing more begins.
        found: What may begin, by name and round.
    """

    draft: Draft
    stopped: bool = False
    found: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._steps: tuple[Step, ...] | None = None
        self._rows: dict[tuple[str, str], Step] = {}

    def look(self, part: tree.Part, path: str = "") -> Standing:
        """Say how a part stands now."""
        return standing.look(part, self.rows(), path)

    def rows(self) -> dict[tuple[str, str], Step]:
        """Return the rows as they are now."""
        if self._steps is not self.draft.run.steps:
            self._steps, self._rows = self.draft.run.steps, standing.rows_of(self.draft.run)
        return self._rows

    def through(self, part: tree.Part, path: str, *, wanted: bool) -> None:
        """Find what may begin in an open part; where it is not `wanted`, give up what has begun."""
        if not self.stopped and self.look(part, path) in _GOES_ON:
            self.into(part, path, wanted=wanted)

    def into(self, part: tree.Part, path: str, *, wanted: bool) -> None:
        """Do what `through` says, of a part that is known to be open."""
        match part:
            case tree.Leaf(name=name):
                self._leaf(name, path, wanted)
            case tree.Series(parts=parts):
                self._series(parts, path, wanted)
            case tree.Parallel():
                self._parallel(part, path, wanted)
            case tree.Choice():
                self._choice(part, path, wanted)
            case tree.Loop():
                self._loop(part, path, wanted)

    def _series(self, parts: tuple[tree.Part, ...], path: str, wanted: bool) -> None:
        for one in parts:
            stands = self.look(one, path)
            if stands in _GOES_ON and not self.stopped:
                self.into(one, path, wanted=wanted)
                stands = self.look(one, path)
            if stands is not Standing.OK:
                return

    def _parallel(self, part: tree.Parallel, path: str, wanted: bool) -> None:
        kept = wanted and not standing.gives_up(part, self.rows(), path)
        earlier = len(self.found)
        for branch in part.branches:
            self.through(branch, path, wanted=kept)
        if kept and standing.gives_up(part, self.rows(), path):
            del self.found[earlier:]
            if self.look(self.draft.definition.flow, "") not in {Standing.FAILED, Standing.LOST}:
                self._parallel(part, path, wanted)  # where the run stops, what is given up does not say why

    def _leaf(self, name: str, path: str, wanted: bool) -> None:
        row = self.draft.run.step(name, path)
        if row is not None:
            if not wanted:
                stopping.give_up(self.draft, row)
        elif wanted and not self._expired():
            self.found.append((name, path))

    def _expired(self) -> bool:
        self.stopped = self.stopped or expiring.expired(self.draft)
        return self.stopped

    def begin(self) -> None:
        """Begin what was found."""
        for name, path in self.found:
            self._begin(name, path)

    def _begin(self, name: str, path: str) -> None:
        draft = self.draft
        node = draft.definition.node(name)
        assert node is not None, "a leaf stands for a node"
        waiting = _WAITING.get(node.kind)
        if waiting is not None:
            waiting(draft, node, path)
            return
        at, queue = draft.first_nudge(), node.queue
        draft.announce(
            draft.create(name, node.kind, StepState.PENDING, wake_at=at, iteration=path, queue=queue)
        )

    def _choice(self, part: tree.Choice, path: str, wanted: bool) -> None:
        row = self.draft.run.step(part.name, path)
        if row is None:
            if not wanted or self._expired():
                return
            row = asking.choose(self.draft, part, path)
        if row.state is StepState.SUCCEEDED:
            self.through(standing.way_of(part, row), path, wanted=wanted)
        elif not wanted:
            stopping.give_up(self.draft, row)

    def _loop(self, part: tree.Loop, path: str, wanted: bool) -> None:
        number, row = standing.round_of(part, self.rows(), path)
        inside = tree.under(path, number)
        self.through(part.body, inside, wanted=wanted and row is None)
        if row is not None and not wanted:
            stopping.give_up(self.draft, row)
        elif row is None and wanted and self.look(part.body, inside) is Standing.OK and not self._expired():
            row = asking.end_round(self.draft, part, path, number)
        if row is not None and wanted and standing.round_of(part, self.rows(), path)[0] > number:
            self._loop(part, path, wanted)
