"""`milepost serve`: the roles of the application in this process, until it is asked to stop."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from time import gmtime

import typer

from ..schemas.errors import StartError, UsageError
from .application import load_app, named_app, need_database
from .options import Globals
from .output import json_line
from .reload import serve_again
from .settings import unread

logger = logging.getLogger("milepost")

_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
#: Loggers of libraries, with what is heard of them at least. Nothing of aiokafka's is above CRITICAL.
_CHATTY = {
    "aiokafka": logging.CRITICAL,
    "faststream": logging.WARNING,
    "httpx": logging.WARNING,
    "httpcore": logging.WARNING,
}


def split(values: Sequence[str]) -> list[str] | None:
    """Read a repeated, comma-separated option; None when it was not given."""
    found = [part.strip() for value in values for part in value.split(",") if part.strip()]
    return found or None


def check_roles(roles: Sequence[str] | None) -> None:
    """Refuse roles that do not exist.

    Raises:
        UsageError: MP601 naming those there are.
    """
    from ..consumers.serving import ROLES

    unknown = [role for role in roles or () if role not in ROLES]
    if unknown:
        raise UsageError(
            "MP601", f"--roles: there is no role {', '.join(unknown)}. There are: {', '.join(ROLES)}."
        )


def words_of(item: Mapping[str, object]) -> str:
    """Say an announcement in words: "ready: relay, worker", followed by a line for each part."""
    event, roles, parts = str(item.get("event", "")), item.get("roles"), item.get("parts")
    if event == "health":
        return f"{item.get('part')}: {'well again' if item.get('ok') else 'NOT WELL'}; {item.get('detail')}"
    if event == "stopping":
        return f"stopping, at most {item.get('grace_s')} s"
    if event == "starting" and isinstance(roles, list | tuple):
        return f"starting: roles {', '.join(map(str, roles))}"
    head = f"{event}: {', '.join(map(str, roles))}" if isinstance(roles, list | tuple) else event
    if not isinstance(parts, Mapping) or not parts:
        return head
    width = max(len(str(name)) for name in parts)
    return "\n".join([head, *(f"  {name!s:<{width}}  {detail}" for name, detail in parts.items())])


def log_level(text: str | None) -> int:
    """Read MILEPOST_LOG: debug, info, warning or error; info when it is not set.

    Raises:
        StartError: MP203 for anything else.
    """
    level = _LEVELS.get((text or "info").strip().lower())
    if level is None:
        raise StartError("MP203", f"MILEPOST_LOG={text}: is none of {', '.join(_LEVELS)}.")
    return level


def log_to_stderr() -> None:
    """Write the library's log lines on stderr, with times in UTC, as many as MILEPOST_LOG says.

    The Kafka client logs several lines a second while a broker or topic is away, and the HTTP client one for each
    call: roles say in their own words what is wrong. With MILEPOST_LOG=debug they are heard too.
    """
    level = log_level(os.environ.get("MILEPOST_LOG"))
    handler = logging.StreamHandler(sys.stderr)
    formatter = logging.Formatter(
        "%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S"
    )
    formatter.converter = gmtime
    handler.setFormatter(formatter)
    logging.basicConfig(handlers=[handler], level=level)
    for name, least in _CHATTY.items():
        logging.getLogger(name).setLevel(level if level == logging.DEBUG else max(level, least))


async def serve(given: Globals, roles: Sequence[str], queues: Sequence[str]) -> None:
    """Run roles until SIGTERM or SIGINT.

    Args:
        roles: Which; empty for all.
        queues: Whose work the worker takes; empty for all.
    """
    from ..consumers.serving import serve as serve_roles

    chosen = split(roles)
    check_roles(chosen)
    log_to_stderr()
    service = load_app(given)
    for _, words in unread():
        logger.warning("%s", words)
    try:
        service.settings  # noqa: B018 - reads them
    except StartError as error:
        need_database(given, error)
        raise

    def announce(item: Mapping[str, object]) -> None:
        given.out.line(json_line(item) if given.out.as_json else words_of(item))

    await serve_roles(service, roles=chosen, queues=split(queues), announce=announce)


def serve_with_reload(given: Globals, roles: Sequence[str], queues: Sequence[str]) -> None:
    """Run `serve` in a child that starts anew when a source file changes.

    Raises:
        typer.Exit: With the child's exit status.
    """
    check_roles(split(roles))
    name = named_app(given)
    given.to_environment()
    words = ["--app", name, *(["--json"] if given.out.as_json else []), "serve"]
    words += [word for role in roles for word in ("--roles", role)]
    words += [word for queue in queues for word in ("--queues", queue)]
    raise typer.Exit(
        serve_again(name.partition(":")[0], words, lambda text: given.out.note(f"reload: {text}"))
    )
