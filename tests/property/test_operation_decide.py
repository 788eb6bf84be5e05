"""The decision about an operation, for any record, request and instant."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from hypothesis import example, given, settings
from hypothesis import strategies as st
from milepost import Repeat
from milepost.inbox.operation_model import Act, Asked, Operation, OperationState, decide, operation_key

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
MINE, OTHER = b"mine", b"other"

instants = st.integers(-1, 1).map(lambda n: NOW + n * MINUTE)
some = st.one_of(st.none(), instants)


@st.composite
def records(draw: st.DrawFn) -> Operation:
    """A record as the table's CHECKs allow it."""
    state = draw(st.sampled_from(OperationState))
    live = state in {OperationState.RUNNING, OperationState.UNKNOWN}
    expires = None if state is OperationState.UNKNOWN else draw(some if live else instants)
    wake = draw(instants) if live else None
    return Operation(
        id=UUID(int=1),
        fingerprint=draw(st.sampled_from([MINE, OTHER])),
        state=state,
        wake_at=wake,
        expires_at=expires,
        doubt_at=draw(instants) if state is OperationState.UNKNOWN else draw(some),
        code="X",
    )


asked = st.sampled_from(Repeat).map(lambda repeat: Asked(MINE, repeat))
DOES = {Act.BEGIN, Act.TRY}


@settings(max_examples=600)
@given(records(), asked)
def test_every_record_has_an_answer_and_what_may_have_happened_is_never_repeated_blindly(
    record: Operation, asked: Asked
) -> None:
    act = decide(record, asked, NOW).act
    held = record.state is OperationState.RUNNING and record.wake_at is not None and record.wake_at > NOW
    forgotten = record.expires_at is not None and record.expires_at <= NOW and not held
    doubtful = record.state is OperationState.RUNNING or record.doubt_at is not None
    open_ = record.state not in {OperationState.SUCCEEDED, OperationState.FAILED_FINAL}
    if held:
        assert act in {Act.WAIT, Act.REUSED}, "whoever holds it is left alone"
    if open_ and doubtful and asked.repeat is not Repeat.SAFE and not forgotten:
        assert act not in DOES
    if record.fingerprint != MINE and not forgotten:
        assert act is Act.REUSED
    if act is Act.ANSWER:
        assert record.state is OperationState.SUCCEEDED and record.fingerprint == MINE
    if act is Act.REFUSE:
        assert record.state is OperationState.FAILED_FINAL
    if asked.repeat is Repeat.NEVER:
        assert act is not Act.ASK
    if act is Act.BEGIN:
        assert forgotten
    if record.state is OperationState.UNKNOWN:
        assert act is not Act.BEGIN, "it is kept until it is known"


@settings(max_examples=600)
@given(records(), asked)
def test_what_is_asked_about_says_since_when_and_what_is_put_off_says_until_when(
    record: Operation, asked: Asked
) -> None:
    decision = decide(record, asked, NOW)
    if decision.act is Act.ASK:
        assert decision.doubt_at is not None
        assert decision.doubt_at == (record.doubt_at or record.wake_at)
    if decision.act is Act.WAIT:
        assert decision.retry_after is not None and decision.retry_after > timedelta(0)
    if decision.retry_after is not None:
        assert decide(record, asked, NOW + decision.retry_after).act is not decision.act


@given(asked)
def test_nothing_is_known(asked: Asked) -> None:
    assert decide(None, asked, NOW).act is Act.BEGIN


@given(st.tuples(st.text(), st.text(), st.text()), st.tuples(st.text(), st.text(), st.text()))
@example(("a", "bc", "d"), ("ab", "c", "d"))
@example(("1:a", "", ""), ("", "1:a", ""))
def test_two_operations_never_share_a_key(one: tuple[str, str, str], other: tuple[str, str, str]) -> None:
    assert (operation_key(one) == operation_key(other)) == (one == other)
    key = UUID(operation_key(one))
    assert (key.version, key.variant) == (8, "specified in RFC 4122")
    assert operation_key(one) == operation_key(one)


def test_the_key_of_an_operation_never_changes() -> None:
    """Providers remember it: another one after an upgrade would be a second effect."""
    assert operation_key(("", "refund", "o-1")) == "0d5d803c-ebf2-8fad-808e-fab548a2fa7e"
