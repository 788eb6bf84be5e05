"""The words and references of the command line, without a database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from milepost.console.findings import (
    Check,
    Group,
    Worker,
    judge_durability,
    judge_event_topics,
    judge_outbox,
    judge_overdue,
    judge_partitions,
    judge_schema,
    judge_states,
    judge_topics,
    judge_workers,
)
from milepost.console.letters import judge_letters, judge_unsent, parked_words
from milepost.console.listing import LONGEST, Entry, first_line, lay_out, without_code
from milepost.console.migrate import migration_words
from milepost.console.model import (
    ByKey,
    ByPrefix,
    HistoryLine,
    Lag,
    Plan,
    RunDetail,
    StepLine,
    Unsent,
    deltas,
    run_reference,
    situation,
)
from milepost.console.options import hoist
from milepost.console.outbox import outbox_words
from milepost.console.output import clean, column, json_line, rfc3339, span
from milepost.console.runs import time_limits
from milepost.console.serve import log_level, split, words_of
from milepost.schemas.errors import StartError, UsageError
from milepost.schemas.states import RunState, StepKind, StepState
from milepost.streams.migrate import Migration
from rich.text import Text

NOW = datetime(2026, 11, 29, 20, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("words", "ordered"),
    [
        (["runs", "list", "--json"], ["--json", "runs", "list"]),
        (["outbox", "--database", "postgresql://h/d"], ["--database", "postgresql://h/d", "outbox"]),
        (["check", "--app=shop:service", "--strict"], ["--app=shop:service", "check", "--strict"]),
        (["explain", "--", "--json"], ["explain", "--", "--json"]),
        (["outbox", "--database"], ["outbox", "--database"]),
        ([], []),
    ],
)
def test_global_options_may_stand_anywhere(words: list[str], ordered: list[str]) -> None:
    assert hoist(words) == ordered


@pytest.mark.parametrize(
    ("length", "words"),
    [
        (timedelta(milliseconds=40), "40ms"),
        (timedelta(seconds=3.2), "3.2s"),
        (timedelta(seconds=59.4), "59s"),
        (timedelta(seconds=61), "1m"),
        (timedelta(hours=2), "2h"),
        (timedelta(hours=2, minutes=5), "2h 5m"),
        (timedelta(days=3, hours=4, minutes=59), "3d 4h"),
        (timedelta(days=3), "3d"),
        (timedelta(seconds=-5), "0ms"),
    ],
)
def test_durations_are_written_in_their_largest_units(length: timedelta, words: str) -> None:
    assert span(length) == words


def test_stored_text_cannot_steer_the_terminal() -> None:
    assert clean("a\x1b[31mb\rc\x00\x9b") == "a�[31mb�c��"
    assert clean("two\nlines\tand a tab") == "two\nlines\tand a tab"


def test_json_has_rfc3339_times_seconds_and_one_line() -> None:
    line = json_line({"at": NOW, "took": timedelta(milliseconds=1500), "id": UUID(int=1), "text": "a\nb…"})
    assert line == (
        '{"at":"2026-11-29T20:00:00Z","took":1.5,"id":"00000000-0000-0000-0000-000000000001","text":"a\\nb\\u2026"}'
    )
    assert rfc3339(NOW.astimezone()) == "2026-11-29T20:00:00Z"


def test_a_run_is_named_by_key_or_by_the_beginning_of_its_id() -> None:
    assert run_reference("order/o/1") == ByKey("order", "o/1")
    assert run_reference("0197C1…") == ByPrefix(
        UUID("0197c100-0000-0000-0000-000000000000"), UUID("0197c1ff-ffff-ffff-ffff-ffffffffffff")
    )
    whole = UUID("0197c1aa-0000-7000-8000-000000000001")
    assert run_reference(str(whole)) == ByPrefix(whole, whole)


@pytest.mark.parametrize(
    "text", ["", "o-1", "/o-1", "order/", "019", "0197c1aa-0000-7000-8000-000000000001-22"]
)
def test_anything_else_is_no_name_of_a_run(text: str) -> None:
    with pytest.raises(UsageError, match="MP605"):
        run_reference(text)


def step(name: str, state: StepState, **other: Any) -> StepLine:
    live = state not in {StepState.SUCCEEDED, StepState.FAILED, StepState.COMPENSATED}
    fields: dict[str, Any] = {
        "name": name,
        "iteration": "",
        "kind": StepKind.STEP,
        "state": state,
        "undo_of": None,
        "queue": "default",
        "attempt": 1,
        "probes": 0,
        "probed": False,
        "doubt": False,
        "code": None,
        "message": None,
        "worker": None,
        "wake_at": NOW if live else None,
        "since": NOW - timedelta(minutes=3),
        "started_at": None,
        "finished_at": None,
    }
    return StepLine(**fields | other)


def detail(state: RunState, *steps: StepLine, **other: Any) -> RunDetail:
    fields: dict[str, Any] = {
        "id": UUID(int=1),
        "tenant": "",
        "service": "shop",
        "saga": "order",
        "key": "o-1",
        "definition": 1,
        "state": state,
        "code": None,
        "cause": None,
        "correlation_id": "c",
        "traceparent": None,
        "created_at": NOW - timedelta(minutes=10),
        "updated_at": NOW,
        "finished_at": None,
        "wake_at": NOW,
        "now": NOW,
        "steps": steps,
    }
    return RunDetail(**fields | other)


def test_where_a_run_stands_in_words() -> None:
    waits = step("delivered", StepState.WAITING, wake_at=datetime(2026, 12, 2, 18, 13, 59, tzinfo=UTC))
    run = detail(RunState.WAITING, step("ship", StepState.SUCCEEDED), waits)
    assert situation(run, Plan(), span) == "delivered until 2026-12-02 18:13Z"
    plan = Plan(nodes=["ship", "delivered", "close_order"], on_timeout={"delivered": "reconcile"})
    assert situation(run, plan, span) == "delivered until 2026-12-02 18:13Z (then RECONCILE)"
    assert plan.not_reached(run) == ["close_order"]
    assert Plan().not_reached(run) == []

    soon = step("delivered", StepState.WAITING, wake_at=NOW + timedelta(seconds=33))
    words = "delivered until 2026-11-29 20:00:33Z (in 33s, then RECONCILE)"
    assert situation(detail(RunState.WAITING, soon), plan, span) == words
    assert situation(detail(RunState.WAITING, soon), Plan(), span).endswith("20:00:33Z (in 33s)")

    for kind in (StepKind.CHILD, StepKind.EACH):  # when it is looked after again is no time by which it ends
        others = step("sent", StepState.WAITING, kind=kind, wake_at=NOW + timedelta(seconds=33))
        assert situation(detail(RunState.WAITING, others), Plan(), span) == "sent for 3m"

    doubted = step("charge", StepState.MANUAL_REQUIRED, code="X")
    assert situation(detail(RunState.MANUAL_REQUIRED, doubted, code="OUTCOME_UNKNOWN"), Plan(), span) == (
        "charge for 3m, OUTCOME_UNKNOWN"
    )
    retried = step("charge", StepState.RETRY_PENDING, code="TIMEOUT")
    assert (
        situation(detail(RunState.RUNNING, retried), Plan(), span) == "charge RETRY_PENDING for 3m, TIMEOUT"
    )
    second_try = step("charge", StepState.RUNNING, code="TIMEOUT", attempt=2)
    assert situation(detail(RunState.RUNNING, second_try), Plan(), span) == "charge for 3m"
    assert situation(detail(RunState.PENDING), Plan(), span) == "since 2026-11-29 20:00Z"
    ended = detail(RunState.COMPENSATED, finished_at=NOW, cause="CARRIER_CLOSED")
    assert situation(ended, Plan(), span) == "after 10m, because of CARRIER_CLOSED"


def test_what_does_not_fit_its_column_stands_below() -> None:
    entries = [
        Entry([Text("a"), Text(), Text("1"), Text("short")]),
        Entry([Text("bcd"), Text(), Text("22"), Text("x" * 40)], "one two"),
    ]
    columns = [column("name"), column("none"), column("n", right=True), column("data")]
    lines = [line.plain for line in lay_out(columns, entries, 30)]
    assert lines == [
        "name   n  data",
        "a      1  short",
        "bcd   22",
        "      " + "x" * 24,
        "      " + "x" * 16,
        "      one two",
    ]
    wide = [line.plain for line in lay_out(columns, entries, 80)]
    assert wide[2] == "bcd   22  " + "x" * 40


def test_messages_are_cut_and_name_their_code_once() -> None:
    assert first_line("one") == "one"
    assert first_line("\none\ntwo") == "one …"
    assert first_line("x" * 300) == "x" * LONGEST + " …"
    assert first_line("") == ""
    assert without_code("MP330", "MP330 ctx.use(Bank): nothing") == "ctx.use(Bank): nothing"
    assert without_code("TIMEOUT", "TIMEOUTS are long") == "TIMEOUTS are long"
    assert without_code("KEYERROR", "KeyError: 'x'") == "KeyError: 'x'"
    assert without_code(None, "text") == "text"


def test_only_a_doubted_failure_says_so() -> None:
    assert step("a", StepState.FAILED, doubt=True).state_words == " (outcome in doubt)"
    assert step("a", StepState.FAILED).state_words == ""
    assert step("a", StepState.RUNNING, doubt=True).state_words == ""


@pytest.mark.parametrize(
    ("traceparent", "trace"),
    [
        ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "4bf92f3577b34da6a3ce929d0e0e4736"),
        (None, None),
        ("nonsense", None),
        ("00-4bf9-00f067aa0ba902b7-01", None),
    ],
)
def test_the_trace_is_read_from_the_stored_traceparent(traceparent: str | None, trace: str | None) -> None:
    assert detail(RunState.RUNNING, traceparent=traceparent).trace_id == trace


def test_the_timeline_counts_from_row_to_row() -> None:
    nothing: dict[str, Any] = {"step": None, "iteration": "", "attempt": None, "data": {}}
    rows = [
        HistoryLine(n=n, at=NOW + timedelta(seconds=at), event="e", **nothing)
        for n, at in enumerate([0, 5, 35])
    ]
    assert deltas(rows) == [None, timedelta(seconds=5), timedelta(seconds=30)]
    assert deltas(rows[:0]) == [None]


def test_announcements_in_words() -> None:
    ready = {
        "event": "ready",
        "roles": ["relay", "waker"],
        "parts": {"relay": "leader, epoch 7", "waker": "ticking"},
    }
    assert words_of(ready) == "ready: relay, waker\n  relay  leader, epoch 7\n  waker  ticking"
    assert words_of({"event": "health", "part": "relay", "ok": False, "detail": "Kafka is away"}) == (
        "relay: NOT WELL; Kafka is away"
    )
    assert words_of({"event": "stopping", "grace_s": 25.0}) == "stopping, at most 25.0 s"
    assert words_of({"event": "stopped"}) == "stopped"
    assert words_of({"event": "starting", "roles": ["relay", "waker"]}) == "starting: roles relay, waker"


def test_how_much_is_logged() -> None:
    assert [log_level(text) for text in (None, "DEBUG", "error")] == [20, 10, 40]
    with pytest.raises(StartError, match="MP203"):
        log_level("loud")


def test_lists_may_be_repeated_or_separated_by_commas() -> None:
    assert split(["relay, waker", "worker"]) == ["relay", "waker", "worker"]
    assert split([]) is None


def test_migrations_in_words() -> None:
    assert migration_words(Migration(3, 4, ["a.sql"]), dry_run=False) == "schema 3 → 4, 1 file"
    assert migration_words(Migration(4, 4, []), dry_run=False) == "schema 4, nothing to do"
    assert "nothing was changed" in migration_words(Migration(0, 2, ["a.sql", "b.sql"]), dry_run=True)


def test_the_outbox_in_words() -> None:
    assert outbox_words(Lag(12, timedelta(milliseconds=40), 7, True)) == "lag 12, oldest 40ms; relay epoch 7"
    assert outbox_words(Lag(0, None, 7, False)) == "lag 0, nothing waits; relay epoch 7, no relay runs now"
    assert outbox_words(Lag(0, None, None, False)) == "lag 0, nothing waits; no relay has ever run here"


def found(check: Check | None) -> tuple[str, str | None]:
    assert check is not None
    return check.severity, check.code


def test_doctor_judges_schema_and_partitions() -> None:
    assert found(judge_schema(1, 1)) == ("ok", None)
    assert found(judge_schema(0, 1)) == ("error", "MP620")
    assert found(judge_schema(2, 1)) == ("error", "MP620")
    assert found(judge_partitions({"outbox": 3, "history": 30})) == ("ok", None)
    assert found(judge_partitions({"outbox": 2, "history": 30})) == ("error", "MP621")
    assert "fails now" in judge_partitions({"outbox": -1, "history": 30}).text


def test_doctor_judges_the_relay_by_what_waits() -> None:
    minute = timedelta(minutes=1)
    assert found(judge_outbox(Lag(3, minute, 7, True))) == ("ok", None)
    assert found(judge_outbox(Lag(3, 2 * minute, 7, True))) == ("error", "MP623")
    assert found(judge_outbox(Lag(3, minute, 7, False))) == ("warning", "MP622")
    assert found(judge_outbox(Lag(3, 2 * minute, 7, False))) == ("error", "MP622")
    assert found(judge_outbox(Lag(0, None, None, False))) == ("warning", "MP622")


def test_doctor_judges_workers_and_what_is_due() -> None:
    assert found(judge_workers([Worker("shop", "h:1", ["worker"])], 5)) == ("ok", None)
    assert found(judge_workers([], 0)) == ("warning", "MP624")
    assert found(judge_workers([], 5)) == ("error", "MP624")
    assert found(judge_overdue(Group("overdue", 0, timedelta(0)))) == ("ok", None)
    assert found(judge_overdue(Group("overdue", 1, timedelta(minutes=2), "order/o-1"))) == ("error", "MP625")


def test_doctor_judges_what_waits_for_somebody() -> None:
    hour = timedelta(hours=1)
    groups = [
        Group(state, 2, hour, "order/o-1") for state in ("UNKNOWN", "MANUAL_REQUIRED", "COMPENSATION_FAILED")
    ]
    assert [found(check) for check in judge_states(groups)] == [
        ("warning", "MP626"),
        ("warning", "MP627"),
        ("error", "MP628"),
    ]
    assert [found(check) for check in judge_states([])] == [("ok", None)]
    assert [found(check) for check in judge_letters([Group("x", 1, hour)])] == [("warning", "MP629")]
    assert [found(check) for check in judge_letters([])] == [("ok", None)]


def test_what_the_relay_put_aside_is_not_called_a_handlers_failure() -> None:
    missing = Unsent("orders", "TOPIC_MISSING", 3, timedelta(minutes=5))
    (check,) = judge_unsent([missing])
    assert found(check) == ("error", "MP633")
    assert check.text == "3 events were committed but not sent: topic orders does not exist (oldest 5m)."
    assert check.fix == "Create it; then they go by themselves."
    assert parked_words(missing) == "3 parked: topic orders missing (oldest 5m)"
    denied, large, held, other = (
        Unsent("t", code, 1, timedelta(0)) for code in ("TOPIC_DENIED", "TOO_LARGE", "KEY_HELD", "NEW_CODE")
    )
    codes = [found(check) for check in judge_unsent([denied, large, held, other])]
    assert codes == [("error", "MP633"), ("error", "MP634"), ("error", "MP634"), ("error", "MP634")]
    assert next(judge_unsent([large])).text.startswith(
        "1 event was committed but not sent: the record is larger"
    )
    assert "NEW_CODE" in parked_words(other)
    assert list(judge_unsent([])) == []


def test_doctor_judges_durability_and_topics() -> None:
    assert judge_durability([], synchronous=False) is None
    assert judge_durability(["order v1 charge"], synchronous=True) is None
    assert found(judge_durability(["order v1 charge"], synchronous=False)) == ("warning", "MP630")
    assert judge_topics([], [], served=True) is None
    assert found(judge_topics(["a"], ["a", "b"], served=True)) == ("ok", None)
    assert found(judge_topics(["a"], [], served=True)) == ("error", "MP631")
    assert found(judge_topics(["a"], [], served=False)) == ("warning", "MP631")
    assert judge_event_topics([], [], create=False) is None
    assert found(judge_event_topics(["a"], ["a", "b"], create=False)) == ("ok", None)
    refused = judge_event_topics(["a", "b"], ["b"], create=False)
    assert found(refused) == ("error", "MP632")
    assert refused is not None and "the topic a, which" in refused.text
    assert found(judge_event_topics(["a"], [], create=True)) == ("warning", "MP632")


def test_how_long_a_run_may_take_in_words() -> None:
    assert time_limits(detail(RunState.RUNNING), Plan()) == ""
    due = datetime(2026, 12, 1, 16, tzinfo=UTC)
    run = detail(
        RunState.WAITING, deadline_at=due, active_for=timedelta(minutes=2), now=due - timedelta(hours=5)
    )
    plan = Plan(active_timeout=timedelta(hours=4))
    assert time_limits(run, plan) == "deadline 2026-12-01 16:00Z (in 5h), active for 2m of 4h"
    late = detail(RunState.COMPENSATING, deadline_at=due, now=due + timedelta(minutes=1))
    assert time_limits(late, Plan()) == "deadline 2026-12-01 16:00Z (1m ago)"
    assert time_limits(detail(RunState.EXPIRED, deadline_at=due), Plan()) == "deadline 2026-12-01 16:00Z"
