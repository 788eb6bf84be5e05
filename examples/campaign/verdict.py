"""Compares the campaigns with what the provider really sent. Pure: facts in, verdict out."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from ..notify.ledger import Message
from .book import is_blocked, is_gone, letter_tag
from .contracts import PlaceCampaign, Reader

Kind: TypeAlias = Literal["lost", "doubled", "wrong"]


@dataclass(frozen=True, slots=True)
class Recipient:
    """A recipient as the service has noted it; `message_id` is '' when nothing was sent."""

    campaign_id: str
    reader: int
    message_id: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """A letter's run: of which campaign and reader, how it ended, and whether it is one that was made by a retry."""

    campaign_id: str
    reader: int
    state: str
    again: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """How a campaign ended: its run's state, and the numbers that its last step has noted."""

    state: str
    sent: int | None
    failed: int | None


@dataclass(frozen=True, slots=True)
class Facts:
    """All that is known at the end.

    Attributes:
        readers: With the addresses of the beginning.
        placed: The campaigns, in the order in which they were placed.
        expected: The state in which each should end, by id.
        ended: How each has ended, by id.
        failed_items: The readers whose letter has failed, by what the run itself says, of campaigns that ended so.
        messages: Everything the provider has sent.
    """

    readers: Sequence[Reader]
    placed: Sequence[PlaceCampaign]
    expected: Mapping[str, str]
    ended: Mapping[str, Ended]
    failed_items: Mapping[str, Collection[int]]
    recipients: Sequence[Recipient]
    runs: Sequence[Run]
    messages: Sequence[Message]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that should not be.

    Attributes:
        kind: "lost" (should have got it and did not), "doubled" (got it once too often) or "wrong" (the books disagree
            otherwise).
        about: The letter or the campaign.
    """

    kind: Kind
    about: str
    text: str


@dataclass(frozen=True, slots=True)
class Line:
    """One campaign in the table of results.

    Attributes:
        again: Letters that were run again within it.
    """

    campaign_id: str
    recipients: int
    sent: int
    failed: int
    again: int
    state: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The campaigns, and everything that is wrong.

    Attributes:
        messages: What the provider has sent.
    """

    lines: Sequence[Line]
    messages: int
    findings: Sequence[Finding] = field(default=())

    def count(self, kind: Kind) -> int:
        """Return the number of findings of a kind."""
        return sum(finding.kind == kind for finding in self.findings)


def compare(facts: Facts) -> Verdict:
    """Compare the campaigns with the provider's ledger.

    Returns:
        The verdict. It has no findings only if every reader who should get an issue has got it exactly once, each
        campaign has reached exactly those whom it could reach and says so, and what was run again, within a campaign or
        as one of its own, is what had failed and nothing else.
    """
    lines = [_line(place, facts) for place in facts.placed]
    findings = [*_sent(facts), *_reached(facts), *_items(facts), *_again(facts)]
    findings += [finding for line in lines for finding in _ended(line, facts)]
    return Verdict(lines, len(facts.messages), tuple(findings))


def _line(place: PlaceCampaign, facts: Facts) -> Line:
    mine = [row for row in facts.recipients if row.campaign_id == place.campaign_id]
    sent = sum(bool(row.message_id) for row in mine)
    again = sum(run.again for run in facts.runs if run.campaign_id == place.campaign_id)
    ended = facts.ended.get(place.campaign_id)
    state = ended.state if ended else "without a run"
    return Line(place.campaign_id, len(mine), sent, len(mine) - sent, again, state)


def _sent(facts: Facts) -> Iterable[Finding]:
    """Each reader of an issue has one message of it, which is the one that the service has noted."""
    issues = {place.campaign_id: place.issue for place in facts.placed}
    sent: dict[str, list[str]] = defaultdict(list)
    for message in facts.messages:
        sent[message.tag].append(message.id)
    noted: dict[str, list[str]] = {tag: [] for tag in _wanted(facts)}
    for row in facts.recipients:
        tag = letter_tag(issues[row.campaign_id], row.reader)
        noted.setdefault(tag, []).extend([row.message_id] if row.message_id else [])
    for tag, ids in noted.items():
        there = sent.pop(tag, [])
        yield from (Finding("doubled", tag, f"{id}: sent again, after {there[0]}") for id in there[1:])
        if not there:
            yield Finding("lost", tag, "the provider has never sent it")
        elif ids != there[:1]:
            yield Finding("wrong", tag, f"noted as {', '.join(ids) or 'not sent'}, sent as {there[0]}")
    for tag, there in sent.items():
        yield from (Finding("doubled", tag, f"{id}: nobody asked for it") for id in there)


def _wanted(facts: Facts) -> Iterable[str]:
    for place in facts.placed:
        if place.audience:
            yield from (
                letter_tag(place.issue, reader.id)
                for reader in facts.readers
                if reader.audience == place.audience
            )


def _reached(facts: Facts) -> Iterable[Finding]:
    """A campaign to a list has not reached those whose address nobody has, and has reached all others."""
    gone = {reader.id for reader in facts.readers if is_gone(reader)}
    lists = {place.campaign_id for place in facts.placed if place.audience}
    for row in facts.recipients:
        if row.campaign_id in lists and bool(row.message_id) == (row.reader in gone):
            told = "sent to nobody" if row.message_id else "not sent, though nothing was in the way"
            yield Finding("wrong", f"{row.campaign_id}-{row.reader:05d}", told)


def _items(facts: Facts) -> Iterable[Finding]:
    """What a run that ended partially lists as failed is what was not sent."""
    for id, readers in facts.failed_items.items():
        unsent = {row.reader for row in facts.recipients if row.campaign_id == id and not row.message_id}
        for reader in sorted(unsent ^ set(readers)):
            told = "listed as failed, and sent" if reader in readers else "not sent, and not listed as failed"
            yield Finding("wrong", f"{id}-{reader:05d}", told)


def _again(facts: Facts) -> Iterable[Finding]:
    """What was run again had failed: within a campaign the letters that were blocked, else those not reached."""
    blocked = {reader.id for reader in facts.readers if is_blocked(reader)}
    failed = {(run.campaign_id, run.reader) for run in facts.runs if run.state != "SUCCEEDED"}
    for (id, reader), count in Counter((run.campaign_id, run.reader) for run in facts.runs).items():
        if count > 1 and not ((id, reader) in failed and reader in blocked):
            yield Finding("wrong", f"{id}-{reader:05d}", f"run {count} times, and it had not failed")
    for place in facts.placed:
        if place.failed_of:
            missed = {
                row.reader
                for row in facts.recipients
                if row.campaign_id == place.failed_of and not row.message_id
            }
            taken = {row.reader for row in facts.recipients if row.campaign_id == place.campaign_id}
            for reader in sorted(missed ^ taken):
                told = "had got it" if reader in taken else "had not got it, and was left out"
                yield Finding("wrong", f"{place.campaign_id}-{reader:05d}", told)


def _ended(line: Line, facts: Facts) -> Iterable[Finding]:
    expected = facts.expected[line.campaign_id]
    if line.state != expected:
        yield Finding("wrong", line.campaign_id, f"{line.state} instead of {expected}")
    ended = facts.ended.get(line.campaign_id)
    noted = (ended.sent, ended.failed) if ended else (None, None)
    if noted != (line.sent, line.failed):
        told = f"says {noted[0]} sent and {noted[1]} failed, and it is {line.sent} and {line.failed}"
        yield Finding("wrong", line.campaign_id, told)
