"""What an approval is compiled to, and what is a risk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pydantic import BaseModel

from ..schemas.errors import DefinitionError
from ..schemas.options import OnReject, OnTimeout
from ..schemas.states import Risk
from .context import View


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalSpec:
    """What persons are asked.

    Attributes:
        roles: A person needs one of them.
        quorum: So many different persons; CRITICAL has two at least.
        expires: How long a question stands.
        params: Pure function to what is approved; None for the run's input.
    """

    roles: frozenset[str]
    risk: Risk
    quorum: int
    expires: timedelta
    on_expiry: OnTimeout
    on_reject: OnReject
    params: Callable[[View[Any]], BaseModel] | None


def check_risk(place: str, risk: object) -> None:
    """Refuse what is no risk.

    Raises:
        DefinitionError: MP137.
    """
    if not isinstance(risk, Risk):
        raise DefinitionError(
            "MP137", f"{place}: risk={risk!r} is none of Risk.LOW, Risk.MEDIUM, Risk.HIGH and Risk.CRITICAL."
        )
