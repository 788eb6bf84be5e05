"""The error tree.

MilepostError
├── DefinitionError    MP1xx  at import: a saga, event or consumer is declared wrongly
├── StartError         MP2xx  at `serve`, `check`, `migrate`: this process must not start like this
├── UsageError         MP3xx  in a call: publish, start, handlers
├── StateError         MP4xx  refused by the state of a run, a letter or a database
├── ConnectError       MP5xx  a server cannot be reached
└── Refused                   a user's step or participant says no, for good, with a code of its own
    ├── QualityFailed         what the step made is not good enough: trying the same again does not help
    └── PolicyDenied          a rule forbids it: the run stops, whatever the step says of failures

Every error has a code, a place, a reason and a fix; `milepost explain CODE` prints the long form (schemas/explain.py).
"""

from __future__ import annotations

from datetime import timedelta


class MilepostError(Exception):
    """Root of every error that Milepost raises.

    Attributes:
        code: Stable code such as "MP301".
        text: Place, reason and fix, without the code.
        retriable: Whether the same call may work later without a change.
    """

    retriable = False

    def __init__(self, code: str, text: str) -> None:
        super().__init__(f"{code} {text}")
        self.code = code
        self.text = text

    def __reduce__(self) -> tuple[type[MilepostError], tuple[str, str]]:
        return type(self), (self.code, self.text)


class DefinitionError(MilepostError):
    """A declaration is wrong; raised while the user's module is imported."""


class StartError(MilepostError):
    """This process must not start in this state; exit 1."""


class UsageError(MilepostError):
    """A call is wrong; nothing was written."""


class StateError(MilepostError):
    """Refused by the present state; exit 3."""


class IdempotencyKeyReused(StateError):
    """MP460: the idempotency key belongs to another request."""


class OperationInProgress(StateError):
    """MP461: the same operation runs now.

    Attributes:
        retry_after: When to ask again.
    """

    retriable = True
    retry_after: timedelta | None = None


class OutcomeUnknown(StateError):
    """MP462: nobody knows whether the operation took effect.

    Attributes:
        retry_after: When asking again makes sense; None when only a person can settle it.
    """

    retry_after: timedelta | None = None


class ConnectError(MilepostError):
    """A server cannot be reached; exit 4."""

    retriable = True


class Refused(Exception):
    """Raised by a user's step, undo or probe to say: the other side said no, for good, and nothing happened.

    Args:
        code: A stable reason such as "CARD_DECLINED"; shown to people and stored on the step.
        message: Optional words for people.
    """

    def __init__(self, code: str, message: str = "") -> None:
        super().__init__(code if not message else f"{code}: {message}")
        self.code = code
        self.message = message


class QualityFailed(Refused):
    """Raised by a user's step to say: what was made is not good enough, and the same call would not make it better.

    It is not tried again: in a loop the next round begins, elsewhere the step fails for good and its `on_failure`
    follows. Arguments as `Refused`.
    """


class PolicyDenied(Refused):
    """Raised by a user's step to say: a rule forbids to go on.

    It is not tried again and no person is asked: the run stops at once, wherever in the flow the step is, also where a
    failure would be tolerated. What was done is undone where the step's `on_failure` is COMPENSATE; else the run is
    FAILED. Arguments as `Refused`.
    """
