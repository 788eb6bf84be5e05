"""The command line of `milepost dead`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from .options import given, print_help

commands = typer.Typer(
    help="Dead letters: list, groups, show, edit, redrive, ignore.",
    pretty_exceptions_enable=False,
)

Ids = Annotated[
    list[int] | None,
    typer.Argument(metavar="ID...", help="Their numbers, as `dead list` shows them.", show_default=False),
]
Status = Annotated[
    list[str] | None,
    typer.Option(
        metavar="STATUS",
        help="OPEN, RETRY_PENDING, RESOLVED, IGNORED or ALL; else the first two. May be repeated.",
    ),
]
Topic = Annotated[str | None, typer.Option(help="Only of this topic.")]
Code = Annotated[str | None, typer.Option(metavar="CODE", help="Only with this code.")]
Key = Annotated[str | None, typer.Option(help="Only of this record key.")]
Consumer = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Only of this consumer; relay for events that were never sent."),
]
Since = Annotated[
    str | None,
    typer.Option(metavar="WHEN", help="Failed since: 30m, 2h, 7d, or a time such as 2026-12-02T18:00:00Z."),
]
Cause = Annotated[
    str | None, typer.Option(metavar="CAUSE", help="Only of this cause, as `dead groups` names it.")
]
Reason = Annotated[str, typer.Option(metavar="TEXT", help="Why, for the audit.", show_default=False)]


@commands.callback(invoke_without_command=True)
def dead_entry(context: typer.Context) -> None:
    """Dead letters: events that a consumer could not apply, or the relay could not send."""
    if context.invoked_subcommand is None:
        print_help(context)


@commands.command("list")
def list_command(
    context: typer.Context,
    *,
    status: Status = None,
    topic: Topic = None,
    code: Code = None,
    key: Key = None,
    consumer: Consumer = None,
    since: Since = None,
    cause: Cause = None,
    group: Annotated[
        bool, typer.Option("--group", help="Letters in a row with the same code as one line.")
    ] = False,
    limit: Annotated[int, typer.Option(metavar="N", help="At most so many.", min=1, max=100_000)] = 50,
) -> None:
    """List dead letters, the oldest first."""
    from .dead import list_letters
    from .dead_store import choice

    wanted = choice(
        status or [],
        topic=topic,
        code=code,
        key=key,
        consumer=consumer,
        since=since,
        limit=limit,
        cause=cause,
    )
    asyncio.run(list_letters(given(context), wanted, group=group))


@commands.command("groups")
def groups_command(
    context: typer.Context,
    *,
    status: Status = None,
    topic: Topic = None,
    code: Code = None,
    key: Key = None,
    consumer: Consumer = None,
    since: Since = None,
    limit: Annotated[int, typer.Option(metavar="N", help="At most so many causes.", min=1, max=200)] = 50,
) -> None:
    """List what dead letters have in common: code and message, without what differs from event to event.

    CAUSE is the name of a group; redrive and ignore take it with --cause.
    """
    from .dead_edit import list_groups
    from .dead_store import choice

    wanted = choice(
        status or [], topic=topic, code=code, key=key, consumer=consumer, since=since, limit=limit
    )
    asyncio.run(list_groups(given(context), wanted))


@commands.command("edit")
def edit_command(
    context: typer.Context,
    letter: Annotated[int, typer.Argument(metavar="ID", help="Its number.")],
    *,
    reason: Reason,
    value: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Its new value; - for stdin. `dead show --payload` writes the old one."
        ),
    ] = None,
    key: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Its new record key; 0x… for bytes that are no text.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option(metavar="NAME=TEXT", help="Set a header. May be repeated.")
    ] = None,
    drop_header: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Take a header away. May be repeated.")
    ] = None,
    redrive: Annotated[bool, typer.Option("--redrive", help="Have it handled at once.")] = False,
    wait: Annotated[
        float, typer.Option(metavar="SECONDS", help="Wait so long for what becomes of it.", min=0)
    ] = 30.0,
) -> None:
    """Make a new letter of one: other bytes under a new event id. The old letter keeps its own and is closed.

    The new one takes the old one's place among the letters of its key. Both name each other.
    """
    from .dead_edit import Wish, edit_letter

    wish = Wish(
        value=value,
        key=key,
        set_headers=header or [],
        drop_headers=drop_header or [],
        redrive=redrive,
        wait=wait,
    )
    asyncio.run(edit_letter(given(context), letter, wish, reason=reason))


@commands.command("show")
def show_command(
    context: typer.Context,
    letter: Annotated[int, typer.Argument(metavar="ID", help="Its number.")],
    payload: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the record's value there, byte for byte; - for stdout."),
    ] = None,
) -> None:
    """Show a dead letter: where it came from, why it is here, its headers and its value."""
    from .dead import show_letter

    asyncio.run(show_letter(given(context), letter, payload=payload))


@commands.command("redrive")
def redrive_command(
    context: typer.Context,
    letters: Ids = None,
    *,
    reason: Reason,
    status: Status = None,
    topic: Topic = None,
    code: Code = None,
    key: Key = None,
    consumer: Consumer = None,
    since: Since = None,
    cause: Cause = None,
    limit: Annotated[int, typer.Option(metavar="N", help="At most so many.", min=1, max=100_000)] = 10_000,
    wait: Annotated[
        float, typer.Option(metavar="SECONDS", help="Wait so long for what becomes of them.", min=0)
    ] = 30.0,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Only ask for it.")] = False,
) -> None:
    """Have dead letters handled once more, in the order of their keys; the service's own process does it.

    Name them, or choose them by filters: those are counted and asked about first. Mend the cause before.
    """
    from .dead_changes import change
    from .dead_store import choice

    wanted = choice(
        status or [],
        topic=topic,
        code=code,
        key=key,
        consumer=consumer,
        since=since,
        limit=limit,
        cause=cause,
    )
    seconds = 0.0 if no_wait else wait
    asyncio.run(change(given(context), "redrive", letters or [], wanted, reason=reason, wait=seconds))


@commands.command("ignore")
def ignore_command(
    context: typer.Context,
    letters: Ids = None,
    *,
    reason: Reason,
    status: Status = None,
    topic: Topic = None,
    code: Code = None,
    key: Key = None,
    consumer: Consumer = None,
    since: Since = None,
    cause: Cause = None,
    limit: Annotated[int, typer.Option(metavar="N", help="At most so many.", min=1, max=100_000)] = 10_000,
) -> None:
    """Leave dead letters unapplied for good; their keys go on without them.

    Name them, or choose them by filters: those are counted and asked about first.
    """
    from .dead_changes import change
    from .dead_store import choice

    wanted = choice(
        status or [],
        topic=topic,
        code=code,
        key=key,
        consumer=consumer,
        since=since,
        limit=limit,
        cause=cause,
    )
    asyncio.run(change(given(context), "ignore", letters or [], wanted, reason=reason, wait=0.0))
