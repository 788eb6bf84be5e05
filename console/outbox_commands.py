"""The command line of `milepost outbox`."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from .options import given

commands = typer.Typer(
    help="Show how far the relay is behind; unpark, rebaseline.", pretty_exceptions_enable=False
)


@commands.callback(invoke_without_command=True)
def outbox_entry(context: typer.Context) -> None:
    """Show the relay's position and lag, who leads, and what is held or parked.

    Exit status 1 when events are parked.
    """
    if context.invoked_subcommand is None:
        from .outbox import show_outbox

        asyncio.run(show_outbox(given(context)))


@commands.command("unpark")
def unpark_command(
    context: typer.Context,
    letters: Annotated[
        list[str] | None,
        typer.Argument(metavar="ID...", help="Numbers or ids of parked events.", show_default=False),
    ] = None,
    *,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why, for the audit.", show_default=False)],
    topic: Annotated[str | None, typer.Option(help="Parked events of this topic.")] = None,
    code: Annotated[str | None, typer.Option(metavar="CODE", help="Parked for this reason.")] = None,
    key: Annotated[str | None, typer.Option(help="Parked events of this record key.")] = None,
    wait: Annotated[
        float, typer.Option(metavar="SECONDS", help="Wait so long for what becomes of them.", min=0)
    ] = 15.0,
) -> None:
    """Have parked events sent again; later events of their keys follow in order.

    Name them, or choose them by --topic, --code and --key: those are counted and asked about first. Mend the cause
    before; the relay carries it out, and an event that is refused again is parked again.
    """
    from .unpark import Choice, unpark

    asyncio.run(unpark(given(context), letters or [], Choice(topic, code, key), reason=reason, wait=wait))


@commands.command("rebaseline")
def rebaseline_command(
    context: typer.Context,
    *,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why, for the audit.", show_default=False)],
    confirm: Annotated[bool, typer.Option("--confirm", help="Do it; else it is only counted.")] = False,
) -> None:
    """Let a restored copy of the database relay (MP411): sent events stay sent, the others go out in order.

    What the original sent after the dump was made is sent again from here under the same ids. Make sure that the
    original relays no more.
    """
    from .unpark import rebaseline_copy

    asyncio.run(rebaseline_copy(given(context), reason=reason, confirm=confirm))
