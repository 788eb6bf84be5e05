"""Builds what the model is told. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from .checks import SECTIONS, title
from .contracts import Brief, Collected, Commit, DailyReport

#: Changes with the wording below, so that a report's hash says by which wording it was asked for.
WORDING = 1


def build(report: DailyReport, collected: Collected) -> Brief:
    """Write the model's task for a day's commits; the hash covers everything that the answer rests on."""
    lines = [
        f"Write the daily report of the repository {report.name} for {report.day.isoformat()}, in Markdown.",
        f"Begin with the line `{title(report)}`, then the sections {_listed(SECTIONS)}, in this order.",
        "Name each commit below by its id in backticks, once or more. Name no other commit and invent nothing.",
        "Keep it under 100 lines. Answer with the report only.",
        "",
        "Commits:",
        *(_line(commit) for commit in collected.commits),
    ]
    if collected.left_out:
        lines.append(f"({collected.left_out} more commits are left out.)")
    text = "\n".join(lines)
    named = f"{WORDING}\n{report.key}\n{collected.head}\n{text}"
    return Brief(text=text, sha256=hashlib.sha256(named.encode()).hexdigest())


def again(brief: Brief, problems: str) -> str:
    """Write the task anew, with what was wrong with the last answer, a line each."""
    return "\n".join(
        [
            brief.text,
            "",
            "Your last answer cannot be used:",
            *(f"- {one}" for one in problems.splitlines()),
            "Write it anew.",
        ]
    )


def _line(commit: Commit) -> str:
    numbers = f"{commit.files} files, +{commit.added} -{commit.removed}"
    return f"- `{commit.id[:10]}` {commit.author}: {commit.subject} ({numbers})"


def _listed(sections: Sequence[str]) -> str:
    return ", ".join(f"`{section}`" for section in sections)
