"""The command lines of `milepost audit`."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from .options import given

commands = typer.Typer(
    help="Who did what, and whether anybody has changed that record.", no_args_is_help=True
)


@commands.command("list")
def list_command(
    context: typer.Context,
    *,
    since: Annotated[
        str | None, typer.Option(metavar="AGO", help="Of the last 30m, 2h, 7d, or since a time.")
    ] = None,
    actor: Annotated[str | None, typer.Option(metavar="NAME", help="Only of this actor.")] = None,
    kind: Annotated[
        str | None, typer.Option(metavar="KIND", help="Only of a person, system or agent.")
    ] = None,
    act: Annotated[
        str | None,
        typer.Option(metavar="ACT", help="Only this act: run.cancel, or all of run, letter, outbox."),
    ] = None,
    outcome: Annotated[
        str | None, typer.Option(metavar="OUTCOME", help="Only done, held or refused.")
    ] = None,
    run: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Only about this run: order/o-1, or the beginning of its id."),
    ] = None,
    limit: Annotated[
        int, typer.Option(metavar="N", help="At most so many, the youngest first.", min=1, max=100_000)
    ] = 100,
) -> None:
    """List entries of the audit, the youngest first: acts, and acts that were refused."""
    from .audit import Choice, list_entries

    choice = Choice(since=since, actor=actor, kind=kind, act=act, outcome=outcome, run=run)
    asyncio.run(list_entries(given(context), choice, limit=limit))


@commands.command("verify")
def verify_command(
    context: typer.Context,
    *,
    head: Annotated[
        str | None,
        typer.Option(
            metavar="N:HASH", help="The chain has to go through this head, which an earlier call printed."
        ),
    ] = None,
) -> None:
    """Go along the audit's chain of hashes; exit status 1 with the first entry that is not as it was."""
    from .audit import verify_chain

    asyncio.run(verify_chain(given(context), head))
