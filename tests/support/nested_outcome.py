"""What must hold at the end of a run of a drawn flow: its state, its effects and its undos are what the model says."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from milepost.schemas.options import Then
from milepost.schemas.states import RunState, StepKind, StepState

from tests.support.nested_drawn import Leaf, Seq, leaves
from tests.support.nested_model import Key, fated


class Row(Protocol):
    """The row of a leaf at the end."""

    @property
    def kind(self) -> StepKind: ...
    @property
    def state(self) -> StepState: ...
    @property
    def doubt(self) -> bool: ...


@dataclass(frozen=True)
class Outcome:
    """The end of a run.

    Attributes:
        rows: Rows of leaves.
        effects: How often each took effect.
        undone: What was undone, in order.
        order: Leaves that succeeded, in order of completion.
        told: A person has decided something that the flow leaves to persons.
    """

    tree: Seq
    state: RunState
    rows: Mapping[Key, Row]
    effects: Mapping[Key, int]
    undone: Sequence[Key]
    order: Sequence[Key]
    told: bool = False

    def check(self, reasons: Collection[Then] | None) -> None:
        """Assert that state, effects and undos are what the model says.

        Args:
            reasons: What may follow by the failures that stopped the run; None where nothing did.
        """
        self.check_effects()
        if reasons is None:
            assert (self.state, self.undone) == (RunState.SUCCEEDED, []), f"{self.state} {self.undone}"
        else:
            leaf = {one.name: one for one in leaves(self.tree)}
            wanted = [self._stopped(leaf, reason) for reason in reasons]
            found = (self.state, self.undone)
            assert found in wanted, f"{found}, not {wanted}"
        self._check_fate()

    def check_effects(self) -> None:
        """Assert that what the rows say of effects is so."""
        twice = {key: n for key, n in self.effects.items() if n > 1}
        assert not twice, f"more than one effect of one key: {twice}"
        for key, row in self.rows.items():
            happened, outside = self.effects.get(key, 0), row.kind not in {StepKind.WAIT, StepKind.TIMER}
            if row.state is StepState.SUCCEEDED and outside:
                assert happened == 1, f"{key} says SUCCEEDED without its effect"
            if row.state in {StepState.FAILED, StepState.CANCELLED} and not row.doubt:
                assert happened == 0, f"{key} says {row.state} without doubt, and took effect"

    def _stopped(self, leaf: Mapping[str, Leaf], reason: Then) -> tuple[RunState, list[Key]]:
        """Return the end of a run that stopped for a reason: its state, and what is undone in which order."""
        if reason is Then.CANCEL:
            return RunState.CANCELLED, []
        doubted = [
            key
            for key, row in self.rows.items()
            if row.state in {StepState.FAILED, StepState.SKIPPED}
            and row.doubt
            and leaf[key[0]].undo == "blind"
        ]
        finished = [
            key
            for key in reversed(self.order)
            if leaf[key[0]].undo != "none" and leaf[key[0]].kind in {"step", "command"}
        ]
        undone = [] if reason is Then.FAIL else doubted + finished
        return RunState.COMPENSATED if undone else RunState.FAILED, undone

    def _check_fate(self) -> None:
        """Where no person and no race decides, the end follows from what the other sides would do."""
        fate = None if self.told else fated(self.tree)
        if fate is None:
            return
        if not fate.ok:
            assert self.state in {RunState.FAILED, RunState.COMPENSATED}, f"{self.state}"
            return
        assert self.state is RunState.SUCCEEDED, f"{self.state}, but nothing could stop it"
        effects = {key for key, n in self.effects.items() if n}
        assert fate.effects is None or effects == fate.effects, f"{effects}, not {set(fate.effects)}"
