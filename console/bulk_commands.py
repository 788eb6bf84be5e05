"""The command lines of `milepost bulk`."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from .act_options import Reason
from .options import given, print_help

commands = typer.Typer(
    help="Acts on many, chosen by a filter: their progress, pause and stop.", pretty_exceptions_enable=False
)

Which = Annotated[str, typer.Argument(metavar="ID", help="The bulk's id.")]


@commands.callback(invoke_without_command=True)
def bulk_entry(context: typer.Context) -> None:
    """Look at acts on many, and change whether they go on."""
    if context.invoked_subcommand is None:
        print_help(context)


@commands.command("list")
def list_command(
    context: typer.Context,
    *,
    all_of_them: Annotated[bool, typer.Option("--all", help="Those that are done or stopped, too.")] = False,
    limit: Annotated[
        int, typer.Option(metavar="N", help="At most so many, the youngest first.", min=1, max=10_000)
    ] = 50,
) -> None:
    """List acts on many that are under way, with their progress."""
    from .bulk import list_bulks

    asyncio.run(list_bulks(given(context), all_of_them=all_of_them, limit=limit))


@commands.command("show")
def show_command(
    context: typer.Context,
    which: Which,
    *,
    outcome: Annotated[
        str | None,
        typer.Option(metavar="OUTCOME", help="Only items with this outcome, such as refused or waiting."),
    ] = None,
    limit: Annotated[
        int, typer.Option(metavar="N", help="At most so many items.", min=1, max=100_000)
    ] = 1000,
) -> None:
    """Show an act on many, with one outcome for each item."""
    from .bulk import show_bulk

    asyncio.run(show_bulk(given(context), which, outcome=outcome, limit=limit))


@commands.command("pause")
def pause_command(context: typer.Context, which: Which, *, reason: Reason) -> None:
    """Begin no more items until it is resumed; what was asked for gets its outcome."""
    _change(context, which, "pause", reason)


@commands.command("resume")
def resume_command(context: typer.Context, which: Which, *, reason: Reason) -> None:
    """Go on with the items that wait."""
    _change(context, which, "resume", reason)


@commands.command("stop")
def stop_command(context: typer.Context, which: Which, *, reason: Reason) -> None:
    """Give up, for good, the items that wait; what was asked for gets its outcome."""
    _change(context, which, "stop", reason)


@commands.command("confirm")
def confirm_command(context: typer.Context, which: Which, *, reason: Reason) -> None:
    """Confirm an act on many of CRITICAL consequence that somebody else has begun."""
    _change(context, which, "confirm", reason)


def _change(context: typer.Context, which: str, what: str, reason: str) -> None:
    from .bulk import change_bulk

    asyncio.run(change_bulk(given(context), which, what, reason=reason))
