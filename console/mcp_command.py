"""The command line of `milepost mcp`."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from .options import given


def mcp_command(
    context: typer.Context,
    *,
    agent: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="The agent's name, for proposals and the audit.", show_default=False
        ),
    ],
    saga: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this saga; may be repeated. Default: all.")
    ] = None,
    tenant: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only this tenant; may be repeated. Default: all."),
    ] = None,
) -> None:
    """Serve an AI agent over MCP on standard input and output: it may read and propose, nothing more."""
    from .mcp_server import serve_mcp

    asyncio.run(serve_mcp(given(context), agent, sagas=saga or [], tenants=tenant or []))
