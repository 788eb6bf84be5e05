"""One reason why two contracts do not fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Code: TypeAlias = Literal[
    "MISSING_FIELD",
    "FORBIDDEN_FIELD",
    "NARROWER_TYPE",
    "NARROWER_RULE",
    "UNPROVEN",
    "OTHER_TOPIC",
    "OTHER_KEY",
    "OTHER_CORRELATION",
    "OTHER_CODEC",
    "OTHER_REPLY",
    "NO_CONTRACT",
    "NEWER_VERSION",
]


@dataclass(frozen=True, slots=True)
class Finding:
    """One reason.

    Attributes:
        path: Field, such as `lines[].sku`; '' for the whole.
        reason: For people.
    """

    code: Code
    path: str
    reason: str

    def __str__(self) -> str:
        """Return it in a line."""
        return f"{self.code} {self.path + ': ' if self.path else ''}{self.reason}"
