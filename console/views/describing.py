"""Settings with their meaning, and who may do what."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence

from ...recovery.permissions import Act, Actor, ActorKind, Grant, Permission, Role, permission
from ...schemas.masking import MASK, mask_url
from ..settings import Line
from .model import View

_FIELD = re.compile(r"^(\w+): (.*)$")


class Setting(View):
    """One setting of the console's own process.

    Attributes:
        variable: What sets it.
        source: env, default, option, file or code.
        meaning: What it does, with its unit.
    """

    name: str
    variable: str
    value: str
    source: str
    meaning: str


def meanings(kind: type[object]) -> dict[str, str]:
    """Return what the attributes of a class mean, as its docstring says."""
    text = inspect.getdoc(kind) or ""
    found = dict[str, str]()
    name = ""
    for line in text.partition("Attributes:")[2].splitlines():
        if line and not line.startswith(" "):
            break
        matched = _FIELD.match(line[4:]) if line[4:5] != " " else None
        if matched:
            name = matched[1]
            found[name] = matched[2]
        elif name and line.strip():
            found[name] += f" {line.strip()}"
    return found


def settings_view(lines: Iterable[Line], kind: type[object], prefix: str) -> list[Setting]:
    """Return settings with what each means; what is secret is masked.

    Args:
        kind: The class whose docstring says what its attributes mean.
        prefix: What the names of their variables begin with.
    """
    known = meanings(kind)
    return [
        Setting(
            name=line.name,
            variable=f"{prefix}{line.name.upper()}",
            value=_without_secrets(line.name, line.words),
            source=line.source,
            meaning=known.get(line.name, ""),
        )
        for line in lines
    ]


def _without_secrets(name: str, words: str) -> str:
    if any(part in name for part in ("password", "secret", "keys")) and words != "not set":
        return MASK
    return mask_url(words) if "://" in words else words


class Allowance(View):
    """What each role may do about one act, where it is granted."""

    act: str
    reads: bool
    roles: dict[str, Permission]


def permissions_view(roles: Sequence[Role] = tuple(Role)) -> list[Allowance]:
    """Return what each role may do about each act: a person's, and of the role AGENT an agent's."""
    return [
        Allowance(act=act.value, reads=act.reads, roles={role.value: _of(role, act) for role in roles})
        for act in Act
    ]


def _of(role: Role, act: Act) -> Permission:
    kind = ActorKind.AGENT if role is Role.AGENT else ActorKind.PERSON
    return permission(Actor(role.value, kind, (Grant(role),)), act, tenant="", saga=None)
