"""Runbooks: what to do about each drift, as Markdown files whose front matter is read by machines.

The front matter is YAML of the simplest kind: `key: text`, or `key:` followed by lines of `  - text`. So it needs no
library; a test holds it equal to what a YAML parser reads.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from .model import Drift
from .permissions import SAFE_ACTS, Act

_KEYS = (
    *("drift", "title", "symptom", "checks", "reach", "automatic"),
    *("manual", "rollback", "prevention", "safe"),
)
_LISTS = frozenset({"checks", "manual", "safe"})
_COMMAND = re.compile(r"`(milepost [^`]+)`")


@dataclass(frozen=True, slots=True, kw_only=True)
class Runbook:
    """What to do about a drift.

    Attributes:
        symptom: How it shows.
        checks: What to look at first, in order.
        reach: What it holds up, and what it does not.
        automatic: What is done by itself, and when it is not.
        manual: What a person does, in order.
        rollback: How to take that back.
        prevention: How it does not happen again.
        safe: Acts that change nothing which could not be done again; they may be offered beside the text.
        body: The rest of the page, as Markdown.
        text: The whole file.
    """

    drift: Drift
    title: str
    symptom: str
    checks: tuple[str, ...]
    reach: str
    automatic: str
    manual: tuple[str, ...]
    rollback: str
    prevention: str
    safe: tuple[Act, ...]
    body: str
    text: str

    @property
    def commands(self) -> tuple[str, ...]:
        """The command lines that it names, in order."""
        return tuple(_COMMAND.findall(self.text))


@cache
def runbook(drift: Drift) -> Runbook:
    """Return the runbook of a drift."""
    name = f"{drift.value.lower()}.md"
    return parse((files(__package__) / "runbooks" / name).read_text(encoding="utf-8"), name)


def runbooks() -> tuple[Runbook, ...]:
    """Return all runbooks, in the order of the drifts."""
    return tuple(runbook(drift) for drift in Drift)


def parse(text: str, name: str) -> Runbook:
    """Read a runbook.

    Args:
        text: The file.
        name: Its name, for errors.

    Raises:
        ValueError: When its front matter is not complete, or names what there is not.
    """
    _, fence, rest = text.partition("---\n")
    front, end, body = rest.partition("\n---\n")
    if not fence or not end:
        raise ValueError(f"{name}: it has no front matter between two lines of ---")
    found = _front(front, name)
    if tuple(found) != _KEYS:
        raise ValueError(
            f"{name}: its front matter has {', '.join(found)}; it has to have {', '.join(_KEYS)}"
        )
    safe = tuple(Act(word) for word in found.pop("safe"))
    if unsafe := [act for act in safe if act not in SAFE_ACTS and not act.reads]:
        raise ValueError(f"{name}: {', '.join(unsafe)} is no safe act")
    drift = Drift(str(found.pop("drift")))
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in found.items()}
    return Runbook(drift=drift, safe=safe, body=body.strip(), text=text, **values)  # type: ignore[arg-type]


def _front(text: str, name: str) -> dict[str, str | list[str]]:
    found: dict[str, str | list[str]] = {}
    last = ""
    for line in text.splitlines():
        if line.startswith("  - ") and isinstance(entry := found.get(last), list):
            entry.append(_scalar(line[4:]))
            continue
        key, colon, value = line.partition(":")
        if not colon or key in found or bool(value.strip()) == (key in _LISTS):
            raise ValueError(f"{name}: this line of its front matter cannot be read: {line}")
        last = key
        found[key] = [] if key in _LISTS else _scalar(value)
    return found


def _scalar(text: str) -> str:
    """Read a plain or double-quoted text without escapes."""
    stripped = text.strip()
    return stripped[1:-1] if stripped[:1] == '"' == stripped[-1:] and len(stripped) > 1 else stripped
