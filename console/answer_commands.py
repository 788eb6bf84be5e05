"""The command lines of what waits for a person: `milepost worklist`, `approve` and `reject`."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

import typer

from .act_options import WAIT, NoWait, Reason, Run, Step, Wait, carry_out
from .filtered import Many, filtered
from .options import given

Role = Annotated[
    list[str] | None,
    typer.Option(
        "--role", metavar="ROLE", help="A role of whoever acts, may be repeated; else MILEPOST_ROLES."
    ),
]


@filtered
def approve_command(
    context: typer.Context,
    run: Run = None,
    step: Step = None,
    *,
    many: Many,
    role: Role = None,
    reason: Reason,
    wait: Wait = WAIT,
    no_wait: NoWait = False,
) -> None:
    """Approve what a step or an undo waits for, as it stands there now."""
    _answer(
        context,
        run,
        step,
        what="approve",
        reason=reason,
        roles=role,
        wait=0.0 if no_wait else wait,
        many=many,
    )


@filtered
def reject_command(
    context: typer.Context,
    run: Run = None,
    step: Step = None,
    *,
    many: Many,
    role: Role = None,
    reason: Reason,
    wait: Wait = WAIT,
    no_wait: NoWait = False,
) -> None:
    """Reject what a step or an undo waits for; a rejected undo stays in front of a person."""
    _answer(
        context, run, step, what="reject", reason=reason, roles=role, wait=0.0 if no_wait else wait, many=many
    )


def _answer(
    context: typer.Context,
    run: str | None,
    step: str | None,
    *,
    what: Literal["approve", "reject"],
    reason: str,
    roles: list[str] | None,
    wait: float,
    many: Many,
) -> None:
    from .acts import Wish

    wish = Wish(what=what, reason=reason, step=step, roles=given(context).roles(roles or []))
    carry_out(context, run, wish, wait=wait, many=many, names_step=True)


def worklist_command(
    context: typer.Context,
    *,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND",
            help="Only step, tx, wait, undo, approval, run, version or confirm; may be repeated.",
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
