"""What an exception of a consumer's handler says about another try: the table of classify.py, read for consumers.

A handler's effect is in its transaction, so after a failure nothing has happened, and the one question is whether
another try may help: not after a definite no, nor after a call of ours that is wrong and will be wrong again.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Protocol

from ..inbox.failures import Judge, Judgement
from ..sagas.facts import FOR_GOOD, Verdict
from ..schemas.errors import MilepostError
from .classify import listed


class _Service(Protocol):
    """What of an application is needed here."""

    @property
    def verdicts(self) -> Mapping[type[Exception], tuple[Verdict, str]]: ...


def judge_of(service: _Service) -> Judge:
    """Return the judge of a service's consumers; it sees what `classify()` says later, too."""

    def judge(error: BaseException | None) -> Judgement:
        return judged(error, service.verdicts)

    return judge


def judged(
    error: BaseException | None,
    extra: Mapping[type[Exception], tuple[Verdict, str]],
    *,
    now: datetime | None = None,
) -> Judgement:
    """Say whether another try of an event may help after this.

    Args:
        extra: The service's own classification.
        now: For a Retry-After that names an instant; the answer's own Date, else the machine's clock, by default.

    Returns:
        Code HANDLER_FAILED for an exception that nobody listed, which is tried again: it may be a passing one.
    """
    if error is None:
        return Judgement(True, "HANDLER_FAILED")
    if isinstance(error, MilepostError) and type(error) not in extra:
        return Judgement(error.retriable, error.code)
    found = listed(error, extra, now=now)
    if found is None:
        return Judgement(True, "HANDLER_FAILED")
    return Judgement(found.verdict not in FOR_GOOD, found.code, found.retry_after)
