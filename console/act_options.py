"""The options that acts of a person share, and what carries an act out: on one run, or on those that options choose."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from .filtered import Many, one_or_many
from .options import given

if TYPE_CHECKING:
    from .acts import Wish

Run = Annotated[
    str | None,
    typer.Argument(
        metavar="RUN",
        help="order/o-1, or the beginning of the run's id; without it, options choose.",
        show_default=False,
    ),
]
Step = Annotated[
    str | None,
    typer.Argument(
        metavar="STEP",
        help="Its name, as `runs show` writes it; undos have names of their own.",
        show_default=False,
    ),
]
Reason = Annotated[str, typer.Option(metavar="TEXT", help="Why, for the audit.", show_default=False)]
Wait = Annotated[float, typer.Option(metavar="SECONDS", help="Wait so long for what becomes of it.", min=0)]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Only ask for it.")]
DidNotHappen = Annotated[
    bool,
    typer.Option(
        "--did-not-happen", help="Of a step in doubt: it took no effect, as you have seen on the other side."
    ),
]
Reviewed = Annotated[
    bool,
    typer.Option("--reviewed", help="You have read what stood in the way last (REVIEW_REQUIRED), and go on."),
]
#: Seconds.
WAIT = 10.0


def carry_out(
    context: typer.Context,
    run: str | None,
    wish: Wish,
    *,
    wait: float,
    many: Many,
    names_step: bool = False,
) -> None:
    """Carry an act out, and say what became of it.

    Args:
        context: Of the command line.
        run: As it was named; None where options choose.
        wish: What is wanted.
        wait: Seconds to wait for what becomes of it.
        many: What chooses.
        names_step: The act is about a step.
    """
    from .acts import act, act_by_filter

    if one_or_many(wish.command, run, wish.step, many, names_step=names_step):
        asyncio.run(act_by_filter(given(context), wish, many, wait=wait))
    else:
        assert run is not None
        asyncio.run(act(given(context), run, wish, wait=wait))
