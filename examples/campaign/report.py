"""What one run has found: a table for people, one line, and a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from ..stage.kills import Kill
from .book import TRIAL, Campaigns
from .person import Word
from .traffic import KILLS
from .verdict import Line, Verdict

#: Findings shown one by one; the file has all of them.
SHOWN = 40


@dataclass(frozen=True)
class Result:
    """What one run has found."""

    campaigns: Campaigns
    verdict: Verdict
    kills: Sequence[Kill]
    words: Sequence[Word]
    seconds: float

    @property
    def faults(self) -> list[str]:
        """Everything that keeps it from being ok, in words; also what it should have shown and did not."""
        found = [f"{item.kind}: {item.about}: {item.text}" for item in self.verdict.findings]
        found = found[:SHOWN] + ([f"… and {len(found) - SHOWN} more"] if len(found) > SHOWN else [])
        if len(self.kills) != KILLS:
            found.append(f"{len(self.kills)} kills instead of {KILLS}")
        if [word.campaign_id for word in self.words] != [self.campaigns.person.campaign_id]:
            found.append(f"a person was asked {len(self.words)} times instead of once, about the club's")
        found += [
            f"{word.campaign_id}: {word.sent} sent when a person was asked, more than the first batch"
            for word in self.words
            if word.sent > TRIAL
        ]
        if not self._line(self.campaigns.partial.campaign_id).failed:
            found.append("no letter has failed for good, so it shows nothing about that")
        if not self._line(self.campaigns.person.campaign_id).again:
            found.append("no letter was run again, so it shows nothing about that")
        return found

    @property
    def last_line(self) -> str:
        """The line that sums it up."""
        verdict = self.verdict
        partial = self._line(self.campaigns.partial.campaign_id)
        return (
            f"campaign {'failed' if self.faults else 'ok'}: {partial.recipients:,} recipients, {partial.sent:,} "
            f"reached and {self._line(self.campaigns.again.campaign_id).sent:,} of {partial.failed:,} failed by a "
            f"rerun, {self._line(self.campaigns.person.campaign_id).again:,} run again by a person, "
            f"{verdict.messages:,} messages, {len(self.kills)} kills, {verdict.count('lost')} lost, "
            f"{verdict.count('doubled')} doubled, {verdict.count('wrong')} wrong"
        )

    def table(self) -> Table:
        """Draw the campaigns for people."""
        heads = ("campaign", "recipients", "sent", "failed", "run again", "ended as")
        drawn = Table(box=None, pad_edge=False)
        for head in heads:
            drawn.add_column(head, justify="left" if head in ("campaign", "ended as") else "right")
        for line in self.verdict.lines:
            numbers = (line.recipients, line.sent, line.failed, line.again)
            drawn.add_row(line.campaign_id, *(f"{number:,}" for number in numbers), line.state)
        return drawn

    def as_json(self) -> dict[str, Any]:
        """Return all of it as plain data."""
        return {
            "campaigns": [asdict(line) for line in self.verdict.lines],
            "messages": self.verdict.messages,
            "findings": [asdict(item) for item in self.verdict.findings],
            "kills": [asdict(kill) for kill in self.kills],
            "words": [asdict(word) for word in self.words],
            "seconds": round(self.seconds, 1),
        }

    def _line(self, campaign_id: str) -> Line:
        found = (line for line in self.verdict.lines if line.campaign_id == campaign_id)
        return next(found, Line(campaign_id, 0, 0, 0, 0, "not placed"))
