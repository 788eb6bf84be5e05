"""The command line of `milepost contracts`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import given, print_help

commands = typer.Typer(
    help="Contracts as files: export, check, asyncapi.",
    pretty_exceptions_enable=False,
    epilog="An event class that a consumer handles, a saga awaits or a sent command is replied with is consumed; a "
    "command that no consumer answers is sent; every other event class that the application loads is published.",
)

Also = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TYPE", help="Published by this service although it handles it too; may be repeated."
    ),
]


@commands.callback(invoke_without_command=True)
def contracts_entry(context: typer.Context) -> None:
    """Contracts as files: export, check, asyncapi."""
    if context.invoked_subcommand is None:
        print_help(context)


@commands.command("export")
def export_command(
    context: typer.Context,
    *,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the files; made where it is missing.")],
    also: Also = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Also where a released version would be broken.")
    ] = False,
) -> None:
    """Write JSON Schema files of what this service publishes and answers.

    One file per type and version. A file that is there is a released version: an edit that would break it is refused.
    """
    from .contracts import export

    export(given(context), out=out, also=also or [], overwrite=overwrite)


@commands.command("check")
def check_command(
    context: typer.Context,
    *,
    against: Annotated[Path, typer.Option(metavar="DIR", help="Folder with the released contracts.")],
    also: Also = None,
    strict: Annotated[bool, typer.Option("--strict", help="Remarks fail too.")] = False,
) -> None:
    """Hold the application's event classes against released contracts, from both sides."""
    from .contracts import check

    check(given(context), against=against, also=also or [], strict=strict)


@commands.command("asyncapi")
def asyncapi_command(
    context: typer.Context,
    *,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The file; - is standard output.")],
    also: Also = None,
    release: Annotated[str, typer.Option(metavar="VERSION", help="Version of the application.")] = "0.1.0",
) -> None:
    """Write the AsyncAPI 3.0 document: every topic, message and schema of the application."""
    from .asyncapi import write_document

    write_document(given(context), out=out, also=also or [], release=release)
