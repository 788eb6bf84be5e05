"""The command lines of `milepost signals`, `milepost webhooks` and `milepost operations`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from .options import given, print_help

signals = typer.Typer(help="Look at awaited events: list.", pretty_exceptions_enable=False)


@signals.callback(invoke_without_command=True)
def signals_entry(context: typer.Context) -> None:
    """Look at awaited events: list."""
    if context.invoked_subcommand is None:
        print_help(context)


@signals.command("list")
def list_signals_command(
    context: typer.Context,
    *,
    unmatched: Annotated[
        bool, typer.Option("--unmatched", help="Only those that no wait has taken, expired ones too.")
    ] = False,
    type: Annotated[str | None, typer.Option("--type", metavar="TYPE", help="Only this event type.")] = None,
    limit: Annotated[
        int, typer.Option(metavar="N", help="At most so many, the youngest first.", min=1, max=100_000)
    ] = 50,
) -> None:
    """List awaited events, the youngest first."""
    from .signals import list_signals

    asyncio.run(list_signals(given(context), unmatched=unmatched, type=type, limit=limit))


webhooks = typer.Typer(help="Webhooks: list, show, redrive.", pretty_exceptions_enable=False)
operations = typer.Typer(help="Effects that happen once: list, settle.", pretty_exceptions_enable=False)

Tenant = Annotated[str | None, typer.Option(help="Whose, where several tenants have it.")]
Reason = Annotated[str, typer.Option(metavar="TEXT", help="Why, for the audit.", show_default=False)]


@webhooks.callback(invoke_without_command=True)
def webhooks_entry(context: typer.Context) -> None:
    """Webhooks that were taken in, and what became of them."""
    if context.invoked_subcommand is None:
        print_help(context)


@webhooks.command("list")
def list_webhooks_command(
    context: typer.Context,
    *,
    state: Annotated[
        list[str] | None, typer.Option(metavar="STATE", help="Only these; may be repeated.")
    ] = None,
    provider: Annotated[str | None, typer.Option(help="Only of this provider.")] = None,
    limit: Annotated[
        int, typer.Option(metavar="N", help="At most so many, the youngest first.", min=1, max=100_000)
    ] = 50,
) -> None:
    """List webhooks, the youngest first."""
    from .webhooks import list_webhooks, read_states

    asyncio.run(list_webhooks(given(context), read_states(state or []), provider=provider, limit=limit))


@webhooks.command("show")
def show_webhook_command(
    context: typer.Context,
    webhook: Annotated[str, typer.Argument(metavar="WEBHOOK", help="PROVIDER/EVENT, such as carrier/e-1.")],
    tenant: Tenant = None,
) -> None:
    """Show a webhook with its headers and its body as it came."""
    from .webhooks import show_webhook

    asyncio.run(show_webhook(given(context), webhook, tenant=tenant))


@webhooks.command("redrive")
def redrive_webhooks_command(
    context: typer.Context,
    webhook: Annotated[
        list[str] | None, typer.Argument(metavar="WEBHOOK...", help="PROVIDER/EVENT.", show_default=False)
    ] = None,
    *,
    provider: Annotated[str | None, typer.Option(help="All of this provider that FAILED.")] = None,
    tenant: Tenant = None,
    reason: Reason,
) -> None:
    """Let webhooks that FAILED be worked on again."""
    from .webhooks import redrive

    asyncio.run(redrive(given(context), webhook or [], provider=provider, tenant=tenant, reason=reason))


@operations.callback(invoke_without_command=True)
def operations_entry(context: typer.Context) -> None:
    """Effects that happen once: the records of service.once and of IdempotencyMiddleware."""
    if context.invoked_subcommand is None:
        print_help(context)


@operations.command("list")
def list_operations_command(
    context: typer.Context,
    *,
    unknown: Annotated[
        bool, typer.Option("--unknown", help="Only those whose outcome nobody knows.")
    ] = False,
    kind: Annotated[str | None, typer.Option(help="Only of this kind; http for the middleware's.")] = None,
    limit: Annotated[
        int, typer.Option(metavar="N", help="At most so many, the last changed first.", min=1, max=100_000)
    ] = 50,
) -> None:
    """List operations, the last changed first."""
    from .operations import list_operations

    asyncio.run(list_operations(given(context), unknown=unknown, kind=kind, limit=limit))


@operations.command("settle")
def settle_operation_command(
    context: typer.Context,
    operation: Annotated[
        str, typer.Argument(metavar="OPERATION", help="KIND/KEY, such as refund/o-1, or its id.")
    ],
    *,
    succeeded: Annotated[bool, typer.Option("--succeeded", help="It took effect.")] = False,
    result: Annotated[
        Path | None, typer.Option(metavar="FILE", help="JSON of the result that further calls get.")
    ] = None,
    absent: Annotated[
        bool, typer.Option("--absent", help="It did not happen: the next call with its key does it.")
    ] = False,
    failed: Annotated[
        str | None, typer.Option(metavar="CODE", help="The other side said no, for good.")
    ] = None,
    tenant: Tenant = None,
    reason: Reason,
) -> None:
    """Say what became of an operation that nobody knows of."""
    from .operations import said, settle

    what = said(succeeded=succeeded, result=result, absent=absent, failed=failed)
    asyncio.run(settle(given(context), operation, what, tenant=tenant, reason=reason))
