"""`milepost settings`: the effective values, where each comes from, secrets masked."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from difflib import get_close_matches
from typing import Any

from pydantic import SecretStr
from pydantic_settings import BaseSettings

from ..schemas.errors import MilepostError
from ..schemas.masking import MASK, mask_url
from ..schemas.settings import Settings
from .application import app_name, load_app
from .options import Globals
from .output import column

#: Variables that are read elsewhere than in Settings, with what they are when nobody sets them.
OTHERS = {"APP": None, "AS": None, "LOG": "info", "ENCRYPTION_KEYS": None}
_SECRET = frozenset({"ENCRYPTION_KEYS"})
#: Beginnings of variables for development, which are no settings of a service.
_OURS = ("CACHE", "TRACEBACK", "DEVSTACK_", "TEST_", "CHAOS", "BENCH_", "JAEGER", "DEBEZIUM")
_PREFIX = "MILEPOST_"
#: Stands for a database where none is named, so that the others can be read.
_NOWHERE = "postgresql://nowhere"


@dataclass(frozen=True)
class Line:
    """One setting.

    Attributes:
        value: As JSON has it; None when it is not set.
        words: For people.
        source: env, default, option, file (pyproject.toml) or code (the application's own Settings).
    """

    name: str
    value: Any
    words: str
    source: str


def show_settings(given: Globals) -> None:
    """Print each setting with its value and source.

    Raises:
        StartError: MP203 when a variable is wrong, naming it.
        UsageError: MP602 when the database's URL is none.
    """
    out = given.out
    lines = [*_of_settings(given), *_others(given), *_of_console(given)]
    for line in lines:
        out.item(**{line.name: line.value, "from": line.source, "variable": f"{_PREFIX}{line.name.upper()}"})
    out.table(
        [column("setting"), column("value", fold=True), column("from")],
        [(line.name, line.words, line.source) for line in lines],
    )
    for variable, words in unread():
        out.item(unread=variable)
        out.note(words)


def unread() -> list[tuple[str, str]]:
    """Return the MILEPOST_* variables that are set and that nothing reads, each with a warning in words."""
    known = {f"{_PREFIX}{name.upper()}" for name in (*Settings.model_fields, *OTHERS, *_console_names())}
    found = []
    for variable in _unknown(known):
        near = get_close_matches(variable.upper(), known, 1)
        found.append((variable, f"nothing reads {variable}." + (f" Did you mean {near[0]}?" if near else "")))
    return found


def _unknown(known: set[str]) -> list[str]:
    ours = tuple(f"{_PREFIX}{name}" for name in _OURS)
    return sorted(
        name
        for name in os.environ
        if name.startswith(_PREFIX) and name.upper() not in known and not name.startswith(ours)
    )


def _of_settings(given: Globals) -> Iterator[Line]:
    named = given.database or os.environ.get("MILEPOST_DATABASE_URL")
    if named:
        given.database_url()  # says what is wrong with it as every command does
        given.to_environment()
        settings = Settings.from_env()
    else:
        placeholder: dict[str, Any] = {"database_url": _NOWHERE}
        settings = Settings(**placeholder)
    own = _of_application(given, settings)
    shown = own or settings
    plain = shown.model_dump(mode="json")
    for name in Settings.model_fields:
        value = getattr(shown, name)
        source = "code" if value != getattr(settings, name) else _source(given, name)
        if name != "database_url":
            yield Line(name, plain[name], _words(value), source)
        elif named or own:
            yield Line(name, mask_url(str(value)), mask_url(str(value)), source)
        else:
            yield Line(name, None, _words(None), "default")


def of_process(settings: BaseSettings, prefix: str = _PREFIX) -> list[Line]:
    """Return settings as a process has them, without the application; secrets masked.

    Args:
        prefix: What the names of their variables begin with.
    """
    set_ = {variable.upper() for variable in os.environ}
    found = []
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        if isinstance(value, BaseSettings):
            continue
        words = mask_url(str(value)) if name == "database_url" else _words(value)
        default = field.get_default(call_default_factory=True)
        source = "env" if f"{prefix}{name.upper()}" in set_ else "default" if value == default else "option"
        found.append(Line(name, words, words, source))
    return found


def _of_application(given: Globals, settings: Settings) -> Settings | None:
    """Return the settings that the application brings along, where it can be loaded and does."""
    if app_name(given) is None:
        return None
    try:
        return load_app(given)._settings
    except MilepostError as error:
        given.out.note(f"without the application: {error.code} {error.text}")
        return None


def _console_names() -> list[str]:
    """Return the console's settings, as far as it is installed."""
    try:
        from .web.settings import ConsoleSettings
    except ImportError:
        return [name.removeprefix(_PREFIX) for name in os.environ if name.startswith(f"{_PREFIX}CONSOLE_")]
    return [f"console_{name}" for name in ConsoleSettings.model_fields if name != "core"]


def _of_console(given: Globals) -> Iterator[Line]:
    """The console's settings, where any is set."""
    if not any(name.startswith(f"{_PREFIX}CONSOLE_") for name in os.environ):
        return
    try:
        from .web.settings import PREFIX, ConsoleSettings
    except ImportError:
        given.out.note("without the console's settings: its extra is not installed")
        return
    placeholder: dict[str, Any] = {"database_url": _NOWHERE}
    for line in of_process(ConsoleSettings.from_env(Settings(**placeholder)), PREFIX):
        yield replace(line, name=f"console_{line.name}")


def _others(given: Globals) -> Iterator[Line]:
    for name, default in OTHERS.items():
        value = os.environ.get(f"{_PREFIX}{name}")
        source = "default" if value is None else "env"
        if name == "APP":
            found = app_name(given)
            source = "option" if given.app else "env" if value else "file" if found else "default"
            value = found
        elif name == "AS" and given.acting:
            value, source = given.acting, "option"
        elif name in _SECRET and value is not None:
            value = MASK
        value = default if value is None else value
        yield Line(name.lower(), value, "not set" if value is None else value, source)


def _source(given: Globals, name: str) -> str:
    if name == "database_url" and given.database:
        return "option"
    # Settings reads the environment without regard to case.
    set_ = {variable.upper() for variable in os.environ}
    return "env" if f"{_PREFIX}{name.upper()}" in set_ else "default"


def _duration(value: timedelta) -> str:
    """Write a duration as the environment takes it, in the largest unit that leaves nothing over."""
    for unit, size in (("d", 86_400.0), ("h", 3_600.0), ("m", 60.0), ("s", 1.0)):
        if value.total_seconds() % size == 0:
            return f"{value.total_seconds() / size:.0f}{unit}"
    return f"{value.total_seconds() * 1000:g}ms"


def _words(value: Any) -> str:
    if value is None or value == "":
        return "not set"
    if isinstance(value, timedelta):
        return _duration(value)
    if isinstance(value, bool):
        return str(value).lower()
    return MASK if isinstance(value, SecretStr) else str(value)
