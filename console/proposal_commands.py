"""The command lines of `milepost proposals`."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from .act_options import WAIT, NoWait, Reason, Wait
from .options import given, print_help

commands = typer.Typer(
    help="What agents and the system propose, for a person to decide on.", pretty_exceptions_enable=False
)

Which = Annotated[str, typer.Argument(metavar="ID", help="The proposal's id.")]


@commands.callback(invoke_without_command=True)
def proposals_entry(context: typer.Context) -> None:
    """Look at proposals, and decide on them."""
    if context.invoked_subcommand is None:
        print_help(context)


@commands.command("list")
def list_command(
    context: typer.Context,
    *,
    all_of_them: Annotated[bool, typer.Option("--all", help="Those that were decided on, too.")] = False,
    run: Annotated[str | None, typer.Option(metavar="RUN", help="Only about this run.")] = None,
    by: Annotated[str | None, typer.Option(metavar="NAME", help="Only of this actor.")] = None,
    limit: Annotated[
        int, typer.Option(metavar="N", help="At most so many, the youngest first.", min=1, max=100_000)
    ] = 100,
) -> None:
    """List what is proposed, the youngest first."""
    from .proposals import list_proposals

    asyncio.run(list_proposals(given(context), run=run, by=by, all_of_them=all_of_them, limit=limit))


@commands.command("show")
def show_command(context: typer.Context, which: Which) -> None:
    """Show a proposal: what was observed and expected, what is to be done, its risk, and how it is taken back."""
    from .proposals import show_proposal

    asyncio.run(show_proposal(given(context), which))


@commands.command("accept")
def accept_command(
    context: typer.Context, which: Which, *, reason: Reason, wait: Wait = WAIT, no_wait: NoWait = False
) -> None:
    """Accept a proposal: exactly what stands in it is done, while what it is about is as it was seen."""
    from .proposals import decide

    asyncio.run(decide(given(context), which, "accept", reason=reason, wait=0.0 if no_wait else wait))


@commands.command("reject")
def reject_command(context: typer.Context, which: Which, *, reason: Reason) -> None:
    """Reject a proposal; nothing is done."""
    from .proposals import decide

    asyncio.run(decide(given(context), which, "reject", reason=reason, wait=0.0))
