"""What nobody is in a hurry for goes together, in the order and with the positions of one later look."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from milepost.outbox.gathering import LONGEST, MANY, Gathering
from milepost.outbox.position import Page, Position


def at(xid: int) -> Position:
    return Position((xid, xid, ()), (xid, xid, ()))


def tick(n: int, *seqs: int, until: str | None = None) -> Page:
    """The n-th look's page: all of its tick."""
    before = Position(at(n).current, at(n + 1).current)
    return Page([(seq, "t", "k", b"", "{}") for seq in seqs], before, at(n + 1), 0, until)


def test_what_is_urgent_goes_at_once() -> None:
    gathering, page = Gathering(), tick(1, 4)
    assert gathering.add(page, 0.0, urgent=True) == [page]
    assert gathering.empty


def test_what_is_not_goes_with_what_follows_in_the_order_of_numbers() -> None:
    gathering = Gathering()
    assert gathering.add(tick(1, 5, 8), 0.0, urgent=False) == []
    assert not gathering.empty
    (page,) = gathering.add(tick(2, 7, until="0/9"), 0.01, urgent=True)
    assert [row[0] for row in page.rows] == [5, 7, 8]
    assert page.before == Position(at(1).current, at(3).current)
    assert (page.after, page.until) == (at(3), "0/9")
    assert gathering.empty


def test_nothing_is_kept_for_longer_than_a_look_may_wait() -> None:
    gathering, page = Gathering(), tick(1, 5)
    assert gathering.add(page, 1.0, urgent=False) == []
    assert gathering.due(1.0 + LONGEST / 2) is None
    assert gathering.due(1.0 + LONGEST) is page
    assert gathering.due(9.0) is None
    assert gathering.add(tick(2, 6), 2.0, urgent=False) == []
    assert len(gathering.add(tick(3, 7), 2.0 + LONGEST, urgent=False)) == 1


def test_many_rows_are_worth_a_request() -> None:
    gathering = Gathering()
    assert gathering.add(tick(1, *range(MANY - 1)), 0.0, urgent=False) == []
    assert len(gathering.add(tick(2, MANY), 0.0, urgent=False)) == 1


def test_a_part_of_a_tick_goes_behind_what_is_kept() -> None:
    gathering, kept = Gathering(), tick(1, 5)
    part = Page(
        [(9, "t", "k", b"", "{}")], Position((2, 2, ()), (3, 3, ())), Position((2, 2, ()), (3, 3, ()), 9), 4
    )
    rest = Page([(10, "t", "k", b"", "{}")], Position((2, 2, ()), (3, 3, ()), 9), at(3), 0)
    assert gathering.add(kept, 0.0, urgent=False) == []
    assert gathering.add(part, 0.0, urgent=False) == [kept, part]
    assert gathering.add(rest, 0.0, urgent=False) == [rest]
    assert gathering.empty


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.floats(0, 0.05)), max_size=30))
def test_every_row_goes_once_and_positions_follow_on_each_other(looks: list[tuple[int, bool, float]]) -> None:
    gathering, sent = Gathering(), list[Page]()
    now, number, n = 0.0, 0, 0
    for rows, urgent, passed in looks:
        now += passed
        if rows:
            page = tick(n, *range(number, number + rows))
            sent += gathering.add(page, now, urgent=urgent)
            assert not urgent or gathering.empty
            n, number = n + 1, number + rows
        elif (late := gathering.due(now)) is not None:
            sent.append(late)
    sent += [page for page in [gathering.due(now + 1)] if page is not None]
    assert [row[0] for page in sent for row in page.rows] == list(range(number))
    here = at(0)
    for page in sent:
        assert page.before.previous == here.current
        assert page.before.current == page.after.current
        here = page.after
    assert here == at(n)
