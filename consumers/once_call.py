"""A call of `Milepost.once`, checked before anything is claimed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Generic

from pydantic import BaseModel

from ..inbox.operation_model import HTTP, Asked
from ..inbox.operations import Operations
from ..sagas.definition import text_problem
from ..schemas.errors import UsageError
from ..schemas.options import Probe, R, Repeat
from ..schemas.texts import INDEXED, too_long_to_index
from .once import Once
from .operation_results import Results, fingerprint_of

if TYPE_CHECKING:
    from .app import Milepost


@dataclass(frozen=True)
class OnceCall(Generic[R]):
    """What a caller of `Milepost.once` said; see there."""

    kind: str
    key: str
    tenant: str
    request: BaseModel
    result: type[R]
    repeat: Repeat
    do: Callable[[str], Awaitable[R]]
    probe: Callable[[str], Awaitable[Probe[R]]] | None
    settle: timedelta
    keep: timedelta

    async def on(self, service: Milepost) -> R:
        """Check it, and do it with a service's database."""
        place = f"once(): {self.kind}/{self.key}" + (f" of tenant {self.tenant}" if self.tenant else "")
        if problem := self._problem():
            raise UsageError("MP463", f"{place[:200]}: {problem}")
        fingerprint = fingerprint_of(self.request, place)
        settings = service.settings
        database = await service._opened()
        once = Once(
            service=service,
            operations=Operations(database.pool, service.name, service.ids, settings.lease),
            name=(self.tenant, self.kind, self.key),
            asked=Asked(fingerprint, self.repeat),
            results=Results(place, self.result, settings.max_result_bytes),
            do=self.do,
            probe=self.probe,
            settle=self.settle,
            keep=self.keep,
        )
        return await once.run()

    def _problem(self) -> str:
        for what, text, longest in (
            ("kind", self.kind, 200),
            ("key", self.key, 1000),
            ("tenant", self.tenant or "-", 200),
        ):
            if wrong := text_problem(text, longest=longest):
                return f"{what} {wrong}. Give it a short, stable text."
        if too_long_to_index(self.kind, self.key, self.tenant):
            return f"kind, key and tenant take more than {INDEXED} bytes together. Give a shorter key."
        if self.kind == HTTP:
            return f"kind {HTTP!r} belongs to IdempotencyMiddleware. Name what is done."
        if self.repeat is Repeat.ASK_FIRST and self.probe is None:
            return "repeat=ASK_FIRST needs probe=, or a lost answer can never be settled."
        if self.keep <= timedelta(0) or self.settle < timedelta(0):
            return f"keep={self.keep} must be longer than zero, and settle={self.settle} not shorter."
        return ""
