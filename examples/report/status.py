"""Where reports stand, from `milepost runs list --json`, in the words of the house."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from ..stage.processes import milepost

#: States of a run in which nothing more happens by itself.
ENDED = frozenset({"SUCCEEDED", "FAILED", "CANCELLED", "COMPENSATED", "EXPIRED", "MANUAL_REQUIRED"})
_WORDS: Mapping[str, str] = {
    "collect": "COLLECTING",
    "build": "COLLECTING",
    "write": "WRITING",
    "check": "WRITING",
    "writing": "WRITING",
    "save": "SAVING",
    "publish": "PUBLISHING",
    "record": "PUBLISHING",
}


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a report stands.

    Attributes:
        key: Repository and day.
        word: COLLECTING, WRITING, SAVING, PUBLISHING, CHECKING (nobody knows whether the page was made), PUBLISHED,
            FAILED, NEEDS A PERSON; QUEUED before all of them.
        step: Step that it stands at, '' when it is over.
        reason: The code of what is in the way, '' without one.
        ended: Whether nothing more happens by itself.
    """

    key: str
    word: str
    step: str = ""
    reason: str = ""
    ended: bool = False


def standing(run: Mapping[str, Any]) -> Standing:
    """Say where a run stands, as `milepost runs list --json` tells it."""
    state, step = str(run["state"]), str(run["step"] or "")
    reason = str(run["code"] or run["cause"] or "") if state != "SUCCEEDED" else ""
    word = _word(state, step, str(run["step_state"] or ""))
    return Standing(str(run["run"]).partition("/")[2], word, step, reason, state in ENDED)


def _word(state: str, step: str, step_state: str) -> str:
    if state == "SUCCEEDED":
        return "PUBLISHED"
    if state == "MANUAL_REQUIRED":
        return "NEEDS A PERSON"
    if state in ENDED:
        return "FAILED"
    if step == "publish" and step_state in ("UNKNOWN", "RECONCILING"):
        return "CHECKING"
    return _WORDS.get(step, "QUEUED")


async def standings(env: Mapping[str, str], key: str = "") -> list[Standing]:
    """Return where reports stand, the youngest first.

    Args:
        env: MILEPOST_DATABASE_URL says where.
        key: Only this one.
    """
    only = ("--key", key) if key else ()
    text = await milepost(env, "runs", "list", "--saga", "report", *only, "--limit", "1000", "--json")
    return [standing(json.loads(line)) for line in text.splitlines()]


async def held_step(env: Mapping[str, str], key: str) -> str:
    """Return the step of a report that waits for a person, as `milepost runs retry` takes it; '' for none."""
    for line in (await milepost(env, "worklist", "--json")).splitlines():
        entry = json.loads(line)
        if entry["run"] == f"report/{key}" and entry["step"] and entry["possible"]:
            return f"{entry['step']}#{entry['iteration']}" if entry["iteration"] else str(entry["step"])
    return ""


def table(found: Iterable[Standing]) -> Table:
    """Draw reports for people."""
    drawn = Table("report", "stands at", "step", "reason", box=None, pad_edge=False)
    for one in found:
        drawn.add_row(one.key, one.word, one.step, one.reason)
    return drawn
