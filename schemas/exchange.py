"""What the headers of a command or a reply say about the operation that it belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .texts import unstorable

#: Headers of commands and replies.
REPLY_TO, RUN, STEP = "milepost-reply-to", "milepost-run", "milepost-step"
DIRECTION, ATTEMPT = "milepost-direction", "milepost-attempt"
OUTCOME, CODE = "milepost-outcome", "milepost-code"

#: Longest value of these, in characters: they are keys in PostgreSQL, whose index rows take 2704 bytes.
LONGEST = 200

_NAMES = frozenset({REPLY_TO, RUN, STEP, DIRECTION, ATTEMPT, OUTCOME, CODE})


class BadExchange(Exception):
    """A header cannot be stored; the message says which."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """What the headers of a command or of a reply say about the operation that it belongs to.

    Header names and values are in docs/commands.md; a participant in any language echoes the first four.

    Attributes:
        run: What the operation is part of, such as a run's id; '' when the requester named none.
        step: What is done or undone; an undo names the step that it undoes.
        direction: "do", "undo" or ''.
        attempt: Number of the requester's attempt, from 1.
        reply_to: Topic that a command wants its reply on; '' for the reply's own topic.
        outcome: Of a reply: "done", "refused" or "nothing-to-undo"; '' on a command.
        code: Of a refused reply, why.
    """

    run: str = ""
    step: str = ""
    direction: str = ""
    attempt: int = 1
    reply_to: str = ""
    outcome: str = ""
    code: str = ""


def read_exchange(headers: Mapping[str, str]) -> Exchange | None:
    """Return what the headers say; None when they are of no command and no reply.

    Args:
        headers: By name in lower case.

    Raises:
        BadExchange: A value holds U+0000 or a lone surrogate, or is longer than `LONGEST`.
    """
    found = {name: text for name, text in headers.items() if name in _NAMES}
    if not found:
        return None
    for name, text in found.items():
        if len(text) > LONGEST or unstorable(text):
            raise BadExchange(f"header {name} holds U+0000 or more than {LONGEST} characters")
    attempt = found.get(ATTEMPT, "")
    return Exchange(
        run=found.get(RUN, ""),
        step=found.get(STEP, ""),
        direction=found.get(DIRECTION, "").lower(),
        attempt=int(attempt) if attempt.isascii() and attempt.isdigit() and len(attempt) < 9 else 1,
        reply_to=found.get(REPLY_TO, ""),
        outcome=found.get(OUTCOME, "").lower(),
        code=found.get(CODE, ""),
    )
