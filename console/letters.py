"""What operators are told of parked events: those that a consumer did not apply, and those never sent. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

from .findings import Check, Group, counted
from .model import Unsent
from .output import span

#: Age of an open letter that is an error, unless MILEPOST_DEAD_LETTER_ALARM says otherwise.
ALARM = timedelta(hours=1)
#: A redrive that waits longer has nobody to carry it out.
STUCK = timedelta(minutes=1)
#: Codes of the relay's letters that go by themselves once the topic can be written, with why and what to do.
_WAITING = {
    "TOPIC_MISSING": ("topic {topic} does not exist", "Create it; then they go by themselves."),
    "TOPIC_DENIED": (
        "this client may not write to topic {topic}",
        "Give the relay's client the right to see and write it; then they go by themselves.",
    ),
}
#: Codes of those that stay, with why.
_STAYING = {
    "TOO_LARGE": "the record is larger than topic {topic} takes",
    "KEY_HELD": "an earlier event of the key is held, topic {topic}",
    "KEY_MISSING": "topic {topic} is compacted and takes no event without a key",
    "REFUSED": "the broker refuses the record, topic {topic}",
    "ROW_INVALID": "the outbox row's headers are no JSON object, topic {topic}",
}
_STAY_FIX = {
    "TOO_LARGE": "Raise the topic's max.message.bytes, then `milepost outbox unpark NUMBER --reason …`.",
    "KEY_HELD": "They follow in order once the event before them is unparked or ignored.",
    "ROW_INVALID": "They cannot be sent as they are; publish them anew and `milepost dead ignore` these.",
}
_LOOK = "`milepost dead list` shows them; mend the cause, then `milepost dead redrive` or `milepost dead ignore` them."
_MEND = "Mend the cause, then `milepost outbox unpark NUMBER --reason …`, or `milepost dead ignore` them."


def judge_letters(groups: Sequence[Group], alarm: timedelta = ALARM) -> Iterator[Check]:
    """See which events were parked by consumers.

    Args:
        alarm: Age at which a letter that nobody has looked after is an error.
    """
    for group in groups:
        one = group.amount == 1
        text = (
            f"{counted(group.amount, 'open dead letter')} of {group.what}, the oldest {span(group.oldest)} old: "
            f"{'this event was' if one else 'these events were'} not applied."
        )
        if group.oldest > alarm:
            text = f"{text} The alarm is at {span(alarm)}."
            yield Check("dead_letters", "error", text, "MP444", _LOOK)
        else:
            yield Check("dead_letters", "warning", text, "MP629", _LOOK)
    if not groups:
        yield Check("dead_letters", "ok", "no consumer has an open dead letter")


def judge_redrives(groups: Sequence[Group]) -> Iterator[Check]:
    """See which redrives nobody carries out."""
    for group in groups:
        yield Check(
            "redrives",
            "error",
            f"{counted(group.amount, 'redrive')} of {group.what}, asked for {span(group.oldest)} ago at the longest, "
            "not carried out.",
            "MP445",
            "Start a process of that service with the role consumers: `milepost serve`.",
        )


def judge_unsent(unsent: Sequence[Unsent]) -> Iterator[Check]:
    """See which committed events the relay could not send and has put aside."""
    for letters in unsent:
        amount = f"{counted(letters.amount, 'event')} {'was' if letters.amount == 1 else 'were'}"
        text = f"{amount} committed but not sent: {why(letters)} (oldest {span(letters.oldest)})."
        if letters.code in _WAITING:
            yield Check("unsent", "error", text, "MP633", _WAITING[letters.code][1])
        else:
            yield Check("unsent", "error", text, "MP634", _STAY_FIX.get(letters.code, _MEND))


def why(letters: Unsent) -> str:
    """Say why events were not sent: "topic orders does not exist"."""
    waiting = _WAITING.get(letters.code)
    words = waiting[0] if waiting else _STAYING.get(letters.code, letters.code + ", topic {topic}")
    return words.format(topic=letters.topic)


def parked_words(letters: Unsent) -> str:
    """Say in a line what is parked: "3 parked: topic orders missing (oldest 5m)"."""
    short = f"topic {letters.topic} missing" if letters.code == "TOPIC_MISSING" else why(letters)
    return f"{letters.amount} parked: {short} (oldest {span(letters.oldest)})"
