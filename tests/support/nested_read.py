"""The end of a run of a drawn flow as PostgreSQL and the ledger have it, compared with the model."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from uuid import UUID

from milepost.schemas.options import Then
from milepost.schemas.states import FINAL_RUN_STATES, RunState, StepKind, StepState

from tests.support.apps.ledger_stage import Stage
from tests.support.nested_drawn import Seq
from tests.support.nested_ending import ENDS, NO_LEAVES
from tests.support.nested_model import End, Key, Model
from tests.support.nested_outcome import Outcome

ROWS = (
    "SELECT name, iteration, kind, state, doubt, code, attempt, finish_no FROM milepost.step WHERE run_id = $1"
    " ORDER BY finish_no NULLS LAST"
)
USED_UP = "SELECT step FROM milepost.history WHERE run_id = $1 AND event = 'step.attempts_used_up'"
EFFECTS = "SELECT key, what FROM effect WHERE starts_with(key, $1) ORDER BY id"


@dataclass(frozen=True)
class Row:
    """What is stored of a leaf."""

    kind: StepKind
    state: StepState
    doubt: bool
    code: str | None


@dataclass
class Read:
    """A run, its rows and its effects.

    Attributes:
        used_up: Leaves that had used up their attempts, whatever became known of them afterwards.
        order: Those that succeeded, in order of completion.
    """

    tree: Seq
    state: RunState
    rows: dict[Key, Row] = field(default_factory=dict)
    effects: Counter[Key] = field(default_factory=Counter)
    undone: list[Key] = field(default_factory=list)
    used_up: set[str] = field(default_factory=set)
    order: list[Key] = field(default_factory=list)

    def check(self) -> None:
        """Assert that the run ended as the model says, or stands in front of a person."""
        outcome = Outcome(self.tree, self.state, self.rows, self.effects, self.undone, self.order)
        if self.state not in FINAL_RUN_STATES:
            held = {row.state for row in self.rows.values()}
            assert self.state is RunState.MANUAL_REQUIRED and StepState.MANUAL_REQUIRED in held
            assert not [key for key, n in self.effects.items() if n > 1]
            return
        outcome.check(self._reasons())

    def _reasons(self) -> set[Then] | None:
        """Return what may follow by the rows; None where nothing stopped the run."""
        if (
            any(self._cancels(key, row) for key, row in self.rows.items())
            and self.state is RunState.CANCELLED
        ):
            return {Then.CANCEL}
        model = self._model({})
        if model.stands() == "ok" and self.state is RunState.SUCCEEDED:
            return None
        # It stopped by an outcome that was not known then: known to be done since, it was undone.
        lost: dict[Key, End] = {key: "failed" for key in self.rows if key[0] in self.used_up}
        # Poor work that came when the run was stopping already is a failure like another one.
        poor: dict[Key, End] = {key: "failed" for key, row in self.rows.items() if row.code == "POOR"}
        models = [model, self._model(poor)]
        if model.stands() != "failed":
            models += [self._model(lost), self._model(lost | poor)]
        failed = [one for one in models if one.stands() == "failed"]
        assert failed, f"{self.state}, but the model says {model.stands()}"
        return set().union(*(one.reasons() for one in failed))

    def _cancels(self, key: Key, row: Row) -> bool:
        return row.kind is StepKind.WAIT and row.state is StepState.CANCELLED and row.code == "WAIT_TIMEOUT"

    def _model(self, other: dict[Key, End]) -> Model:
        ends: dict[Key, End] = {
            key: "poor" if row.code == "POOR" and row.state is StepState.FAILED else ENDS[row.state]
            for key, row in self.rows.items()
        }
        return Model(self.tree, begun=set(self.rows), ends=ends | other, order=self.order)


async def read(stage: Stage, run: UUID, tree: Seq) -> Read:
    """Read a run that rests."""
    found = Read(tree, RunState(await stage.state(run)))
    for row in await stage.pool.fetch(ROWS, run):
        key, kind = (row["name"], row["iteration"]), StepKind(row["kind"])
        if kind in NO_LEAVES:
            continue
        found.rows[key] = Row(kind, StepState(row["state"]), row["doubt"], row["code"])
        if row["state"] == StepState.SUCCEEDED:
            found.order.append(key)
    found.used_up = {row["step"] for row in await stage.pool.fetch(USED_UP, run)}
    for row in await stage.pool.fetch(EFFECTS, f"{run}:"):
        operation, undo, _ = row["key"].partition(":")[2].partition(":undo")
        name, _, number = operation.partition("#")
        if undo:
            found.undone.append((name, number))
        else:
            found.effects[name, number] += 1
    return found
