"""The command line of `milepost replay`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from .options import given


def replay_command(
    context: typer.Context,
    consumer: Annotated[str, typer.Argument(metavar="CONSUMER", help="The consumer's name.")],
    *,
    topic: Annotated[str | None, typer.Option(help="The topic to read.")] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="WHERE",
            help="Where to begin: offsets such as 0:120,1:90, a time such as 2026-12-02T18:00:00Z, or 2h or 7d ago.",
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(metavar="WHERE", help="Where to end, not included. Default: the topic's end."),
    ] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Have what is missing handled; needs the application.")
    ] = False,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Why, for the audit.")] = None,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write one line of JSON per event there.")
    ] = None,
    resume: Annotated[
        str | None, typer.Option(metavar="ID", help="Go on with a replay that was interrupted.")
    ] = None,
) -> None:
    """Hold a slice of a topic against what a consumer has applied: applied, missing, conflicting.

    The consumer's group is left alone. Exit status 1 when events are missing or conflicting.
    """
    from .replay import Wish, read_edge, replay

    wish = Wish(
        consumer=consumer,
        topic=topic,
        since=None if since is None else read_edge("--since", since),
        until=None if until is None else read_edge("--until", until),
        apply=apply,
        report=report,
        resume=resume,
        reason=reason,
    )
    asyncio.run(replay(given(context), wish))
