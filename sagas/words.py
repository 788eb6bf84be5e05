"""Codes of what the engine itself finds, and texts that come from outside made fit to be stored."""

from __future__ import annotations

from typing import Final

WORKER_LOST = "WORKER_LOST"
HARD_TIMEOUT = "HARD_TIMEOUT"
DATABASE_MOVED = "DATABASE_MOVED"
OUTCOME_UNKNOWN = "OUTCOME_UNKNOWN"
WAIT_TIMEOUT = "WAIT_TIMEOUT"
MATCH_FAILED = "MATCH_FAILED"
SIGNAL_INVALID = "SIGNAL_INVALID"
DEADLINE = "DEADLINE"
ACTIVE_TIMEOUT = "ACTIVE_TIMEOUT"
CANCELLED = "CANCELLED"
CANCELLED_NO_UNDO = "CANCELLED_NO_UNDO"
BY_PERSON = "BY_PERSON"
BAD_ANSWER = "BAD_ANSWER"
BUDGET_EXCEEDED = "BUDGET_EXCEEDED"
TEST_FAILED = "TEST_FAILED"
DUE_FAILED = "DUE_FAILED"
SEND_FAILED = "SEND_FAILED"
NO_REPLY = "NO_REPLY"
REPLY_INVALID = "REPLY_INVALID"
LOOP_EXHAUSTED = "LOOP_EXHAUSTED"
APPROVAL_REQUIRED = "APPROVAL_REQUIRED"
APPROVAL_VOID = "APPROVAL_VOID"
APPROVAL_EXPIRED = "APPROVAL_EXPIRED"
APPROVAL_REJECTED = "APPROVAL_REJECTED"
PARAMS_FAILED = "PARAMS_FAILED"
CHILD_INPUT = "CHILD_INPUT"
CHILD_STOPPING = "CHILD_STOPPING"
CHILD_NOT_STARTED = "CHILD_NOT_STARTED"
ITEMS_FAILED = "ITEMS_FAILED"
ITEMS_CANCELLED = "ITEMS_CANCELLED"

#: Causes of a run that a person cancels.
CANCELS = frozenset({CANCELLED, CANCELLED_NO_UNDO})
#: What only the engine may say of a run.
_CAUSES = frozenset({DEADLINE, ACTIVE_TIMEOUT, CANCELLED, CANCELLED_NO_UNDO, BY_PERSON, BUDGET_EXCEEDED})

#: What holds a run back that stood in front of a person: a fact, or something that a person has to look at.
RESUME_BLOCKED: Final = "RESUME_BLOCKED"
REVIEW_REQUIRED: Final = "REVIEW_REQUIRED"


def clean(text: str, longest: int = 2000) -> str:
    """Return text that a database column can hold: cut, without U+0000 and lone surrogates."""
    return text[:longest].replace("\x00", "\ufffd").encode("utf-8", "replace").decode()


def clean_code(code: str) -> str:
    """Return a failure's code as it is stored: cut to 200 characters, never empty, and not one of the engine's own.

    By these it knows why a run stops, and gRPC has a CANCELLED, too.
    """
    cleaned = clean(code, 200) or "UNNAMED"
    return f"STEP_{cleaned}" if cleaned in _CAUSES else cleaned


def bad_answer(answer: object) -> str:
    """Say what a probe returned, and what it may return; never the value, which may be a customer's."""
    if answer is None:
        given = "None"
    elif isinstance(answer, type):
        given = f"the class {answer.__name__}, without ()"
    else:
        given = f"an object of {type(answer).__name__}"
    return f"the probe returned {given}; it has to return Found(...), Absent(), InProgress() or Failed(code)"
