"""Priorities of sagas, and the topics that carry their work."""

from __future__ import annotations

from typing import Any

import pytest
from milepost import DefinitionError, Priority, Saga, UsageError
from milepost.sagas import priorities
from milepost.sagas.registry import Definitions
from milepost.schemas.messages import compensation_topic, priority_of, work_topic

from tests.support.sagas import Order, add_step, flow


def saga(name: str, priority: Any, queue: str = "default") -> Saga[Order]:
    made = Saga(name, version=1, input=Order, key=lambda o: o.id, queue=queue, priority=priority)
    add_step(made, "it")
    return made


def test_work_of_each_priority_has_a_topic_of_its_own() -> None:
    for lane in (work_topic, compensation_topic):
        topics = {priority: lane("shop", "default", priority) for priority in Priority}
        assert len(set(topics.values())) == 3
        assert topics[Priority.NORMAL] == lane("shop", "default"), "as before there were priorities"
        assert {priority: priority_of(topic) for priority, topic in topics.items()} == {
            p: p for p in Priority
        }


def test_a_queue_has_the_priorities_that_its_runs_can_have() -> None:
    urgent, plain = saga("urgent", Priority.HIGH), saga("plain", Priority.NORMAL, "other")
    either = saga("either", lambda o: Priority.LOW, "mixed")
    for made in (urgent, plain, either):
        flow(made)
    known = Definitions([urgent, plain, either])
    assert known.priorities("default") == [Priority.HIGH, Priority.NORMAL]
    assert known.priorities("other") == [Priority.NORMAL]
    assert known.priorities("mixed") == list(Priority)


def test_the_priority_of_an_input_is_what_the_function_says() -> None:
    definition = flow(saga("either", lambda o: Priority.HIGH if o.id == "vip" else Priority.LOW))
    assert priorities.of_input(definition, Order(id="vip")) is Priority.HIGH
    assert priorities.of_input(definition, Order(id="o-1")) is Priority.LOW


@pytest.mark.parametrize(
    ("answer", "words"),
    [(lambda o: "HIGH!", "returned 'HIGH!'"), (lambda o: o.nothing, "raised AttributeError")],
)
def test_a_function_that_says_no_priority_is_named(answer: Any, words: str) -> None:
    definition = flow(saga("bad", answer))
    with pytest.raises(UsageError, match=rf"MP358 bad v1: priority= {words}"):
        priorities.of_input(definition, Order(id="o-1"))


def test_what_is_no_priority_is_refused_at_once() -> None:
    with pytest.raises(DefinitionError, match="MP126 bad v1: priority='HIGH' must be a Priority"):
        flow(saga("bad", "HIGH"))


def test_only_what_was_said_changes_the_policy_fingerprint() -> None:
    plain, urgent = flow(saga("same", Priority.NORMAL)), flow(saga("same", Priority.HIGH))
    assert plain.policy != urgent.policy
    assert plain.shape == urgent.shape
