"""What an act on many takes beside its reason, looked at before it begins: it is carried out much later."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..schemas.errors import UsageError


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _are_names(value: Any) -> bool:
    return isinstance(value, list | tuple | set | frozenset) and all(isinstance(one, str) for one in value)


#: What an act takes beside its reason, and whether a value is such.
_ARGUMENTS: Mapping[str, Mapping[str, Callable[[Any], bool]]] = {
    "retry": {"did_not_happen": _is_flag},
    "skip": {"did_not_happen": _is_flag},
    "mark_succeeded": {"did_not_happen": _is_flag, "result": lambda value: True},
    "compensate": {"did_not_happen": _is_flag},
    "resume": {},
    "cancel": {"undo": _is_flag, "did_not_happen": _is_flag},
    "approve": {"roles": _are_names},
    "reject": {"roles": _are_names},
}


def check_arguments(act: str, given: Mapping[str, Any]) -> None:
    """Refuse what nobody could carry out.

    Raises:
        UsageError: MP671.
    """
    takes = _ARGUMENTS.get(act, {})
    problem = ""
    if odd := sorted(set(given) - set(takes)):
        problem = f"it takes no {', '.join(odd)}"
    elif wrong := sorted(name for name, value in given.items() if not takes[name](value)):
        problem = f"{', '.join(wrong)}: that is no value for it"
    elif act == "cancel" and "undo" not in given:
        problem = "say whether what was done is undone: undo is true or false"
    if problem:
        raise UsageError("MP671", f"{act}: {problem}.")
