"""May a report be published? Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .contracts import Collected, DailyReport

SECTIONS = ("## Summary", "## Changes", "## Numbers")
#: Bounds of a report, in characters, and of its lines that are not empty: a page is made with at most 100 blocks.
SHORTEST, LONGEST, MOST_LINES = 120, 30_000, 100
#: A commit's id: in backticks, or anything of its form that has a digit, since "defaced" is a word.
_ID = re.compile(r"`([0-9a-f]{7,40})`|\b(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])([0-9a-f]{7,40})\b")
#: Problems that are told; the rest is more of the same.
_TOLD = 10


def title(report: DailyReport) -> str:
    """Return a report's first line."""
    return f"# {report.name}, {report.day.isoformat()}"


def problems(text: str, report: DailyReport, collected: Collected) -> list[str]:
    """Return what is wrong with a report, in words that its writer can act on; nothing for a good one."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    found = [*_size(text, lines), *_order(lines, report), *_named(text, collected)]
    return found[:_TOLD]


def _size(text: str, lines: Sequence[str]) -> list[str]:
    found = []
    if not SHORTEST <= len(text) <= LONGEST:
        found.append(f"it has {len(text)} characters, not {SHORTEST} to {LONGEST}")
    if len(lines) > MOST_LINES:
        found.append(f"it has {len(lines)} lines, more than {MOST_LINES}")
    return found


def _order(lines: Sequence[str], report: DailyReport) -> list[str]:
    first = title(report)
    found = [] if lines and lines[0] == first else [f"its first line is not `{first}`"]
    places = [[n for n, line in enumerate(lines) if line == section] for section in SECTIONS]
    for section, at in zip(SECTIONS, places, strict=True):
        if len(at) != 1:
            found.append(f"the section `{section}` is there {len(at)} times, not once")
    firsts = [at[0] for at in places if at]
    if firsts != sorted(firsts):
        found.append("its sections are in another order")
    return found


def _named(text: str, collected: Collected) -> list[str]:
    named = {first or second for first, second in _ID.findall(text)}
    ids = [commit.id for commit in collected.commits]
    strangers = sorted(name for name in named if not any(id.startswith(name) for id in ids))
    missing = [id for id in ids if not any(id.startswith(name) for name in named)]
    return [f"there is no commit `{name}` on that day" for name in strangers] + [
        f"commit `{id[:10]}` is not named" for id in missing
    ]
