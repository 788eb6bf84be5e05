"""The command lines of `milepost reconcile` and `milepost runbook`."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from .options import given


def reconcile_command(
    context: typer.Context,
    run: Annotated[
        str | None,
        typer.Argument(metavar="[RUN]", help="Only this run: order/o-1, or the beginning of its id."),
    ] = None,
    *,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Only say what would be done; exit status 1 when it is something."),
    ] = False,
    every: Annotated[bool, typer.Option("--all", help="Show too what needs nothing, and why.")] = False,
    most: Annotated[
        int, typer.Option("--limit", metavar="N", help="Decide at most so many.", min=1, max=10_000)
    ] = 1000,
    wait: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="With RUN: wait so long for what its probes answer.", min=0),
    ] = 10.0,
) -> None:
    """Look for what has drifted, repair what is safe, and say what waits for a person.

    With an application (--app) its own policies and levels hold and what it inspects is looked at, due or not; without
    one the defaults hold, and the last line says so. Exit status 1 when something waits for a person, or could not be
    looked at.
    """
    from .reconcile import Wanted, reconcile

    wanted = Wanted(run=run, dry_run=dry_run, every=every, most=most, wait=wait)
    asyncio.run(reconcile(given(context), wanted))


def runbook_command(
    context: typer.Context,
    drift: Annotated[
        str | None, typer.Argument(metavar="[DRIFT]", help="Such as WORKER_LOST; lists all without.")
    ] = None,
) -> None:
    """Say what to do about what has drifted; without a name, list all runbooks."""
    from .runbook import show_runbook

    show_runbook(given(context), drift)
