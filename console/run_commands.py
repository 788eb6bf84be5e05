"""The command line of `milepost runs`."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from .options import given, print_help

commands = typer.Typer(help="Runs: look at them, and decide.", pretty_exceptions_enable=False)


@commands.callback(invoke_without_command=True)
def runs_entry(context: typer.Context) -> None:
    """Look at runs, and decide what no machine may."""
    if context.invoked_subcommand is None:
        print_help(context)


@commands.command("list")
def list_command(
    context: typer.Context,
    *,
    state: Annotated[
        list[str] | None,
        typer.Option(metavar="STATE", help="Only these; may be repeated."),
    ] = None,
    saga: Annotated[str | None, typer.Option(help="Only this saga.")] = None,
    key: Annotated[str | None, typer.Option(help="Only this business key.")] = None,
    correlation: Annotated[str | None, typer.Option(metavar="ID", help="Only this correlation id.")] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN", help="Begun since: 30m, 2h, 7d, or a time such as 2026-12-02T18:00:00Z."
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option(metavar="N", help="At most so many, the youngest first.", min=1, max=100_000)
    ] = 50,
) -> None:
    """List runs, the youngest first."""
    from .filters import read_states, wanted
    from .runs import list_runs

    asyncio.run(
        list_runs(
            given(context),
            wanted(
                read_states(state or []),
                saga=saga,
                key=key,
                correlation=correlation,
                since=since,
                limit=limit,
            ),
        )
    )


@commands.command("items")
def items_command(
    context: typer.Context,
    run: Annotated[str, typer.Argument(metavar="RUN", help="order/o-1, or the beginning of the run's id.")],
    node: Annotated[
        str, typer.Argument(metavar="NODE", help="The fan-out; in a loop with its round: send#2.")
    ],
    *,
    state: Annotated[str | None, typer.Option(metavar="STATE", help="Only these, such as FAILED.")] = None,
    after: Annotated[int, typer.Option(metavar="N", help="Only items after this number.")] = -1,
    limit: Annotated[int, typer.Option(metavar="N", help="At most so many.", min=1, max=10_000)] = 100,
) -> None:
    """List the items of a fan-out."""
    from .items import list_items

    asyncio.run(list_items(given(context), run, node, state=state, after=after, limit=limit))


@commands.command("show")
def show_command(
    context: typer.Context,
    run: Annotated[str, typer.Argument(metavar="RUN", help="order/o-1, or the beginning of the run's id.")],
    history: Annotated[bool, typer.Option("--history", help="With everything that happened.")] = False,
    manifest: Annotated[
        bool,
        typer.Option("--manifest", help="What is done, what is next, on what it rests, what is in the way."),
    ] = False,
) -> None:
    """Show where a run stands, and its steps."""
    from .runs import show_run

    asyncio.run(show_run(given(context), run, history=history, manifest=manifest))
