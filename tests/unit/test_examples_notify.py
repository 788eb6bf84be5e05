"""The parts of the notify example that need no server: verdict, words, faults, ledger and signatures."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from milepost import SignatureRefused, StandardWebhooks
from milepost.examples.notify import demo
from milepost.examples.notify.faults import HookFault, SendFault, bounces, hook_fault, send_fault
from milepost.examples.notify.hooks import new_secret, signed
from milepost.examples.notify.ledger import Hook, Ledger, Message
from milepost.examples.notify.status import WORDS, Job, job
from milepost.examples.notify.verdict import Verdict, compare

JOBS = [
    Job("a", "DELIVERED", "m-1", ended=True),
    Job("b", "BOUNCED", "m-2", ended=True),
    Job("c", "FAILED", reason="NO_SUCH_RECIPIENT", ended=True),
]
SENT = [
    Message(1, "r1", "a", "a@example.com", "hi", "delivered"),
    Message(2, "r2", "b", "b@example.com", "hi", "bounced"),
]
HOOKS = [Hook(1, "m-1-1", False, 200), Hook(1, "m-1-1", False, 200), Hook(2, "forged", True, 401)]


def judged(
    jobs: list[Job] = JOBS, sent: list[Message] = SENT, hooks: list[Hook] = HOOKS, asked: str = "abc"
) -> Verdict:
    return compare(asked, jobs, sent, hooks)


def found(verdict: Verdict) -> list[tuple[str, str]]:
    return [(item.kind, item.notification) for item in verdict.findings]


def test_two_books_that_agree_are_ok() -> None:
    verdict = judged()
    assert not verdict.findings
    assert demo.faults(verdict, 3) == []
    assert (verdict.messages, verdict.reports, verdict.forged) == (2, 2, 1)
    assert demo.last_line(verdict, 3) == (
        "notify ok: 3 notifications, 1 delivered, 1 bounced, 1 failed, 3 kills, 0 lost, 0 doubled"
    )


def test_a_second_message_is_doubled_whatever_it_was_sent_under() -> None:
    again = [replace(SENT[0], n=3), replace(SENT[0], n=4, reference="another")]
    verdict = judged(sent=SENT + again)
    assert found(verdict) == [("doubled", "a"), ("doubled", "a")]
    assert demo.last_line(verdict, 3).startswith("notify failed:")
    assert demo.last_line(verdict, 3).endswith("0 lost, 2 doubled")


def test_a_message_that_nobody_asked_for_is_doubled() -> None:
    assert found(judged(sent=[*SENT, replace(SENT[0], n=3, tag="x")])) == [("doubled", "x")]


def test_a_message_that_was_never_sent_is_lost() -> None:
    assert found(judged(sent=SENT[1:])) == [("lost", "a")]


@pytest.mark.parametrize("word", sorted(WORDS.keys() - {"DELIVERED", "BOUNCED", "FAILED"}))
def test_a_job_without_an_end_is_lost(word: str) -> None:
    assert found(judged(jobs=[replace(JOBS[0], word=word), *JOBS[1:]])) == [("lost", "a")]


def test_a_job_without_a_run_is_lost() -> None:
    assert found(judged(jobs=JOBS[1:])) == [("lost", "a")]


def test_a_failed_job_that_was_sent_is_wrong() -> None:
    assert found(judged(sent=[*SENT, replace(SENT[0], n=3, tag="c")])) == [("wrong", "c")]


def test_another_id_or_another_outcome_is_wrong() -> None:
    assert found(judged(jobs=[replace(JOBS[0], message_id="m-9"), *JOBS[1:]])) == [("wrong", "a")]
    assert found(judged(jobs=[replace(JOBS[0], word="BOUNCED"), *JOBS[1:]])) == [("wrong", "a")]


def test_a_forged_report_that_was_taken_is_wrong() -> None:
    assert found(judged(hooks=[Hook(1, "forged", True, 200)])) == [("wrong", "m-1")]


def test_what_it_did_not_show_keeps_it_from_being_ok() -> None:
    assert demo.faults(judged(), 2) == ["2 kills instead of 3"]
    nothing = demo.faults(judged(jobs=JOBS[:1], sent=SENT[:1], hooks=[], asked="a"), 3)
    assert [line.partition(",")[0] for line in nothing] == [
        "no notification BOUNCED",
        "no notification FAILED",
        "no forged report",
    ]


@pytest.mark.parametrize(
    ("state", "step", "step_state", "noted", "word"),
    [
        ("PENDING", "", "", "QUEUED", "QUEUED"),
        ("RUNNING", "prepare", "RUNNING", "QUEUED", "QUEUED"),
        ("RUNNING", "send", "RUNNING", "SENDING", "SENDING"),
        ("RUNNING", "send", "RETRY_PENDING", "SENDING", "SENDING"),
        ("RUNNING", "send", "UNKNOWN", "SENDING", "CHECKING"),
        ("RUNNING", "send", "RECONCILING", "SENDING", "CHECKING"),
        ("RUNNING", "note_sent", "PENDING", "SENDING", "SENDING"),
        ("WAITING", "reported", "WAITING", "SENT", "SENT"),
        ("WAITING", "reported", "UNKNOWN", "SENT", "SENT"),
        ("RUNNING", "record", "RUNNING", "SENT", "SENT"),
        ("SUCCEEDED", "", "", "DELIVERED", "DELIVERED"),
        ("SUCCEEDED", "", "", "BOUNCED", "BOUNCED"),
        ("FAILED", "", "", "SENDING", "FAILED"),
        ("MANUAL_REQUIRED", "send", "MANUAL_REQUIRED", "SENDING", "NEEDS A PERSON"),
    ],
)
def test_states_in_the_words_of_the_house(
    state: str, step: str, step_state: str, noted: str, word: str
) -> None:
    run = {
        "run": "notification/n-1",
        "state": state,
        "step": step or None,
        "step_state": step_state or None,
        "code": None,
        "cause": "NO_SUCH_RECIPIENT",
    }
    shown = job(run, noted, "m-1")
    assert (shown.id, shown.word) == ("n-1", word)
    assert shown.ended == (state in ("SUCCEEDED", "FAILED", "MANUAL_REQUIRED"))
    assert shown.reason == ("NO_SUCH_RECIPIENT" if state in ("FAILED", "MANUAL_REQUIRED") else "")


def test_twenty_notifications_meet_every_fault() -> None:
    ids = [f"x-{n:03d}" for n in range(100, 120)]
    assert {send_fault(id) for id in ids} == set(SendFault)
    assert {hook_fault(id) for id in ids} == set(HookFault)
    assert any(bounces(id) for id in ids)


async def test_the_provider_books_every_call_and_finds_by_reference(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "provider.sqlite")
    first = await ledger.send("r", "a", "a@example.com", "hi")
    again = await ledger.send("r", "a", "a@example.com", "hi")
    await ledger.end(first.n, "delivered")
    await ledger.hook(HOOKS[0])
    other = Ledger(tmp_path / "provider.sqlite")
    assert other.messages() == [replace(first, state="delivered"), again]
    assert await other.find(reference="r") == other.messages()
    assert await other.find(n=again.n) == [again]
    assert await other.find(reference="x") == []
    assert other.hooks() == HOOKS[:1]
    ledger.close()
    other.close()


def test_its_webhooks_are_signed_as_the_service_expects() -> None:
    secret, now = new_secret(), datetime(2026, 1, 2, tzinfo=UTC)
    headers = signed("e-1", b"{}", secret, int(now.timestamp()))
    StandardWebhooks(secret).verify(headers, b"{}", now)
    with pytest.raises(SignatureRefused):
        StandardWebhooks(new_secret()).verify(headers, b"{}", now)
