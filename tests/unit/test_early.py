"""What is claimed from the rows that a relay has seen, and which records are then let go."""

from __future__ import annotations

import asyncio
import json
from typing import cast
from uuid import UUID, uuid4

from milepost.consumers.early import MOST_ROWS, REMEMBERED, Early
from milepost.consumers.worker import Worker
from milepost.outbox.position import Row
from milepost.schemas.envelope import Record
from milepost.schemas.messages import WorkMessage
from milepost.schemas.states import Priority

TOPIC = "shop.work.default"


class Offered:
    """A worker that claims as it is told to."""

    def __init__(self, *, answer: bool | Exception = True, room: bool = True) -> None:
        self.answer, self.room = answer, room
        self.got: list[tuple[UUID, Priority]] = []

    def offer(self, message: WorkMessage, priority: Priority) -> asyncio.Task[bool] | None:
        """As `Worker.offer`."""
        if not self.room:
            return None
        self.got.append((message.run, priority))

        async def claim() -> bool:
            if isinstance(self.answer, Exception):
                raise self.answer
            return self.answer

        return asyncio.ensure_future(claim())


def early(worker: Offered, topic: str = TOPIC) -> Early:
    made = Early()
    made.serve([topic], cast("Worker", worker))
    return made


def announced(run: UUID, topic: str = TOPIC, kind: str = WorkMessage.message_type) -> tuple[Row, Record]:
    """An announcement's row, and the record that it becomes."""
    value = WorkMessage(run=run, saga="order", definition=1, step="pay").model_dump_json().encode()
    headers = {"ce_id": str(uuid4()), "ce_type": kind}
    record = Record(topic, 0, 7, None, value, [(k, v.encode()) for k, v in headers.items()], 0)
    return (1, topic, None, value, json.dumps(headers)), record


async def test_what_was_claimed_from_its_row_is_let_go_once() -> None:
    worker, run = Offered(), uuid4()
    it, (row, record) = early(worker), announced(run)
    assert it.seen([row])
    assert worker.got == [(run, Priority.NORMAL)]
    assert await it.unclaimed([record]) == []
    assert await it.unclaimed([record]) == [record], "a record that is read again is looked at"


async def test_another_announcement_of_the_same_step_is_looked_at() -> None:
    run = uuid4()
    it, (row, _), (_, again) = early(Offered()), announced(run), announced(run)
    assert it.seen([row])
    assert await it.unclaimed([again]) == [again]


async def test_a_claim_that_was_not_made_is_left_to_the_record() -> None:
    for answer in (False, ConnectionError("away")):
        it, (row, record) = early(Offered(answer=answer)), announced(uuid4())
        it.seen([row])
        assert await it.unclaimed([record]) == [record]


async def test_a_page_that_is_sent_again_is_offered_once() -> None:
    worker = Offered()
    it, (row, record) = early(worker), announced(uuid4())
    assert it.seen([row])
    assert it.seen([row])
    assert len(worker.got) == 1
    assert await it.unclaimed([record]) == []


async def test_what_is_not_offered() -> None:
    full = Offered(room=False)
    it, (row, record) = early(full), announced(uuid4())
    assert not it.seen([row])
    assert await it.unclaimed([record]) == [record]
    worker = Offered()
    it = early(worker)
    assert not it.seen([announced(uuid4(), topic="shop.work.other")[0]])
    assert not it.seen([announced(uuid4(), kind="something.else")[0]])
    it.seen(
        [(1, TOPIC, None, b"{", '{"ce_type": "milepost.work", "ce_id": "x"}'), (2, TOPIC, None, b"{}", "no")]
    )
    assert not it.seen([announced(uuid4())[0] for _ in range(MOST_ROWS + 1)])
    assert not worker.got


async def test_the_priority_is_that_of_the_topic() -> None:
    worker, run = Offered(), uuid4()
    early(worker, f"{TOPIC}.high").seen([announced(run, f"{TOPIC}.high")[0]])
    assert worker.got == [(run, Priority.HIGH)]


async def test_what_never_comes_back_is_forgotten() -> None:
    it = early(Offered())
    pairs = [announced(uuid4()) for _ in range(REMEMBERED + 1)]
    for row, _ in pairs:
        it.seen([row])
    assert await it.unclaimed([pairs[0][1]]) == [pairs[0][1]]
    assert await it.unclaimed([pairs[1][1], pairs[-1][1]]) == []
