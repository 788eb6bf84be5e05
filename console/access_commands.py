"""The command lines of `milepost tokens` and `milepost access`."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from .options import given, print_help

tokens = typer.Typer(help="Tokens for the console: add, list, revoke.", pretty_exceptions_enable=False)
access = typer.Typer(
    help="What names may do in the console: add, list, revoke.", pretty_exceptions_enable=False
)

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Who, as it stands in the audit.", show_default=False)
]
Named = Annotated[
    str, typer.Argument(metavar="ID|NAME", help="One by its id, or all of a name.", show_default=False)
]
Roles = Annotated[
    list[str],
    typer.Option("--role", metavar="ROLE", help="viewer, operator, approver, admin, agent; may be repeated."),
]
Tenants = Annotated[list[str] | None, typer.Option("--tenant", help="Only of this tenant; may be repeated.")]
Sagas = Annotated[list[str] | None, typer.Option("--saga", help="Only of this saga; may be repeated.")]
Reason = Annotated[str, typer.Option(metavar="TEXT", help="Why, for the audit.", show_default=False)]


@tokens.callback(invoke_without_command=True)
def tokens_entry(context: typer.Context) -> None:
    """Make, show and revoke tokens for programs and persons."""
    if context.invoked_subcommand is None:
        print_help(context)


@access.callback(invoke_without_command=True)
def access_entry(context: typer.Context) -> None:
    """Say what those may do whom a provider or a proxy vouches for."""
    if context.invoked_subcommand is None:
        print_help(context)


@tokens.command("add")
def add_token_command(
    context: typer.Context,
    name: Name,
    *,
    role: Roles,
    reason: Reason,
    tenant: Tenants = None,
    saga: Sagas = None,
    expires: Annotated[
        str, typer.Option(metavar="DURATION", help="How long it holds, such as 12h or 90d.")
    ] = "90d",
) -> None:
    """Make a token, and print it this once."""
    from .access import add_token

    asyncio.run(
        add_token(
            given(context), name, role, tenants=tenant or [], sagas=saga or [], expires=expires, reason=reason
        )
    )


@tokens.command("list")
def list_tokens_command(context: typer.Context) -> None:
    """Show tokens, whom they stand for, and when they were used."""
    from .access import list_tokens

    asyncio.run(list_tokens(given(context)))


@tokens.command("revoke")
def revoke_token_command(context: typer.Context, name: Named, *, reason: Reason) -> None:
    """Revoke a token; sessions that were opened with it end at once."""
    from .access import revoke_tokens

    asyncio.run(revoke_tokens(given(context), name, reason=reason))


@access.command("add")
def add_access_command(
    context: typer.Context,
    name: Name,
    *,
    role: Roles,
    reason: Reason,
    tenant: Tenants = None,
    saga: Sagas = None,
) -> None:
    """Let somebody do something whom a provider or a proxy vouches for."""
    from .access import add_access

    asyncio.run(add_access(given(context), name, role, tenants=tenant or [], sagas=saga or [], reason=reason))


@access.command("list")
def list_access_command(context: typer.Context) -> None:
    """Show what names may do."""
    from .access import list_access

    asyncio.run(list_access(given(context)))


@access.command("revoke")
def revoke_access_command(context: typer.Context, name: Named, *, reason: Reason) -> None:
    """Take back what a name may do, from its next request on."""
    from .access import revoke_access

    asyncio.run(revoke_access(given(context), name, reason=reason))
