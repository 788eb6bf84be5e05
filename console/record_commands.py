"""The command lines of `milepost signals`, `milepost webhooks` and `milepost operations`."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from .options import given, print_help

signals = typer.Typer(help="Look at awaited events: list.", pretty_exceptions_enable=False)


@signals.callback(invoke_without_command=True)
def signals_entry(context: typer.Context) -> None:
    """Look at awaited events: list."""
    if context.invoked_subcommand is None:
        print_help(context)


@signals.command("list")
def list_signals_command(
    context: typer.Context,
    *,
    unmatched: Annotated[
        bool, typer.Option("--unmatched", help="Only those that no wait has taken, expired ones too.")
    ] = False,
    type: Annotated[str | None, typer.Option("--type", metavar="TYPE", help="Only this event type.")] = None,
    limit: Annotated[
        int, typer.Option(metavar="N", help="At most so many, the youngest first.", min=1, max=100_000)
    ] = 50,
) -> None:
    """List awaited events, the youngest first."""
    from .signals import list_signals

    asyncio.run(list_signals(given(context), unmatched=unmatched, type=type, limit=limit))
