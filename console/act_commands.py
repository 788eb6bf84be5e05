"""The command lines of what a person decides about a run: `milepost runs retry …`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from .act_options import WAIT, DidNotHappen, NoWait, Reason, Reviewed, Run, Step, Wait, carry_out
from .filtered import Many, filtered
from .options import given
from .run_commands import commands

__all__ = ["commands"]


@commands.command("retry")
@filtered
def retry_command(
    context: typer.Context,
    run: Run = None,
    step: Step = None,
    *,
    many: Many,
    did_not_happen: DidNotHappen = False,
    reviewed: Reviewed = False,
    budget: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=AMOUNT", help="Grant so much more, such as tokens=5000; may be repeated."),
    ] = None,
    reason: Reason,
    wait: Wait = WAIT,
    no_wait: NoWait = False,
) -> None:
    """Have a step or an undo tried once more; of one in doubt, look on the other side first."""
    from .acts import Wish
    from .grants import read_grants

    granted = read_grants(budget or [])
    wish = Wish(
        what="retry",
        reason=reason,
        step=step,
        did_not_happen=did_not_happen,
        reviewed=reviewed,
        budget=granted,
    )
    carry_out(context, run, wish, wait=0.0 if no_wait else wait, many=many, names_step=True)


@commands.command("skip")
@filtered
def skip_command(
    context: typer.Context,
    run: Run = None,
    step: Step = None,
    *,
    many: Many,
    did_not_happen: DidNotHappen = False,
    reviewed: Reviewed = False,
    reason: Reason,
    wait: Wait = WAIT,
    no_wait: NoWait = False,
) -> None:
    """Go on without a step, or leave an undo undone."""
    from .acts import Wish

    carry_out(
        context,
        run,
        Wish(what="skip", reason=reason, step=step, did_not_happen=did_not_happen, reviewed=reviewed),
        wait=0.0 if no_wait else wait,
        many=many,
        names_step=True,
    )


@commands.command("mark-succeeded")
@filtered
def mark_succeeded_command(
    context: typer.Context,
    run: Run = None,
    step: Step = None,
    *,
    many: Many,
    result: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="JSON of the step's result; not needed where it has none."),
    ] = None,
    reviewed: Reviewed = False,
    reason: Reason,
    wait: Wait = WAIT,
    no_wait: NoWait = False,
) -> None:
    """Say that a step or an undo took effect, as you have seen on the other side; the run goes on."""
    from .acts import Wish, read_result

    wish = Wish(
        what="mark_succeeded", reason=reason, step=step, result=read_result(result), reviewed=reviewed
    )
    carry_out(context, run, wish, wait=0.0 if no_wait else wait, many=many, names_step=True)


@commands.command("compensate")
@filtered
def compensate_command(
    context: typer.Context,
    run: Run = None,
    *,
    many: Many,
    did_not_happen: DidNotHappen = False,
    reason: Reason,
    wait: Wait = WAIT,
    no_wait: NoWait = False,
) -> None:
    """Stop a run that waits for a person, and undo what was done."""
    from .acts import Wish

    wish = Wish(what="compensate", reason=reason, did_not_happen=did_not_happen)
    carry_out(context, run, wish, wait=0.0 if no_wait else wait, many=many)


@commands.command("resume")
@filtered
def resume_command(
    context: typer.Context,
    run: Run = None,
    *,
    many: Many,
    reviewed: Reviewed = False,
    reason: Reason,
    wait: Wait = WAIT,
    no_wait: NoWait = False,
) -> None:
    """Let a run go on that stands still with nothing in its way."""
    from .acts import Wish

    wish = Wish(what="resume", reason=reason, reviewed=reviewed)
    carry_out(context, run, wish, wait=0.0 if no_wait else wait, many=many)


@commands.command("cancel")
@filtered
def cancel_command(
    context: typer.Context,
    run: Run = None,
    *,
    many: Many,
    undo: Annotated[
        bool,
        typer.Option(
            "--undo/--no-undo", help="Undo what was done, or leave it as it is.", show_default=False
        ),
    ],
    did_not_happen: DidNotHappen = False,
    reason: Reason,
    wait: Wait = WAIT,
    no_wait: NoWait = False,
) -> None:
    """Stop a run at its next safe boundary; the answer says what was done already."""
    from .acts import Wish

    carry_out(
        context,
        run,
        Wish(what="cancel", reason=reason, undo=undo, did_not_happen=did_not_happen),
        wait=0.0 if no_wait else wait,
        many=many,
    )


@commands.command("migrate")
def migrate_command(
    context: typer.Context,
    saga: Annotated[str, typer.Argument(metavar="SAGA", help="Name of the saga.")],
    *,
    to: Annotated[
        int, typer.Option(metavar="VERSION", help="The version that its open runs are to be of.", min=1)
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say which can move, and why others cannot.")
    ] = False,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Why, for the audit.")] = None,
) -> None:
    """Move open runs of older versions to a newer one, as its code says; exit status 1 when some stay."""
    from .moving import migrate_runs

    asyncio.run(migrate_runs(given(context), saga, to, dry_run=dry_run, reason=reason))
