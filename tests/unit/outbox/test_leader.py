"""The leader's position may never overtake a page that is still to be sent."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from typing import Any, cast

import pytest
from milepost.outbox import leader as leader_module
from milepost.outbox.encode import Encoder, TopicPartition
from milepost.outbox.leader import Leader, Limits
from milepost.outbox.lease import Lease
from milepost.outbox.patience import Trouble
from milepost.outbox.position import Page, Position, Row
from milepost.outbox.records import Batch
from milepost.outbox.store import Sql
from milepost.schemas.ids import ManualClock, SystemRandomness
from milepost.streams.lifecycle import Stop

from tests.support.outbox import settings

Act = tuple[str, int]

ROW: Row = (7, "t", "k", b"{}", "{}")


def at(xid: int) -> Position:
    """The position that has done everything below a transaction number."""
    return Position((xid, xid, ()), (xid, xid, ()))


class Script:
    """A reader that finds nothing for half a second, then one row of transaction 10, then nothing for ever."""

    def __init__(self, *_: object, **__: object) -> None:
        self._found: list[Page | Position] = [*[at(10)] * 100, Page([ROW], at(10), at(11), 0)]

    async def read(self) -> Page | Position:
        return self._found.pop(0) if self._found else at(11)

    async def end(self) -> None:
        pass


class Connection:
    """Takes the leader's statements and notes the positions."""

    def __init__(self, acts: list[Act]) -> None:
        self._acts = acts

    async def execute(self, query: str, *arguments: Any, timeout: float | None = None) -> None:
        if query == Sql.write_position:
            self._acts.append(("position", arguments[3][1]))

    async def fetch(self, *_: object, timeout: float | None = None) -> list[Any]:
        return []

    async def fetchval(self, *_: object, timeout: float | None = None) -> int:
        return 1

    async def fetchrow(self, *_: object, timeout: float | None = None) -> None:
        return None


class Producer:
    """Notes the rows it is to send."""

    acts: list[Act]
    sent: asyncio.Event
    partitions: Mapping[str, int]

    def __init__(self, *_: object, **__: object) -> None:
        self.partitions = {"t": 1}

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def look_up(self, topics: Collection[str]) -> dict[str, tuple[str, str]]:
        return {}

    async def describe(self, topics: Collection[str]) -> dict[str, Any]:
        return {}

    async def send(self, batches: Mapping[TopicPartition, list[Batch]], _: Callable[[], float]) -> None:
        self.acts += [("sent", seq) for chain in batches.values() for batch in chain for seq in batch.seqs]
        self.sent.set()


class Held:
    """A lease that never ends."""

    epoch = 1
    skew = timedelta(0)

    def check(self) -> None:
        pass

    def remaining(self) -> float:
        return 60.0


async def test_a_page_found_in_the_turn_in_which_the_leader_gives_up_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    acts: list[Act] = []
    clock, stop = ManualClock(), Stop(ManualClock(), timedelta(seconds=5))
    slice_of = Encoder._slice

    def slow(encoder: Encoder, *arguments: Any) -> None:
        # Blocks the loop for longer than the leader waits for a page, and lets every periodic write become due.
        time.sleep(0.4)
        clock.advance(timedelta(minutes=10))
        slice_of(encoder, *arguments)

    async def measure(_: Leader) -> None:
        pass

    monkeypatch.setattr(Encoder, "_slice", slow)
    monkeypatch.setattr(Leader, "_measure", measure)
    monkeypatch.setattr(leader_module, "Reader", Script)
    monkeypatch.setattr(leader_module, "Producer", Producer)
    monkeypatch.setattr(Producer, "acts", acts, raising=False)
    monkeypatch.setattr(Producer, "sent", asyncio.Event(), raising=False)
    connection = cast("Any", Connection(acts))
    leader = Leader(
        settings("postgresql://nowhere/db"),
        cast("Lease", Held()),
        "outbox",
        connection,
        connection,
        stop=stop,
        clock=clock,
        randomness=SystemRandomness(),
        trouble=Trouble(clock),
        limits=Limits(),
        measured=lambda _: None,
    )
    leading = asyncio.create_task(leader.lead())
    await asyncio.wait_for(Producer.sent.wait(), 5)
    stop.ask()
    await asyncio.wait_for(leading, 5)
    before = acts[: acts.index(("sent", 7))]
    assert ("position", 10) in before
    assert ("position", 11) not in before, "a crash here would have lost row 7"
    assert acts[-1] == ("position", 11)
