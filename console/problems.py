"""From an exception to what a person reads and the shell gets: a code, a text and an exit status."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator

from ..schemas.errors import ConnectError, DefinitionError, MilepostError, StartError, StateError, UsageError

#: Exit statuses: done, findings, usage, refused by the present state, cannot connect.
DONE, FINDINGS, USAGE, REFUSED, NO_CONNECTION = range(5)

#: Errors of a process that starts that are about the database's state: not migrated, or by a newer Milepost.
_OF_THE_STATE = frozenset({"MP204", "MP209"})

_STATUS: tuple[tuple[type[MilepostError], int], ...] = (
    (DefinitionError, FINDINGS),
    (StartError, FINDINGS),
    (UsageError, USAGE),
    (StateError, REFUSED),
    (ConnectError, NO_CONNECTION),
)


def exit_status(error: MilepostError) -> int:
    """Return the exit status of an error of ours."""
    if error.code in _OF_THE_STATE:
        return REFUSED
    return next((status for kind, status in _STATUS if isinstance(error, kind)), FINDINGS)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def as_problem(error: BaseException) -> MilepostError:
    """Return an exception as an error with a code.

    Args:
        error: Anything that a command raised; of a group, the first of ours counts, else the first.

    Returns:
        The error itself where it is one of ours, else MP600. With MILEPOST_TRACEBACK set, its text carries
        the traceback.
    """
    leaves = list(_leaves(error))
    for leaf in leaves:
        if isinstance(leaf, MilepostError):
            return leaf
    first = leaves[0]
    text = f"unexpected {type(first).__name__}: {str(first) or 'no message'}."
    if os.environ.get("MILEPOST_TRACEBACK"):
        text = f"{text}\n{''.join(traceback.format_exception(error))}"
    else:
        text = f"{text} Set MILEPOST_TRACEBACK=1 to see where it comes from."
    return StartError("MP600", text)
