"""The table of ages: what is severe is told sooner, and everything that waits is in it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from milepost.console.age_findings import Place, aged, judge_ages, judge_consumers, waiting
from milepost.recovery.age_bounds import Bounds
from milepost.recovery.age_kinds import KINDS, Kind
from milepost.recovery.ages import Age, troubles, worst
from milepost.schemas.states import Risk

kinds = pytest.mark.parametrize("kind", KINDS.values(), ids=str)
ages = st.builds(
    Age,
    what=st.sampled_from(sorted(KINDS)),
    amount=st.integers(1, 9),
    seconds=st.floats(0, 1e8),
    severity=st.sampled_from(Risk),
    saga=st.sampled_from(["order", "report"]),
    first=st.just("order/o-1 charge"),
)


@kinds
def test_what_is_more_severe_is_told_no_later(kind: Kind) -> None:
    bounds = [kind.bounds[severity] for severity in Risk]
    assert all(0 <= one.warning <= one.error for one in bounds)
    for less, more in pairwise(bounds):
        assert more.warning <= less.warning
        assert more.error <= less.error
    assert kind.means[0].islower() and kind.fix.endswith(".")


def test_what_no_machine_mends_shows_within_ten_seconds() -> None:
    slow = {"approval", "confirm", "proposal", "signal_unmatched", "wait", "resume_check", "resource_queue"}
    slow |= {"bulk_held"}
    for kind in KINDS.values():
        for severity in set(Risk) - {Risk.LOW}:
            assert kind.what in slow or kind.bounds[severity].warning <= 10, kind.what


@given(st.lists(ages, max_size=8))
def test_the_worst_is_told_and_troubles_come_in_that_order(found: list[Age]) -> None:
    told = {check.name: check for check in judge_ages(found)}
    own = KINDS.keys() - {"dead_letter", "outbox_parked"}  # told by cause, in lines of their own
    assert told.keys() == {f"age_{what}" for what in own}
    levels = ("ok", "warning", "error")
    for what in own:
        of_kind = [age for age in found if age.what == what]
        first = worst(of_kind)
        assert (first is None) == (not of_kind)
        if first is not None:
            assert told[f"age_{what}"].severity == first.level
            assert all(levels.index(age.level) <= levels.index(first.level) for age in of_kind)
        else:
            assert told[f"age_{what}"].severity == "ok"
    listed = troubles(found)
    assert all(age.level != "ok" and age.kind.listed for age in listed)
    ranks = [levels.index(age.level) for age in listed]
    assert ranks == sorted(ranks, reverse=True)


def test_bounds_are_reached_and_not_only_passed() -> None:
    bounds = Bounds(5, 60)
    assert [bounds.level(seconds) for seconds in (None, 4.9, 5, 59.9, 60)] == [
        "ok",
        "ok",
        "warning",
        "warning",
        "error",
    ]


def test_a_line_says_whose_and_from_when_and_of_letters_others_tell() -> None:
    old = [
        Age("step_unknown", 2, 400, "shop", "order", Risk.CRITICAL, "order/o-1 charge", more=True),
        Age("dead_letter", 1, 120, "billing", severity=Risk.HIGH, first="letter 3"),
    ]
    told = {check.name: check for check in judge_ages(old)}
    unknown = told["age_step_unknown"]
    assert (unknown.severity, unknown.code) == ("error", "MP752")
    assert "the oldest for 6m (order/o-1 charge, CRITICAL), 2 rows or more" in unknown.text
    assert "warning at once, error from 5m" in unknown.text
    assert not {"age_dead_letter", "age_outbox_parked"} & set(told), "a letter is told once, by its topic"


def test_a_consumer_that_reads_nothing_is_told_by_its_worst_partition() -> None:
    places = [
        Place("billing", "orders", 0, 10, timedelta(days=1)),
        Place("billing", "orders", 1, 5, timedelta(seconds=30)),
        Place("books", "orders", 0, 12, timedelta(days=1)),
        Place("mail", "orders", 0, 11, timedelta(seconds=1)),
        Place("old", "gone", 0, 7, timedelta(days=9)),
    ]
    ends = {("orders", 0): 12, ("orders", 1): 6}
    billing, books, mail, old = judge_consumers(places, ends)
    assert (billing.severity, billing.code) == ("error", "MP754")
    assert billing.text.startswith("consumer billing is 3 records behind; orders/0 has not moved for 1d")
    assert (books.severity, books.text) == ("ok", "consumer books is at the end of 1 partition")
    assert (mail.severity, old.severity) == ("ok", "ok"), "what has just moved, and what is no topic any more"


def test_a_record_on_a_partition_that_was_quiet_has_waited_since_it_was_written() -> None:
    quiet, ends = timedelta(minutes=15), {("orders", 0): 3, ("orders", 1): 9, ("orders", 2): 5}
    places = [Place("books", "orders", 0, 2, quiet), Place("books", "orders", 2, 5, timedelta(days=1))]
    assert waiting(places, ends) == {("orders", 0, 2)}
    now = datetime(2026, 7, 1, tzinfo=UTC)
    written = {("orders", 0, 2): now - timedelta(seconds=22)}
    (late,) = judge_consumers(aged(places, written, now), ends)
    assert (late.severity, late.code) == ("warning", "MP754")
    assert late.text.startswith("consumer books is 1 record behind; orders/0 has waited to be read for 22s")
    (fresh,) = judge_consumers(aged(places, {("orders", 0, 2): now}, now), ends)
    assert fresh.severity == "ok"
    moved = [Place("books", "orders", 1, 8, timedelta(seconds=7))]
    (old,) = judge_consumers(aged(moved, {("orders", 1, 8): now - timedelta(hours=1)}, now), ends)
    assert old.severity == "warning" and "orders/1 has not moved for 7.0s" in old.text, (
        "it reads an old topic"
    )
