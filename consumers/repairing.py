"""What of the application says how it is repaired: policies by kind of drift, and what it inspects itself."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pydantic import BaseModel

from ..recovery.inspecting import InspectFn, Inspection, InspectPolicy
from ..recovery.model import Drift
from ..recovery.policies import Policies, Policy
from ..sagas.saga import Saga
from ..schemas.errors import DefinitionError
from ..schemas.states import Level

if TYPE_CHECKING:
    from .app import Milepost

M = TypeVar("M", bound=BaseModel)


class Repairing:
    """A part of `Milepost`, which is the only class that has it."""

    def __init__(self) -> None:
        self.inspections: dict[str, Inspection[Any]] = {}
        self._given: dict[tuple[Drift, str | None], Policy] = {}
        self._after: dict[tuple[Drift, str | None], timedelta] = {}

    def policy(
        self,
        drift: Drift,
        policy: Policy | None = None,
        *,
        saga: Saga[Any] | None = None,
        after: timedelta | None = None,
    ) -> None:
        """Replace what is decided about a kind of drift, or how long it must have lasted.

        Args:
            drift: Which; inspections have policies of their own.
            policy: Pure function of what was observed, by which nothing is done but what it returns; None: the default.
            saga: Only for its runs; None for all that have none of their own.
            after: Nothing is decided before it has lasted so long; None: as long as the default says.

        Raises:
            DefinitionError: MP650 when it is declared twice, says nothing, or is for what is inspected.
        """
        name = None if saga is None else saga.name
        said = {*self._given, *self._after}
        if drift == Drift.INSPECTED or (drift, name) in said or not _says(policy, after):
            raise DefinitionError(
                "MP650",
                f"policy({drift}): is declared twice, cannot be called, or is for what inspect(...) has a policy for. "
                "Declare each once.",
            )
        if policy is not None:
            self._given[drift, name] = policy
        if after is not None:
            self._after[drift, name] = after

    def inspect(
        self,
        name: str,
        *,
        every: timedelta,
        policy: InspectPolicy[M] | None = None,
        auto_repair: Level = Level.SAFE_RETRY,
        within: timedelta = timedelta(seconds=30),
    ) -> Callable[[InspectFn[M]], Inspection[M]]:
        """Declare a function that compares something outside as it should be with how it is.

        The role `reconciler` calls it, in one process of the service at a time.

        Args:
            name: For people, tables and metrics.
            every: Time between two looks, a second or more.
            policy: Pure function of what was compared and the time: what is to be done; by default persons are told.
            auto_repair: Up to which level plans go by themselves; above it a person is asked.
            within: Longest time that a look may take.

        Raises:
            DefinitionError: MP650 for a bad name or time, or a name that is taken.
        """

        def declare(fn: InspectFn[M]) -> Inspection[M]:
            if name in self.inspections:
                raise DefinitionError("MP650", f"inspect({name!r}) is declared twice. Rename one.")
            made = Inspection(name, fn, every=every, within=within, policy=policy, auto_repair=auto_repair)
            self.inspections[name] = made
            return made

        return declare

    @property
    def policies(self) -> Policies:
        """What is to be done about drifts of this service, and up to which level it goes by itself."""
        service = cast("Milepost", self)
        newest = sorted(service.definitions, key=lambda found: found.version)
        levels = {found.name: found.auto_repair for found in newest}
        return Policies(given=dict(self._given), after=dict(self._after), levels=levels)


def _says(policy: object, after: timedelta | None) -> bool:
    """Whether a policy or a time is given, and both are what they have to be."""
    well = policy is None or callable(policy)
    return well and (policy is not None or after is not None) and (after is None or after >= timedelta(0))
