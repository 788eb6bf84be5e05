"""Which changes of runs go together in one transaction. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar
from uuid import UUID

from ..outbox.model import OutboxRow
from ..sagas.model import Decision, Run


class OfRun(Protocol):
    """Something that is about a run."""

    @property
    def run_id(self) -> UUID: ...


T = TypeVar("T", bound=OfRun)


def pick(waiting: Iterable[T], busy: Collection[UUID], most: int) -> tuple[list[T], list[T]]:
    """Take the next batch: the first of each run, in order of arrival, of runs that nothing is under way for.

    Args:
        waiting: In order of arrival.
        busy: Runs that are being changed now.
        most: Largest batch.

    Returns:
        The batch, sorted by run, which is the order in which rows are locked; and what goes on waiting, in its order.
    """
    taken: dict[UUID, T] = {}
    rest = []
    for one in waiting:
        if len(taken) < most and one.run_id not in taken and one.run_id not in busy:
            taken[one.run_id] = one
        else:
            rest.append(one)
    return [taken[run_id] for run_id in sorted(taken)], rest


def is_plain(decision: Decision) -> bool:
    """Whether a decision is stored by one statement: no wait begins or ends, nobody approves, no lock is concerned.

    Waits and locks take advisory locks, of which a transaction that changes several runs must not hold any.
    """
    return not (decision.opens or decision.closes or decision.lock or decision.said)


@dataclass(frozen=True, slots=True)
class ToStore:
    """A decision with what leaves with it.

    Attributes:
        before: The run as it was decided on.
    """

    before: Run
    decision: Decision
    rows: Sequence[OutboxRow]
