"""What a record means, held against what the inbox knows; and which slices may be applied."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from milepost.consumers.replay_plan import read_up_to, require_applicable, slice_of, written
from milepost.inbox import model
from milepost.inbox.replay import Bounds, Known, ReplayOutcome, identified, outcome_of, told
from milepost.schemas.envelope import TOMBSTONE
from milepost.schemas.errors import StateError, UsageError
from milepost.schemas.events import Event
from milepost.schemas.transaction import Transaction

from tests.support.inbox import IDS, Paid, headers, record

NOW = datetime(2026, 1, 10, tzinfo=UTC)
MS = int(NOW.timestamp() * 1000)
BOUNDS = Bounds({0: 10}, MS - 1000)
EVENT = record(3, event_id=IDS.new(), at_ms=MS)


async def _handle(event: Event, tx: Transaction) -> None:
    raise NotImplementedError


def known(**more: object) -> Known:
    item = identified(EVENT)
    return replace(Known(item.fingerprint, "APPLIED", ("t", 0, 3), NOW), **more)  # type: ignore[arg-type]


def test_identity_and_fingerprint_are_those_of_the_intake() -> None:
    live = model.read(EVENT, lambda _: (Paid, _handle), unknown="skip", oldest_ms=0)
    replayed = identified(EVENT)
    assert (live.id, live.fingerprint) == (replayed.id, replayed.fingerprint)
    nameless = replace(EVENT, headers=[pair for pair in headers(IDS.new()) if pair[0] != "ce_id"])
    live = model.read(nameless, lambda _: (Paid, _handle), unknown="skip", oldest_ms=0)
    assert live.id == identified(nameless).id and not identified(nameless).envelope.identified  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("row", "bounds", "outcome"),
    [
        (known(), BOUNDS, ReplayOutcome.APPLIED),
        (known(fingerprint=b"other"), BOUNDS, ReplayOutcome.CONFLICTING),
        (known(outcome="PARKED"), BOUNDS, ReplayOutcome.PARKED),
        (None, BOUNDS, ReplayOutcome.MISSING),
        (None, replace(BOUNDS, live={0: 4}), ReplayOutcome.MISSING),
        (None, replace(BOUNDS, live={0: 3}), ReplayOutcome.AHEAD),
        (None, replace(BOUNDS, live={}), ReplayOutcome.AHEAD),
        (None, replace(BOUNDS, floor_ms=MS), ReplayOutcome.MISSING),
        (None, replace(BOUNDS, floor_ms=MS + 1), ReplayOutcome.FORGOTTEN),
        (None, replace(BOUNDS, takes=lambda type: False), ReplayOutcome.SKIPPED),
        (known(), replace(BOUNDS, began=NOW), ReplayOutcome.REPLAYED),
        (known(), replace(BOUNDS, began=NOW + timedelta(seconds=1)), ReplayOutcome.APPLIED),
        (known(place=("t", 0, 2)), replace(BOUNDS, began=NOW), ReplayOutcome.APPLIED),
    ],
)
def test_an_outcome(row: Known | None, bounds: Bounds, outcome: ReplayOutcome) -> None:
    assert outcome_of(identified(EVENT), row, bounds) is outcome


def test_what_is_no_event_and_what_has_no_time() -> None:
    poison = identified(replace(EVENT, headers=[]))
    assert outcome_of(poison, None, BOUNDS) is ReplayOutcome.UNDECODABLE
    assert told(poison, ReplayOutcome.UNDECODABLE).detail.startswith("NO_TYPE: ")
    tombstone = identified(replace(EVENT, value=None, headers=[(TOMBSTONE, b"1")], key=b"k"))
    assert outcome_of(tombstone, None, BOUNDS) is ReplayOutcome.SKIPPED
    timeless = identified(replace(EVENT, timestamp_ms=-1))
    assert outcome_of(timeless, None, replace(BOUNDS, floor_ms=0)) is ReplayOutcome.FORGOTTEN


TWO = {0: (5, 100), 1: (0, 50)}


def test_a_slice_begins_and_ends_where_it_is_told_to_and_where_there_is_something() -> None:
    assert slice_of("t", TWO, {0: 0, 1: 7}, None) == ({0: 5, 1: 7}, {0: 100, 1: 50})
    assert slice_of("t", TWO, {0: 10}, {0: 999, 1: 3}) == ({0: 10}, {0: 100})
    assert slice_of("t", TWO, {0: None, 1: 50}, None) == ({0: 100, 1: 50}, {0: 100, 1: 50})
    assert slice_of("t", TWO, {0: 0}, {0: 2}) == ({0: 5}, {0: 5})
    for since, until in (({2: 0}, None), ({0: 9}, {0: 8})):
        with pytest.raises(UsageError, match="MP491"):
            slice_of("t", TWO, since, until)
    assert written({1: 5, 0: 9}) == "0:9,1:5"


def test_a_consumers_place_is_the_lower_of_both() -> None:
    assert read_up_to({0: 90, 1: 20}, {0: 80}, TWO) == {0: 80, 1: 20}
    assert read_up_to({0: 90}, {0: 95, 1: 5}, TWO) == {0: 90, 1: 0}


def applicable(begins: dict[int, int], ends: dict[int, int], remembered: dict[int, int | None]) -> None:
    require_applicable(
        consumer="c",
        topic="t",
        begins=begins,
        ends=ends,
        live={0: 80, 1: 20},
        floor=NOW,
        remembered=remembered,
    )


def test_only_what_is_remembered_and_read_may_be_applied() -> None:
    applicable({0: 10, 1: 0}, {0: 80, 1: 20}, {0: 10, 1: 0})
    applicable({0: 80}, {0: 80}, {0: None})
    with pytest.raises(StateError, match=r"MP492.*--since 0:11,1:0 or later") as raised:
        applicable({0: 10, 1: 0}, {0: 80, 1: 20}, {0: 11, 1: 0})
    assert "2026-01-10T00:00:00Z" in raised.value.text
    with pytest.raises(StateError, match=r"MP493.*read t up to 0:80,1:20.*--until 0:80,1:20"):
        applicable({0: 10, 1: 0}, {0: 81, 1: 20}, {0: 10, 1: 0})
