"""The command lines of the second person: `milepost confirm` and `milepost decline`."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

import typer

from .act_options import WAIT, NoWait, Reason, Wait
from .options import given

Which = Annotated[
    str,
    typer.Argument(
        metavar="REQUEST", help="Its id, as the worklist's `confirm` shows it, or the run: order/o-1."
    ),
]


def confirm_command(
    context: typer.Context, which: Which, *, reason: Reason, wait: Wait = WAIT, no_wait: NoWait = False
) -> None:
    """Confirm an act of CRITICAL consequence that somebody else has asked for; then it is carried out."""
    _say(context, which, "confirm", reason, 0.0 if no_wait else wait)


def decline_command(context: typer.Context, which: Which, *, reason: Reason) -> None:
    """Say no to an act that waits for a second person."""
    _say(context, which, "decline", reason, 0.0)


def _say(
    context: typer.Context, which: str, what: Literal["confirm", "decline"], reason: str, wait: float
) -> None:
    from .second import second

    asyncio.run(second(given(context), which, what, reason=reason, wait=wait))
