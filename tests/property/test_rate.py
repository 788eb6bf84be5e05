"""A rate limit never lets more through than it promises, whoever asks when, also when the clock goes back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st
from milepost.sagas.limiting import Limit, Window, ask
from milepost.schemas.states import Priority

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)

limits = st.builds(
    lambda calls, micros: Limit(name="bank", calls=calls, per=timedelta(microseconds=micros)),
    st.integers(1, 20),
    st.integers(1_000, 5_000_000),
)


@settings(max_examples=300, deadline=None)
@given(
    limit=limits,
    asks=st.lists(st.tuples(st.floats(0, 0.5), st.sampled_from(Priority), st.booleans()), max_size=120),
)
def test_no_span_holds_more_calls_than_the_limit_says(
    limit: Limit, asks: list[tuple[float, Priority, bool]]
) -> None:
    window, now = Window(), BEGIN
    through: list[datetime] = []
    for pause, priority, appointed in asks:
        now += limit.per * pause
        windows, at = ask([limit], {"bank": window}, now, priority=priority, appointed=appointed)
        window = windows["bank"]
        if at is None:
            through.append(now)
        else:
            assert at > now, "whoever is put off is told a later time"
        assert len(window.spent) <= 18, "what is kept is bounded, whatever the limit"
    for first, after in zip(through, through[limit.calls :], strict=False):
        assert after - first >= limit.per


@settings(max_examples=100, deadline=None)
@given(limit=limits, waiting=st.integers(1, 60))
def test_who_keeps_appointments_gets_through_at_the_rate_and_in_order(limit: Limit, waiting: int) -> None:
    window, due = Window(), []
    through: list[tuple[datetime, int]] = []
    for n in range(waiting):
        windows, at = ask([limit], {"bank": window}, BEGIN)
        window = windows["bank"]
        if at is None:
            through.append((BEGIN, n))
        else:
            due.append((at, n))
    asked = 0
    while due:
        due.sort()
        now, n = due.pop(0)
        windows, at = ask([limit], {"bank": window}, now, appointed=True)
        window, asked = windows["bank"], asked + 1
        if at is None:
            through.append((now, n))
        else:
            due.append((at, n))
    assert [n for _, n in through] == list(range(waiting)), "first come, first served"
    # A call counts up to a sixteenth longer than `per`; the first ones go at once.
    least = limit.per * 17 / 16 * max(waiting - limit.calls, 0) / limit.calls
    assert through[-1][0] - BEGIN <= least + limit.per * 17 / 16 + 2 * waiting * timedelta(microseconds=1)
    assert asked <= waiting, "everybody comes once"


@given(limit=limits, back=st.integers(1, 10**7))
def test_a_clock_that_goes_back_lets_nothing_more_through(limit: Limit, back: int) -> None:
    window = Window()
    for _ in range(limit.calls):
        windows, at = ask([limit], {"bank": window}, BEGIN)
        window = windows["bank"]
        assert at is None
    _, at = ask([limit], {"bank": window}, BEGIN - timedelta(microseconds=back), appointed=True)
    assert at is not None
    assert at >= BEGIN + limit.per
