"""What each step of a run did when, as stretches of time: tries, waits, doubt, standing in front of a person. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from pydantic import BaseModel

from ...sagas.drawing_plan import tone_of
from ..model import HistoryLine, StepLine

#: What begins at an event of a step's history, as a tone; what is not here changes nothing.
_BEGINS: Final = {
    "step.started": "live",
    "step.probing": "doubt",
    "step.unknown": "doubt",
    "step.retry_scheduled": "over",
    "step.rate_limited": "over",
    "step.handed_back": "over",
    "step.manual_required": "person",
    "run.waiting": "over",
    "act.retry": "over",
}
#: How a stretch ends that was a try: what it is coloured by then.
_ENDS: Final = {
    "step.completed": "done",
    "step.failed": "failed",
    "step.skipped": "over",
    "run.resumed": "done",
}
_FINAL: Final = frozenset({"step.completed", "step.skipped"})


class Stretch(BaseModel):
    """Something that lasted.

    Attributes:
        tone: A class of the style sheet.
        words: What it was.
    """

    begins: datetime
    ends: datetime
    tone: str
    words: str


class Lane(BaseModel):
    """One step with what it did when."""

    label: str
    stretches: list[Stretch]


def lanes(steps: Sequence[StepLine], history: Iterable[HistoryLine], now: datetime) -> list[Lane]:
    """Return a lane for each step in the order of the steps, without those that nothing is known of.

    Args:
        now: What still goes on, goes on until then.
    """
    told: dict[str, list[HistoryLine]] = {}
    for line in history:
        if line.step is not None:
            told.setdefault(line.label, []).append(line)
    made = [
        Lane(label=step.label, stretches=_stretches(step, told.get(step.label, []), now)) for step in steps
    ]
    return [lane for lane in made if lane.stretches]


def _stretches(step: StepLine, told: Sequence[HistoryLine], now: datetime) -> list[Stretch]:
    found: list[Stretch] = []
    begun: tuple[datetime, str, str] | None = None
    for line in told:
        words = _words(line)
        if line.event in _ENDS and begun is not None:
            tone = _ENDS[line.event] if begun[1] == "live" or line.event in _FINAL else begun[1]
            found.append(Stretch(begins=begun[0], ends=line.at, tone=tone, words=f"{begun[2]}, {words}"))
            begun = None
        elif line.event in _ENDS and line.event in _FINAL:
            found.append(Stretch(begins=line.at, ends=line.at, tone=_ENDS[line.event], words=words))
        elif line.event in _BEGINS:
            if begun is not None:
                found.append(Stretch(begins=begun[0], ends=line.at, tone=begun[1], words=begun[2]))
            begun = (line.at, _BEGINS[line.event], words)
    if begun is not None:
        ends = now if step.finished_at is None else max(step.finished_at, begun[0])
        found.append(Stretch(begins=begun[0], ends=ends, tone=begun[1], words=begun[2]))
    if not found and step.finished_at is None:
        found.append(Stretch(begins=step.since, ends=now, tone=tone_of(step.state), words=_plain(step.state)))
    return found


def _plain(state: str) -> str:
    return state.replace("_", " ").lower()


def _words(line: HistoryLine) -> str:
    event = line.event.partition(".")[2].replace("_", " ")
    return f"try {line.attempt} {event}" if line.attempt else event
