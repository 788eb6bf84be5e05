"""Compares what a report should have caused with the books of model and pages. Pure: facts in, findings out."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .book import Entry
from .clients import blocks


@dataclass(frozen=True, slots=True)
class Facts:
    """What is left when a report has been published.

    Attributes:
        key: The report.
        row: The service's own row of it, None without one.
        file: The bytes of the file that it names, None without one.
        chats: The model's book.
        calls: The calls for a page.
        pages: The pages that exist, with their blocks as the content.
        before: Digest of every file of the repository by path, before.
        after: The same, afterwards.
    """

    key: str
    row: Mapping[str, object] | None
    file: bytes | None
    chats: Sequence[Entry]
    calls: Sequence[Entry]
    pages: Sequence[tuple[str, object]]
    before: Mapping[str, str]
    after: Mapping[str, str]


def compare(facts: Facts, *, chats: Sequence[str], calls: Sequence[str]) -> list[str]:
    """Return what is wrong.

    Args:
        chats: How the model was to answer, in order; it is to be asked exactly so often.
        calls: How calls for a page were to go, in order; there are to be exactly so many.
    """
    asked, called = [entry.name for entry in facts.chats], [entry.name for entry in facts.calls]
    found = []
    if asked != list(chats):
        found.append(f"the model was asked {len(asked)} times ({', '.join(asked)}), not {len(chats)}")
    if called != list(calls):
        found.append(f"a page was asked for {len(called)} times ({', '.join(called)}), not {len(calls)}")
    names = [name for name, _ in facts.pages]
    if names != [facts.key]:
        found.append(f"{len(names)} pages exist ({', '.join(names)}), not the one of {facts.key}")
    return [*found, *_kept(facts), *_repository(facts)]


def _kept(facts: Facts) -> list[str]:
    if facts.row is None or facts.file is None:
        return ["the report is not on record" if facts.row is None else "the report's file is gone"]
    found = []
    if hashlib.sha256(facts.file).hexdigest() != facts.row["sha256"]:
        found.append("the file is not what is on record")
    if any(content != blocks(facts.file.decode()) for _, content in facts.pages):
        found.append("the page is not what is in the file")
    return found


def _repository(facts: Facts) -> list[str]:
    paths = sorted(facts.before.keys() | facts.after.keys())
    return [
        f"{path} of the repository has changed"
        for path in paths
        if facts.before.get(path) != facts.after.get(path)
    ]
