"""Which changes of runs go together, and that many runs are stored as one is."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from milepost.consumers.batching import is_plain, pick
from milepost.consumers.store import Sql
from milepost.consumers.store_many import Sql as ManySql
from milepost.sagas.model import CloseWait, Decision, OpenWait

from tests.support.sagas import add_step, new_run, new_saga


@dataclass(frozen=True)
class Change:
    """The n-th change that was asked for."""

    run_id: UUID
    n: int


RUNS = [UUID(int=n) for n in range(6)]
WAITING = st.lists(st.sampled_from(RUNS)).map(lambda runs: [Change(run, n) for n, run in enumerate(runs)])


@given(waiting=WAITING, busy=st.sets(st.sampled_from(RUNS)), most=st.integers(1, 4))
def test_a_batch_has_the_first_change_of_each_run_in_the_order_of_locks(
    waiting: list[Change], busy: set[UUID], most: int
) -> None:
    batch, rest = pick(waiting, busy, most)
    assert sorted([*batch, *rest], key=lambda one: one.n) == waiting, "none is lost, none is there twice"
    assert rest == sorted(rest, key=lambda one: one.n), "what waits keeps its order"
    runs = [one.run_id for one in batch]
    assert runs == sorted(set(runs)) and not busy & set(runs) and len(runs) <= most
    for one in batch:
        assert all(one.n < other.n for other in rest if other.run_id == one.run_id), (
            "a run's changes keep theirs"
        )
    free = {one.run_id for one in waiting} - busy
    assert len(batch) == min(most, len(free)), "nobody waits without need"


def test_waits_and_locks_leave_the_batch() -> None:
    saga = new_saga()
    saga.flow(add_step(saga, "pay"))
    made = Decision(answer="changed", run=new_run(saga.definition))
    assert is_plain(made)
    assert not is_plain(replace(made, opens=(OpenWait("w", 1, "t", "k", False),)))
    assert not is_plain(replace(made, closes=(CloseWait("w", 1),)))
    assert not is_plain(replace(made, lock="leave"))


def test_many_runs_are_loaded_as_one_is() -> None:
    many, _, _ = ManySql.load_runs.partition(";")
    assert many == Sql.load_run.replace("WHERE r.id = $1", "WHERE r.id = ANY ($1::uuid[])")


def written(sql: str) -> dict[str, list[str]]:
    """The columns that each part of a statement writes, and those of what it unpacks, without the run's."""
    inserted = {
        table: re.findall(r"\w+", names)
        for table, names in re.findall(r"INSERT INTO milepost\.(\w+)(?: AS old)? \(([^)]*)\)", sql)
    }
    updated = {
        f"set {n}": [name for name in re.findall(r"(?:^|[\s,])(\w+) = ", text) if name != "r"]
        for n, text in enumerate(re.findall(r"\bSET (.*?)(?=\n    (?:WHERE|FROM)|\n\), )", sql, re.DOTALL))
    }
    unpacked = {
        f"{name} from json": names.replace("run_id uuid, ", "").split()
        for name, names in re.findall(r"jsonb_to_recordset\([^)]*\) AS (\w+)\(([^)]*)\)", sql)
    }
    return inserted | updated | unpacked


def test_many_runs_are_stored_as_one_is() -> None:
    """Columns added to the statement for one run must be added to that for many."""
    one, many = written(Sql.store_decision), written(ManySql.store_decisions)
    assert one.pop("run"), "a run that begins is stored by itself"
    assert one.keys() == many.keys() and len(one) >= 11
    for part in one:
        assert sorted(one[part]) == sorted(many[part]), part


@pytest.mark.parametrize("missing", ["active_for = $21, ", "nudges = excluded.nudges, ", " probes integer,"])
def test_the_comparison_sees_a_column_that_is_missing(missing: str) -> None:
    assert missing in Sql.store_decision
    assert written(Sql.store_decision.replace(missing, "")) != written(Sql.store_decision)
