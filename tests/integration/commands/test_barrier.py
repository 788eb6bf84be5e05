"""Do and undo at a participant, in any order and at once (scenario 39): the net effect of an undone operation is 0."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from milepost import Command, Transaction
from milepost.schemas.envelope import Record

from tests.support.inbox import IDS
from tests.support.trucks import Bench, BookTruck, CancelTruck, Participant, bench, outcomes
from tests.support.waiting import until

OPERATION = {"run": "r", "step": "s"}
WAITING = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    " AND wait_event_type = 'Lock' AND query LIKE '%milepost.barrier%'"
)


@pytest.fixture
async def at(database_url: str) -> AsyncIterator[Bench]:
    async with bench(database_url) as found:
        yield found


async def test_an_undo_that_comes_first_does_nothing_and_refuses_the_late_do(at: Bench) -> None:
    participant = Participant()
    intake = at.intake(participant.consumer())
    await intake.handle([at.record(CancelTruck(truck="a"), of=OPERATION, direction="undo", attempt="1")])
    await intake.handle([at.record(CancelTruck(truck="a"), of=OPERATION, direction="undo", attempt="2")])
    await intake.handle([at.record(BookTruck(truck="a"), of=OPERATION, direction="do")])
    undone, again, late = await at.replies()
    assert (undone.type, undone.outcome) == ("truck.cancel.nothing-to-undo", "nothing-to-undo")
    assert again.id == undone.id and again.headers["milepost-attempt"] == "2"
    assert (late.type, late.outcome) == ("truck.book.refused", "refused")
    assert late.headers["milepost-code"] == late.body["code"] == "UNDONE_BEFORE"
    assert late.headers["milepost-direction"] == "do"
    assert participant.calls == [] and await at.ledger() == []
    assert await at.letters() == []


async def test_an_undo_after_its_do_runs_once_and_another_attempt_gets_its_reply(at: Bench) -> None:
    participant = Participant()
    intake = at.intake(participant.consumer())
    await intake.handle([at.record(BookTruck(truck="a"), of=OPERATION)])
    await intake.handle([at.record(CancelTruck(truck="a"), of=OPERATION, direction="undo")])
    await intake.handle([at.record(CancelTruck(truck="a"), of=OPERATION, direction="undo", attempt="2")])
    await intake.handle([at.record(BookTruck(truck="a"), of=OPERATION, attempt="2")])
    replies = await at.replies()
    assert outcomes(replies) == [
        "truck.booked done",
        "truck.cancelled done",
        "truck.cancelled done",
        "truck.booked done",
    ]
    assert (replies[1].id, replies[0].id) == (replies[2].id, replies[3].id)
    assert await at.ledger() == [("do", "a"), ("undo", "a")]
    assert participant.calls == ["do", "undo"]


async def test_a_refused_do_leaves_nothing_to_undo(at: Bench) -> None:
    participant = Participant()
    intake = at.intake(participant.consumer())
    await intake.handle([at.record(BookTruck(truck="no"), of=OPERATION)])
    await intake.handle([at.record(CancelTruck(truck="no"), of=OPERATION, direction="undo")])
    assert [reply.outcome for reply in await at.replies()] == ["refused", "nothing-to-undo"]
    assert participant.calls == ["do"]


async def test_a_refused_undo_may_be_asked_again(at: Bench) -> None:
    intake = at.intake(Participant().consumer())
    await intake.handle([at.record(BookTruck(truck="a"), of=OPERATION)])
    await intake.handle([at.record(CancelTruck(truck="a", note="late"), of=OPERATION, direction="undo")])
    assert await at.ledger() == [("do", "a")]
    await intake.handle([at.record(CancelTruck(truck="a", note="paid"), of=OPERATION, direction="undo")])
    assert await at.ledger() == [("do", "a"), ("undo", "a")]
    assert [reply.outcome for reply in await at.replies()] == ["done", "refused", "done"]


async def test_without_undoes_an_undo_is_an_operation_of_its_own(at: Bench) -> None:
    intake = at.intake(Participant().consumer(barrier=False))
    await intake.handle([at.record(CancelTruck(truck="a"), of=OPERATION, direction="undo")])
    await intake.handle([at.record(CancelTruck(truck="a"), of=OPERATION, direction="undo", attempt="2")])
    await intake.handle([at.record(BookTruck(truck="a"), of=OPERATION)])
    assert await at.ledger() == [("undo", "a"), ("do", "a")]


@dataclass
class Gate:
    """Holds a handler after its effect until it is opened; `fail` has it raise then."""

    reached: asyncio.Event = field(default_factory=asyncio.Event)
    open: asyncio.Event = field(default_factory=asyncio.Event)
    fail: int = 0

    async def __call__(self, command: Command[Any], tx: Transaction) -> None:
        self.reached.set()
        await self.open.wait()
        if self.fail:
            self.fail -= 1
            raise ValueError("it fails after its effect")


async def racing(at: Bench, gate: Gate, first: Record, second: Record) -> Participant:
    """Let the second command come while the first one is being handled, and wait until PostgreSQL holds it."""
    participant = Participant(pause=gate)
    one, two = at.intake(participant.consumer()), at.intake(participant.consumer())
    leading = asyncio.create_task(one.handle([first]))
    await gate.reached.wait()
    following = asyncio.create_task(two.handle([second]))

    async def held() -> bool:
        return bool(await at.database.pool.fetchval(WAITING))

    await until(held, what="the second transaction to wait for the first")
    assert not following.done()
    gate.open.set()
    await asyncio.gather(leading, following)
    return participant


async def test_an_undo_waits_for_the_do_that_is_under_way(at: Bench) -> None:
    do = at.record(BookTruck(truck="a"), of=OPERATION)
    undo = at.record(CancelTruck(truck="a"), partition=1, of=OPERATION, direction="undo")
    await racing(at, Gate(), do, undo)
    assert await at.ledger() == [("do", "a"), ("undo", "a")]
    assert outcomes(await at.replies()) == ["truck.booked done", "truck.cancelled done"]


async def test_an_undo_during_a_do_that_fails_meets_it_or_blocks_its_next_try(at: Bench) -> None:
    do = at.record(BookTruck(truck="a"), of=OPERATION)
    undo = at.record(CancelTruck(truck="a"), partition=1, of=OPERATION, direction="undo")
    participant = await racing(at, Gate(fail=1), do, undo)
    net = Counter(act for act, _ in await at.ledger())
    assert net["do"] == net["undo"], "done and undone, or neither"
    assert len(await at.replies()) == 2
    assert "do" in participant.calls
    assert await at.letters() == []


async def test_two_attempts_at_once_have_one_effect_and_one_reply_twice(at: Bench) -> None:
    first = at.record(BookTruck(truck="a"), of=OPERATION, attempt="1")
    second = at.record(BookTruck(truck="a"), partition=1, of=OPERATION, attempt="2")
    await racing(at, Gate(), first, second)
    assert await at.ledger() == [("do", "a")]
    one, two = await at.replies()
    assert one.id == two.id and {one.headers["milepost-attempt"], two.headers["milepost-attempt"]} == {
        "1",
        "2",
    }


async def test_two_undos_at_once_undo_once(at: Bench) -> None:
    setup = at.intake(Participant().consumer())
    await setup.handle([at.record(BookTruck(truck="a"), of=OPERATION)])
    first = at.record(CancelTruck(truck="a"), of=OPERATION, direction="undo")
    second = at.record(CancelTruck(truck="a"), partition=1, of=OPERATION, direction="undo", attempt="2")
    await racing(at, Gate(), first, second)
    assert await at.ledger() == [("do", "a"), ("undo", "a")]
    assert outcomes(await at.replies()) == [
        "truck.booked done",
        "truck.cancelled done",
        "truck.cancelled done",
    ]


async def test_fifty_operations_done_and_undone_on_four_partitions_at_once(at: Bench) -> None:
    """Nothing is left standing, whichever came first; deadlocks between batches are only tried again."""
    lanes: list[list[Record]] = [[], [], [], []]
    for n in range(50):
        operation = {"run": f"r-{n}", "step": "s"}
        for lane, attempt in ((n % 4, "1"), ((n + 1) % 4, "2")):
            lanes[lane].append(
                at.record(BookTruck(truck=f"{n}"), partition=lane, of=operation, attempt=attempt)
            )
        for lane, attempt in (((n + 2) % 4, "1"), ((n + 3) % 4, "2")):
            lanes[lane].append(
                at.record(
                    CancelTruck(truck=f"{n}"), partition=lane, of=operation, direction="undo", attempt=attempt
                )
            )
    consumer = Participant().consumer()

    async def read(lane: Sequence[Record]) -> None:
        intake = at.intake(consumer)
        for start in range(0, len(lane), 10):
            for _ in range(20):  # as a reader brings a batch again after trouble underneath
                try:
                    await intake.handle(lane[start : start + 10])
                    break
                except Exception as error:
                    assert "deadlock" in str(error), error

    await asyncio.gather(*(read(lane) for lane in lanes))
    found = Counter(await at.ledger())
    assert all(found["do", f"{n}"] == found["undo", f"{n}"] <= 1 for n in range(50)), found
    assert len(await at.replies()) == 200
    assert await at.letters() == []


# --- any order of do, undo, attempts and copies against a serial model -----------------------------


@dataclass
class Model:
    """What a participant owes, one operation at a time."""

    do: str = ""
    undo: str = ""
    acts: list[str] = field(default_factory=list)

    def answer(self, kind: str, refuses: bool) -> str:
        """Return the outcome of a command that was not there before."""
        if kind == "do":
            if not self.do:
                self.do = "refused" if refuses else "done"
                self.acts += [] if refuses else ["do"]
            return "refused" if self.do == "blocked" else self.do
        if not self.undo:
            self.undo = "done" if self.do == "done" else "nothing-to-undo"
            self.acts += ["undo"] if self.do == "done" else []
            self.do = self.do or "blocked"
        return self.undo


#: (operation, do or undo, whether it is a copy of the operation's last command of that kind, batch ends here)
STEP = st.tuples(st.integers(0, 1), st.sampled_from(["do", "undo"]), st.booleans(), st.booleans())


def test_any_order_of_commands_is_answered_as_the_serial_model_says(database_url: str) -> None:
    with asyncio.Runner() as runner:
        opened = bench(database_url)
        at = runner.run(opened.__aenter__())
        intake = at.intake(Participant().consumer())

        async def play(steps: Sequence[tuple[int, str, bool, bool]], refuses: bool) -> None:
            runs = [str(IDS.new()), str(IDS.new())]
            models, last = [Model(), Model()], dict[tuple[int, str], Record]()
            expected: dict[str, list[str]] = {run: [] for run in runs}
            batch: list[Record] = []
            for which, kind, copy, ends in steps:
                if copy and (which, kind) in last:
                    batch.append(last[which, kind])
                else:
                    truck = f"{'no' if refuses else 'a'}-{runs[which]}"
                    command = BookTruck(truck=truck) if kind == "do" else CancelTruck(truck=truck)
                    found = at.record(command, run=runs[which], step="s", direction=kind)
                    last[which, kind] = found
                    batch.append(found)
                    expected[runs[which]].append(models[which].answer(kind, refuses))
                if ends:
                    await intake.handle(batch)
                    batch = []
            if batch:
                await intake.handle(batch)
            for run, model in zip(runs, models, strict=True):
                assert [reply.outcome for reply in await at.replies(run)] == expected[run]
                acts = [act for act, truck in await at.ledger() if truck.endswith(run)]
                assert acts == model.acts

        @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None)
        @example([(0, "undo", False, True), (0, "do", False, True), (0, "undo", True, True)], False)
        @example([(0, "do", False, False), (0, "undo", False, False), (0, "do", False, True)], True)
        @given(st.lists(STEP, max_size=12), st.booleans())
        def orders(steps: list[tuple[int, str, bool, bool]], refuses: bool) -> None:
            runner.run(play(steps, refuses))

        try:
            orders()
        finally:
            runner.run(opened.__aexit__(None, None, None))
