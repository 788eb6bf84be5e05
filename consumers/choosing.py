"""Choosing by name what a process is to do."""

from __future__ import annotations

from collections.abc import Sequence

from ..schemas.errors import StartError


def chosen(known: Sequence[str], wanted: Sequence[str] | None, what: str) -> list[str]:
    """Return the wanted names, all known ones when None was said.

    Raises:
        StartError: MP207 for a name that is not known.
    """
    if wanted is None:
        return list(known)
    wrong = sorted(set(wanted) - set(known))
    if wrong:
        raise StartError("MP207", f"{what} {', '.join(wrong)}: unknown. Known: {', '.join(known) or 'none'}.")
    return [name for name in known if name in set(wanted)]
