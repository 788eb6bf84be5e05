"""The command lines of artifacts: `milepost runs artifacts` and `milepost artifacts orphans`."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from .options import given, print_help
from .run_commands import commands as runs

commands = typer.Typer(
    help="Artifacts: what steps have written beside their runs.", pretty_exceptions_enable=False
)


@commands.callback(invoke_without_command=True)
def artifacts_entry(context: typer.Context) -> None:
    """Look at the store of artifacts."""
    if context.invoked_subcommand is None:
        print_help(context)


@runs.command("artifacts")
def artifacts_command(
    context: typer.Context,
    run: Annotated[str, typer.Argument(metavar="RUN", help="order/o-1, or the beginning of the run's id.")],
    *,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read each again, and compare its SHA-256.")
    ] = False,
    against: Annotated[
        str | None, typer.Option(metavar="RUN", help="Compare with what another run has made, by hash.")
    ] = None,
) -> None:
    """List what a run's steps have written to the store."""
    from .artifacts import list_artifacts

    asyncio.run(list_artifacts(given(context), run, verify=verify, against=against))


@commands.command("orphans")
def orphans_command(
    context: typer.Context,
    *,
    older: Annotated[
        str, typer.Option(metavar="AGE", help="Only objects that are so old: 30m, 2h, 7d.")
    ] = "1d",
    delete: Annotated[bool, typer.Option("--delete", help="Remove them.")] = False,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why, for the audit.", show_default=False)] = "",
) -> None:
    """List objects that a try left which did not finish: no run refers to them."""
    from .artifacts import list_orphans
    from .filters import read_age

    asyncio.run(list_orphans(given(context), older=read_age(older), delete=delete, reason=reason))
