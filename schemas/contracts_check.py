"""Whether a class and a released contract fit, seen from the side that the class is on; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from .commands import NOTHING_SUFFIX, REFUSED_SUFFIX, Negative
from .compatibility import differences
from .contracts import Contract
from .finding import Finding

Side: TypeAlias = Literal["publishes", "consumes", "sends", "answers", "replies"]

#: What does not fail a check.
_REMARKS = frozenset({"NEWER_VERSION"})


@dataclass(frozen=True, slots=True)
class Judged:
    """One class against the released contracts.

    Attributes:
        mine: What the class declares.
        findings: Why it does not fit; remarks do not count as such.
        advice: What to do; '' when nothing is to be done.
        released: Whether there is a contract of this type and version.
    """

    side: Side
    mine: Contract
    findings: Sequence[Finding] = field(default_factory=tuple)
    advice: str = ""
    released: bool = True

    @property
    def compatible(self) -> bool:
        """Whether they fit."""
        return all(finding.code in _REMARKS for finding in self.findings)


def judge(side: Side, mine: Contract, released: Mapping[str, Contract]) -> Judged:
    """Compare a class with what was released.

    Args:
        side: What this service does with it: events it publishes or consumes, commands that it sends or answers, and
            the replies to those that it answers.
        released: Contracts by name.
    """
    newest = max((one.version for one in released.values() if one.type == mine.type), default=0)
    theirs = released.get(mine.name)
    if side in {"consumes", "sends"}:
        return _user(side, mine, theirs, newest)
    if theirs is None:
        return Judged(side, mine, advice="not released yet", released=False)
    found = [*_around(side, mine, theirs), *_owner(side, mine, theirs)]
    advice = (
        f"{mine.name} is released: leave it as it was and declare version={newest + 1} beside it"
        if found
        else ""
    )
    return Judged(side, mine, found, advice)


def with_negatives(released: Mapping[str, Contract]) -> dict[str, Contract]:
    """Return contracts with those of the two replies that every command may get besides its own."""
    schema = Negative.model_json_schema(mode="serialization")
    found = dict(released)
    for one in released.values():
        topic = released[one.reply].topic if one.reply in released else one.topic
        for suffix in (REFUSED_SUFFIX, NOTHING_SUFFIX) if one.kind == "command" else ():
            negative = Contract("reply", one.type + suffix, 1, topic, schema=schema)
            found.setdefault(negative.name, negative)
    return found


def _owner(side: Side, mine: Contract, theirs: Contract) -> list[Finding]:
    """Compare a released version with its owner's class: nobody on the other side may notice an edit."""
    if side == "answers":
        return _told(differences(theirs.schema, mine.schema), "a command that was right is refused")
    broken = _told(differences(mine.schema, theirs.schema), "readers of the released version refuse it")
    # What was written before is on the topic still, and a new reader believes the new contract.
    return broken or _told(differences(theirs.schema, mine.schema), "what is on the topic is not so")


def _user(side: Side, mine: Contract, theirs: Contract | None, newest: int) -> Judged:
    if theirs is None:
        known = f"newest is version {newest}" if newest else "no version is released"
        finding = Finding("NO_CONTRACT", "", f"there is no {mine.file}; {known}")
        advice = (
            f"declare version={newest}"
            if newest
            else f"ask its owner for the file; if this service publishes it too, say --also {mine.type}"
        )
        return Judged(side, mine, [finding], advice, released=False)
    body = (
        differences(theirs.schema, mine.schema)
        if side == "consumes"
        else differences(mine.schema, theirs.schema)
    )
    found = [*_around(side, mine, theirs), *body]
    advice = (
        f"make the class read what {mine.name} says" if side == "consumes" else f"send what {mine.name} says"
    )
    if newest > mine.version and side == "consumes":
        reason = f"version {newest} is released; events of it are parked as EVENT_TOO_NEW until the class is raised"
        found.append(Finding("NEWER_VERSION", "", reason))
    fits = all(finding.code in _REMARKS for finding in found)
    return Judged(side, mine, found, "" if fits else advice)


def _around(side: Side, mine: Contract, theirs: Contract) -> list[Finding]:
    """Compare what travels around the body."""
    found = []
    # A requester says where it wants its replies.
    if mine.topic != theirs.topic and theirs.kind != "reply":
        found.append(Finding("OTHER_TOPIC", "", f"topic {mine.topic!r}, released is {theirs.topic!r}"))
    if mine.key != theirs.key and (mine.key or side != "consumes"):
        reason = f"key {mine.key!r}, released is {theirs.key!r}: another order"
        found.append(Finding("OTHER_KEY", mine.key, reason))
    if mine.codec != theirs.codec:
        found.append(Finding("OTHER_CODEC", "", f"codec {mine.codec!r}, released is {theirs.codec!r}"))
    if mine.kind == theirs.kind == "command" and mine.reply != theirs.reply:
        found.append(Finding("OTHER_REPLY", "", f"reply {mine.reply}, released is {theirs.reply}"))
    if side in {"publishes", "replies"} and mine.correlation != theirs.correlation:
        reason = f"correlation {mine.correlation!r}, released is {theirs.correlation!r}"
        found.append(Finding("OTHER_CORRELATION", mine.correlation, reason))
    return found


def _told(findings: Sequence[Finding], why: str) -> list[Finding]:
    return [Finding(one.code, one.path, f"{one.reason}: {why}") for one in findings]
