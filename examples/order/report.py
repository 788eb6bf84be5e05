"""What one run has found, in one line and as a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..stage.kills import Kill
from .person import Word
from .traffic import KILLS
from .verdict import Verdict


@dataclass(frozen=True)
class Result:
    """What one run has found."""

    verdict: Verdict
    kills: Sequence[Kill]
    words: Sequence[Word]
    seconds: float

    @property
    def faults(self) -> list[str]:
        """Everything that keeps it from being ok, in words."""
        return faults(self.verdict, len(self.kills), self.words)

    def as_json(self) -> dict[str, Any]:
        """Return all of it as plain data."""
        return {
            **asdict(self.verdict),
            "kills": [asdict(kill) for kill in self.kills],
            "words": [asdict(word) for word in self.words],
            "seconds": round(self.seconds, 1),
        }


def faults(verdict: Verdict, kills: int, words: Sequence[Word]) -> list[str]:
    """Return everything that keeps a run from being ok; also what it should have shown and did not."""
    found = [f"{item.kind}: {item.order_id}: {item.text}" for item in verdict.findings]
    ended = verdict.delivered + verdict.refunded + verdict.kept
    if verdict.charged != ended:
        found.append(f"{verdict.charged} charges, and {ended} delivered, refunded or kept")
    if kills != KILLS:
        found.append(f"{kills} kills instead of {KILLS}")
    shown = {
        "delivered": verdict.delivered,
        "refunded": verdict.refunded,
        "kept": verdict.kept,
        "short of stock": verdict.short,
    }
    found += [
        f"no order {what}, so it shows nothing about that" for what, count in shown.items() if not count
    ]
    found += [
        f"no person said {said}, so it shows nothing about that"
        for said in ("approve", "reject", "retry")
        if not any(word.said == said for word in words)
    ]
    return found


def last_line(result: Result) -> str:
    """Return the line that sums it up."""
    verdict = result.verdict
    return (
        f"order {'failed' if result.faults else 'ok'}: {verdict.orders} orders, {verdict.charged} charged = "
        f"{verdict.delivered} delivered + {verdict.refunded} refunded + {verdict.kept} kept, "
        f"{verdict.untouched} never charged ({verdict.short} without stock), {len(result.kills)} kills, "
        f"{verdict.count('lost')} lost, {verdict.count('doubled')} doubled, {verdict.count('wrong')} wrong"
    )
