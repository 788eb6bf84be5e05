"""The campaign example's verdict: what it takes to be ok, that each kind of wrong is found; its readers and faults."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from milepost.examples.campaign.book import (
    TRIAL,
    campaigns,
    club_size,
    corrected,
    is_blocked,
    is_gone,
    readers,
    send_fault,
)
from milepost.examples.campaign.contracts import PlaceCampaign, Reader
from milepost.examples.campaign.facts import letter_run
from milepost.examples.campaign.person import Word
from milepost.examples.campaign.report import Result
from milepost.examples.campaign.verdict import Ended, Facts, Recipient, Run, Verdict, compare
from milepost.examples.notify.faults import SendFault
from milepost.examples.notify.ledger import Message
from milepost.examples.stage.kills import Kill
from pydantic import ValidationError

CAMPAIGNS = campaigns("x")
SPRING, CLUB, AGAIN = "x-spring", "x-club", "x-spring-again"
READERS = [
    Reader(id=1, address="a@example.com", audience="everybody"),
    Reader(id=2, address="b@gone.example", audience="everybody"),
    Reader(id=8, address="c@blocked.example", audience="club"),
    Reader(id=9, address="d@example.com", audience="club"),
]
FACTS = Facts(
    readers=READERS,
    placed=[CAMPAIGNS.partial, CAMPAIGNS.person, CAMPAIGNS.again],
    expected=CAMPAIGNS.ends,
    ended={
        SPRING: Ended("PARTIALLY_SUCCEEDED", 1, 1),
        CLUB: Ended("SUCCEEDED", 2, 0),
        AGAIN: Ended("SUCCEEDED", 1, 0),
    },
    failed_items={SPRING: [2]},
    recipients=[
        Recipient(SPRING, 1, "m-1"),
        Recipient(SPRING, 2),
        Recipient(CLUB, 8, "m-3"),
        Recipient(CLUB, 9, "m-2"),
        Recipient(AGAIN, 2, "m-4"),
    ],
    runs=[
        Run(SPRING, 1, "SUCCEEDED"),
        Run(SPRING, 2, "FAILED"),
        Run(CLUB, 8, "FAILED"),
        Run(CLUB, 8, "SUCCEEDED", again=True),
        Run(CLUB, 9, "SUCCEEDED"),
        Run(AGAIN, 2, "SUCCEEDED"),
    ],
    messages=[
        Message(n, f"r{n}", tag, "", "", "accepted")
        for n, tag in enumerate(("spring-00001", "club-00009", "club-00008", "spring-00002"), 1)
    ],
)
KILLS = [Kill("engine-1", 1, "")] * 3
WORDS = [Word(CLUB, "trial", 37, "retry accepted")]


def found(facts: Facts) -> list[tuple[str, str]]:
    return [(item.kind, item.about) for item in compare(facts).findings]


def result(facts: Facts = FACTS, kills: list[Kill] = KILLS, words: list[Word] = WORDS) -> Result:
    return Result(CAMPAIGNS, compare(facts), kills, words, 1.0)


def without(facts: Facts, campaign_id: str, reader: int) -> list[Recipient]:
    return [row for row in facts.recipients if (row.campaign_id, row.reader) != (campaign_id, reader)]


def test_books_that_agree_are_ok() -> None:
    assert found(FACTS) == []
    assert result().faults == []
    assert result().last_line == (
        "campaign ok: 2 recipients, 1 reached and 1 of 1 failed by a rerun, 1 run again by a person, 4 messages, "
        "3 kills, 0 lost, 0 doubled, 0 wrong"
    )
    assert [line.again for line in compare(FACTS).lines] == [0, 1, 0]


def test_a_message_too_many_is_doubled_whatever_campaign_it_came_with() -> None:
    again = replace(FACTS.messages[0], n=9, reference="another")
    assert found(replace(FACTS, messages=[*FACTS.messages, again])) == [("doubled", "spring-00001")]
    stranger = replace(again, tag="spring-77777")
    assert found(replace(FACTS, messages=[*FACTS.messages, stranger])) == [("doubled", "spring-77777")]


def test_a_reader_who_got_nothing_is_lost() -> None:
    assert ("lost", "spring-00001") in found(replace(FACTS, messages=FACTS.messages[1:]))
    forgotten = replace(FACTS, messages=FACTS.messages[1:], recipients=without(FACTS, SPRING, 1))
    assert ("lost", "spring-00001") in found(forgotten), "also one who was left out of the campaign"


def test_a_message_that_is_noted_otherwise_is_wrong() -> None:
    other = [*without(FACTS, SPRING, 1), Recipient(SPRING, 1, "m-9")]
    assert found(replace(FACTS, recipients=other)) == [("wrong", "spring-00001")]
    none = [*without(FACTS, AGAIN, 2), Recipient(AGAIN, 2)]
    assert ("wrong", "spring-00002") in found(replace(FACTS, recipients=none))


def test_one_who_was_not_reached_has_an_address_that_nobody_has() -> None:
    there = [reader.model_copy(update={"address": "b@example.com"}) for reader in READERS]
    assert ("wrong", f"{SPRING}-00002") in found(replace(FACTS, readers=there))


@pytest.mark.parametrize(("listed", "wrong"), [([], 2), ([1, 2], 1)])
def test_a_run_lists_as_failed_what_was_not_sent(listed: list[int], wrong: int) -> None:
    assert found(replace(FACTS, failed_items={SPRING: listed})) == [("wrong", f"{SPRING}-0000{wrong}")]


def test_only_what_failed_is_run_again() -> None:
    twice = [*FACTS.runs, Run(CLUB, 9, "SUCCEEDED", again=True)]
    assert found(replace(FACTS, runs=twice)) == [("wrong", f"{CLUB}-00009")]
    gone = [*FACTS.runs, Run(SPRING, 2, "FAILED", again=True)]
    assert found(replace(FACTS, runs=gone)) == [("wrong", f"{SPRING}-00002")], "nobody has asked for that"


def test_a_rerun_takes_all_who_were_not_reached_and_nobody_else() -> None:
    more = [*FACTS.recipients, Recipient(AGAIN, 1)]
    assert ("wrong", f"{AGAIN}-00001") in found(replace(FACTS, recipients=more))
    assert ("wrong", f"{AGAIN}-00002") in found(replace(FACTS, recipients=without(FACTS, AGAIN, 2)))


@pytest.mark.parametrize(
    "ended",
    [Ended("SUCCEEDED", 1, 1), Ended("PARTIALLY_SUCCEEDED", 2, 0), Ended("MANUAL_REQUIRED", None, None)],
)
def test_a_campaign_ends_as_it_should_and_says_how_many(ended: Ended) -> None:
    findings = found(replace(FACTS, ended={**FACTS.ended, SPRING: ended}))
    assert set(findings) == {("wrong", SPRING)}


def test_what_it_did_not_show_keeps_it_from_being_ok() -> None:
    assert result(kills=KILLS[1:]).faults == ["2 kills instead of 3"]
    assert result(words=[]).faults == ["a person was asked 0 times instead of once, about the club's"]
    early = [replace(WORDS[0], sent=TRIAL + 1)]
    assert result(words=early).faults == [
        f"{CLUB}: 51 sent when a person was asked, more than the first batch"
    ]
    nothing = Result(CAMPAIGNS, Verdict([], 0), KILLS, WORDS, 1.0)
    assert [line.partition(",")[0] for line in nothing.faults] == [
        "no letter has failed for good",
        "no letter was run again",
    ]
    assert nothing.last_line.startswith("campaign failed:")


def test_many_findings_are_not_all_shown() -> None:
    facts = replace(FACTS, messages=[*FACTS.messages] + [replace(FACTS.messages[0], n=9)] * 50)
    assert len(result(facts).faults) == 41
    assert result(facts).faults[-1] == "… and 10 more"
    assert len(result(facts).as_json()["findings"]) == 50


@pytest.mark.parametrize("count", [200, 1000])
def test_the_readers_hold_every_fault_and_the_batches_stay_on_their_side_of_the_threshold(count: int) -> None:
    people = readers(count)
    everybody = [reader for reader in people if reader.audience == "everybody"]
    club = [reader for reader in people if reader.audience == "club"]
    assert len(everybody) == count
    assert len(club) == club_size(count) > TRIAL
    assert {send_fault(reader.id) for reader in everybody} == {*SendFault} - {SendFault.REFUSES}
    gone = [reader for reader in everybody if is_gone(reader)]
    assert 0.95 < 1 - len(gone) / count < 1
    assert 0.9 < 1 - sum(map(is_gone, everybody[:TRIAL])) / TRIAL < 1
    assert 1 - sum(map(is_blocked, club[:TRIAL])) / TRIAL < 0.9
    assert not any(send_fault(reader.id) is not SendFault.NONE for reader in gone)
    assert [reader.id for reader in corrected(people)] == [reader.id for reader in gone]
    assert not any(map(is_gone, corrected(people)))
    assert Counter(reader.id for reader in people).most_common(1)[0][1] == 1


def test_a_letters_key_says_whose_it_is_and_whether_it_was_run_again() -> None:
    assert letter_run("x-spring-again-00042", "FAILED") == Run("x-spring-again", 42, "FAILED")
    assert letter_run("x-club-00008~2", "SUCCEEDED") == Run("x-club", 8, "SUCCEEDED", again=True)


@pytest.mark.parametrize("given", [{}, {"audience": "club", "failed_of": "x"}])
def test_a_campaign_goes_to_a_list_or_to_those_whom_another_did_not_reach(given: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match="either audience or failed_of"):
        PlaceCampaign(campaign_id="x", issue="spring", **given)
