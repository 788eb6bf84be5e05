"""The command lines of what a person decides: `milepost runs retry …` and `milepost worklist`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from .options import given
from .run_commands import commands

if TYPE_CHECKING:
    from .acts import Wish

Run = Annotated[str, typer.Argument(metavar="RUN", help="order/o-1, or the beginning of the run's id.")]
Step = Annotated[
    str,
    typer.Argument(metavar="STEP", help="Its name, as `runs show` writes it; undos have names of their own."),
]
Reason = Annotated[str, typer.Option(metavar="TEXT", help="Why, for the audit.", show_default=False)]
Wait = Annotated[float, typer.Option(metavar="SECONDS", help="Wait so long for what becomes of it.", min=0)]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Only ask for it.")]
DidNotHappen = Annotated[
    bool,
    typer.Option(
        "--did-not-happen", help="Of a step in doubt: it took no effect, as you have seen on the other side."
    ),
]
Reviewed = Annotated[
    bool,
    typer.Option("--reviewed", help="You have read what stood in the way last (REVIEW_REQUIRED), and go on."),
]
#: Seconds.
WAIT = 10.0


def _act(context: typer.Context, run: str, wish: Wish, wait: float, no_wait: bool) -> None:
    from .acts import act

    asyncio.run(act(given(context), run, wish, wait=0.0 if no_wait else wait))


@commands.command("retry")
def retry_command(
    context: typer.Context,
    run: Run,
    step: Step,
    *,
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
    _act(context, run, wish, wait, no_wait)


@commands.command("skip")
def skip_command(
    context: typer.Context,
    run: Run,
    step: Step,
    *,
    did_not_happen: DidNotHappen = False,
    reviewed: Reviewed = False,
    reason: Reason,
    wait: Wait = WAIT,
    no_wait: NoWait = False,
) -> None:
    """Go on without a step, or leave an undo undone."""
    from .acts import Wish

    _act(
        context,
        run,
        Wish(what="skip", reason=reason, step=step, did_not_happen=did_not_happen, reviewed=reviewed),
        wait,
        no_wait,
    )


@commands.command("mark-succeeded")
def mark_succeeded_command(
    context: typer.Context,
    run: Run,
    step: Step,
    *,
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
    _act(context, run, wish, wait, no_wait)


@commands.command("compensate")
def compensate_command(
    context: typer.Context,
    run: Run,
    *,
    did_not_happen: DidNotHappen = False,
    reason: Reason,
    wait: Wait = WAIT,
    no_wait: NoWait = False,
) -> None:
    """Stop a run that waits for a person, and undo what was done."""
    from .acts import Wish

    _act(context, run, Wish(what="compensate", reason=reason, did_not_happen=did_not_happen), wait, no_wait)


@commands.command("resume")
def resume_command(
    context: typer.Context,
    run: Run,
    *,
    reviewed: Reviewed = False,
    reason: Reason,
    wait: Wait = WAIT,
    no_wait: NoWait = False,
) -> None:
    """Let a run go on that stands still with nothing in its way."""
    from .acts import Wish

    _act(context, run, Wish(what="resume", reason=reason, reviewed=reviewed), wait, no_wait)


@commands.command("cancel")
def cancel_command(
    context: typer.Context,
    run: Run,
    *,
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

    _act(
        context,
        run,
        Wish(what="cancel", reason=reason, undo=undo, did_not_happen=did_not_happen),
        wait,
        no_wait,
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


Role = Annotated[
    list[str] | None,
    typer.Option(
        "--role", metavar="ROLE", help="A role of whoever acts, may be repeated; else MILEPOST_ROLES."
    ),
]


def approve_command(
    context: typer.Context,
    run: Run,
    step: Step,
    *,
    role: Role = None,
    reason: Reason,
    wait: Wait = WAIT,
    no_wait: NoWait = False,
) -> None:
    """Approve what a step or an undo waits for, as it stands there now."""
    _answer(context, run, step, what="approve", reason=reason, roles=role, wait=0.0 if no_wait else wait)


def reject_command(
    context: typer.Context,
    run: Run,
    step: Step,
    *,
    role: Role = None,
    reason: Reason,
    wait: Wait = WAIT,
    no_wait: NoWait = False,
) -> None:
    """Reject what a step or an undo waits for; a rejected undo stays in front of a person."""
    _answer(context, run, step, what="reject", reason=reason, roles=role, wait=0.0 if no_wait else wait)


def _answer(
    context: typer.Context,
    run: str,
    step: str,
    *,
    what: Literal["approve", "reject"],
    reason: str,
    roles: list[str] | None,
    wait: float,
) -> None:
    from .acts import Wish, act

    asked = Wish(what=what, reason=reason, step=step, roles=given(context).roles(roles or []))
    asyncio.run(act(given(context), run, asked, wait=wait))


def worklist_command(
    context: typer.Context,
    *,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND", help="Only step, tx, wait, undo, approval, run or version; may be repeated."
        ),
    ] = None,
    mine: Annotated[
        bool, typer.Option("--mine", help="Without approvals that you gave or whose roles you do not have.")
    ] = False,
    role: Role = None,
    limit: Annotated[
        int, typer.Option(metavar="N", help="At most so many, the oldest first.", min=1, max=100_000)
    ] = 100,
) -> None:
    """List what waits for a person, the oldest first, and what may be done with it."""
    from .worklist import read_kinds, show_worklist

    roles = given(context).roles(role or []) if mine else None
    asyncio.run(show_worklist(given(context), read_kinds(kind or []), limit=limit, mine=roles))
