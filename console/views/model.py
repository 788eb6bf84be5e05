"""What the models of pages and API have in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from ...recovery.permissions import Scope


class View(BaseModel):
    """What is read; never changed."""

    model_config = ConfigDict(frozen=True)


def tenants_of(scope: Scope) -> list[str] | None:
    """Return the tenants whose rows may be seen of what belongs to no saga; None for all.

    Whoever may see only some sagas sees nothing of that.
    """
    if scope.sagas is not None:
        return []
    return None if scope.tenants is None else sorted(scope.tenants)
