"""`milepost dev`: PostgreSQL, Kafka and Jaeger on this machine, for development."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..schemas.errors import ConnectError, StartError
from .options import Globals

if TYPE_CHECKING:
    from ..devstack.stack import Stack

_PREFIX = "MILEPOST_"


def dev(given: Globals, *, down: bool, jaeger: bool) -> None:
    """Start the servers, or end those that an earlier call started.

    Only the variables go to stdout, so that `milepost dev > .env` works; progress goes to stderr.

    Raises:
        StartError: MP611 when milepost[dev] is not installed.
        ConnectError: MP612 when a server does not start.
    """
    try:
        from ..devstack import stack
        from ..devstack.errors import DevstackError
    except ModuleNotFoundError as error:
        raise missing_extra("dev", error) from error
    out = given.out
    try:
        if down:
            stopped = stack.down(say=out.note)
            out.item(stopped=stopped)
            out.note(f"{stopped} servers stopped" if stopped else "nothing of ours was running")
            return
        found = _up(given, jaeger=jaeger)
    except DevstackError as error:
        raise ConnectError("MP612", str(error)) from error
    except ModuleNotFoundError as error:
        raise missing_extra("dev", error) from error
    variables = found.env()
    out.item(**{name.removeprefix(_PREFIX).lower(): value for name, value in variables.items()})
    for name, value in variables.items() if not out.as_json else ():
        out.line(f"{name}={value}")


def _up(given: Globals, *, jaeger: bool) -> Stack:
    """Start everything; a Jaeger that cannot be had is remarked, not fatal."""
    from ..devstack import stack
    from ..devstack.errors import DevstackError

    found = stack.up(jaeger=False, say=given.out.note)
    if not jaeger:
        return found
    try:
        return stack.up(jaeger=True, say=given.out.note)
    except DevstackError as error:
        given.out.note(f"without Jaeger: {error.problem} {error.advice}")
        return found


def missing_extra(extra: str, error: ModuleNotFoundError) -> StartError:
    """Make the error that names the extra to install."""
    return StartError(
        "MP611",
        f"this command needs {error.name or 'a package'}, which is not installed. "
        f"Run pip install 'milepost[{extra}]'.",
    )
