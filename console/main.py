"""The command `milepost`.

Commands import what they need when they run, so that `milepost --help` answers at once.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from importlib import metadata
from typing import Annotated, Any

import typer

from ..schemas.errors import MilepostError
from . import (
    access_commands,
    act_commands,
    answer_commands,
    artifact_commands,
    audit_commands,
    bulk_commands,
    contract_commands,
    dead_commands,
    graph_commands,
    mcp_command,
    outbox_commands,
    proposal_commands,
    reconcile_commands,
    record_commands,
    replay_commands,
    second_commands,
)
from .options import Globals, given, hoist, print_help
from .output import Output, ReaderGone
from .problems import DONE, USAGE, as_problem, exit_status

#: What Typer raises for a wrong command line; it names the class only through its subclasses.
COMMAND_LINE_ERROR: type[Exception] = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)

#: What `--roles` may name; written out, because the module that knows them loads the drivers.
ROLES = (
    *("relay", "orchestrator", "worker", "compensator"),
    *("signals", "consumers", "waker", "reconciler", "upkeep"),
)

app = typer.Typer(
    name="milepost",
    help="Durable business processes over PostgreSQL and Apache Kafka.",
    epilog="Exit status: 0 done, 1 findings, 2 wrong command line, 3 refused by the state, 4 cannot connect.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(act_commands.commands, name="runs")
app.add_typer(artifact_commands.commands, name="artifacts")
app.add_typer(dead_commands.commands, name="dead")
app.add_typer(outbox_commands.commands, name="outbox")
app.add_typer(audit_commands.commands, name="audit")
app.add_typer(proposal_commands.commands, name="proposals")
app.add_typer(bulk_commands.commands, name="bulk")
app.add_typer(record_commands.signals, name="signals")
app.add_typer(record_commands.webhooks, name="webhooks")
app.add_typer(record_commands.operations, name="operations")
app.add_typer(contract_commands.commands, name="contracts")
app.add_typer(access_commands.tokens, name="tokens")
app.add_typer(access_commands.access, name="access")
app.command("replay")(replay_commands.replay_command)
app.command("reconcile")(reconcile_commands.reconcile_command)
app.command("runbook")(reconcile_commands.runbook_command)
app.command("worklist")(answer_commands.worklist_command)
app.command("approve")(answer_commands.approve_command)
app.command("reject")(answer_commands.reject_command)
app.command("confirm")(second_commands.confirm_command)
app.command("decline")(second_commands.decline_command)
app.command("mcp")(mcp_command.mcp_command)


def version() -> str:
    """Return the installed version; "unknown" where the package is not installed."""
    try:
        return metadata.version("milepost")
    except metadata.PackageNotFoundError:
        return "unknown"


@app.callback(invoke_without_command=True)
def entry(
    context: typer.Context,
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object per line. May also stand after the command.")
    ] = False,
    database: Annotated[
        str | None, typer.Option(metavar="URL", help="PostgreSQL; else MILEPOST_DATABASE_URL.")
    ] = None,
    app_name: Annotated[
        str | None,
        typer.Option(
            "--app",
            metavar="MODULE:ATTR",
            help="Application; else MILEPOST_APP, else \\[tool.milepost] app in ./pyproject.toml.",
        ),
    ] = None,
    acting: Annotated[
        str | None, typer.Option("--as", metavar="NAME", help="Who acts, for the audit; else MILEPOST_AS.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Change what was counted without asking.")] = False,
    show_version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Keep the global options for the command."""
    out = Output(as_json=as_json)
    context.obj = Globals(out, database, app_name, acting, yes)
    if show_version:
        out.item(version=version())
        out.say(f"milepost {version()}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print_help(context)


@app.command("serve")
def serve_command(
    context: typer.Context,
    roles: Annotated[
        list[str] | None,
        typer.Option(metavar="ROLES", help=f"Only these roles, comma-separated: {', '.join(ROLES)}."),
    ] = None,
    queues: Annotated[
        list[str] | None, typer.Option(metavar="QUEUES", help="Only work of these queues, comma-separated.")
    ] = None,
    reload: Annotated[bool, typer.Option("--reload", help="Start anew when a source file changes.")] = False,
) -> None:
    """Run the application's roles until SIGTERM or Ctrl-C.

    MILEPOST_LOG=debug, info, warning or error sets how much is logged; debug shows the Kafka client's own lines too.
    """
    from .serve import serve, serve_with_reload

    if reload:
        serve_with_reload(given(context), roles or [], queues or [])
    asyncio.run(serve(given(context), roles or [], queues or []))


@app.command("dev")
def dev_command(
    context: typer.Context,
    down: Annotated[bool, typer.Option("--down", help="End what an earlier call started.")] = False,
    no_jaeger: Annotated[bool, typer.Option("--no-jaeger", help="Without Jaeger.")] = False,
) -> None:
    """Start PostgreSQL, Kafka and Jaeger here; print MILEPOST_* lines.

    One stack is kept per user, whatever folder it was started in, and goes on until --down. It is noted in stack.json
    in the folder that MILEPOST_CACHE names, else in the user's cache folder (~/.cache/milepost).
    """
    from .dev import dev

    dev(given(context), down=down, jaeger=not no_jaeger)


@app.command("migrate")
def migrate_command(
    context: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    to: Annotated[int | None, typer.Option(help="Last migration to run; default all.", min=0)] = None,
) -> None:
    """Bring the database's schema to this version, and make partitions ahead."""
    from .migrate import run_migrations

    asyncio.run(run_migrations(given(context), to=to, dry_run=dry_run))


@app.command("check")
def check_command(
    context: typer.Context,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings fail too.")] = False,
) -> None:
    """Import the application and check its definitions."""
    from .check import check

    asyncio.run(check(given(context), strict=strict))


app.command("graph")(graph_commands.graph_command)


@app.command("doctor")
def doctor_command(
    context: typer.Context,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings fail too.")] = False,
) -> None:
    """Look at both servers and at everything that waits."""
    from .doctor import doctor

    asyncio.run(doctor(given(context), strict=strict))


@app.command("settings")
def settings_command(context: typer.Context) -> None:
    """Show the effective settings, where each comes from, and secrets masked."""
    from .settings import show_settings

    show_settings(given(context))


@app.command("retention")
def retention_command(context: typer.Context) -> None:
    """Show how long each kind of row is kept, when it was last walked, and how much would go now."""
    from .retention import show_retention

    asyncio.run(show_retention(given(context)))


@app.command("explain")
def explain_command(
    context: typer.Context,
    code: Annotated[
        str | None, typer.Argument(metavar="CODE", help="Such as MP104 or WAIT_TIMEOUT; lists all without.")
    ] = None,
) -> None:
    """Explain a code: what it means and what to do; without one, list all."""
    from .explain import explain

    explain(given(context), code)


@app.command("console")
def console_command(
    context: typer.Context,
    show: Annotated[bool, typer.Option("--open", help="Open a browser, signed in as yourself.")] = False,
    port: Annotated[
        int | None,
        typer.Option(help="Port; else MILEPOST_CONSOLE_PORT, else 8700. 0: any.", min=0, max=65535),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Address; else MILEPOST_CONSOLE_HOST, else only this machine."),
    ] = None,
    role: Annotated[
        list[str] | None,
        typer.Option(
            "--role",
            metavar="ROLE",
            help="A role of whoever follows the printed link, for approvals; may be repeated; else MILEPOST_ROLES.",
        ),
    ] = None,
) -> None:
    """Serve the console: what waits for a person, the runs, and what may be done about them."""
    from .web_command import run_console

    asyncio.run(run_console(given(context), host=host, port=port, show=show, roles=role or []))


@app.command("demo")
def demo_command(
    context: typer.Context,
    orders: Annotated[
        int, typer.Option(metavar="N", help="How many orders to place, 20 or more.", min=20)
    ] = 200,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the servers running, to look at the runs.")
    ] = False,
) -> None:
    """Run the shop example and kill its processes while they work."""
    from .demo import run_demo

    run_demo(given(context), orders=orders, keep=keep)


def run(words: Sequence[str]) -> int:
    """Run one command line.

    Args:
        words: The command line without the program's name.

    Returns:
        The exit status.
    """
    ordered = hoist(words)
    as_json = "--json" in ordered[: ordered.index("--")] if "--" in ordered else "--json" in ordered
    try:
        status: Any = app(args=ordered, prog_name="milepost", standalone_mode=False)
    except COMMAND_LINE_ERROR as error:
        return _wrong_command_line(error, Output(as_json=as_json))
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except ReaderGone:
        # What is still buffered would fail again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except Exception as error:
        problem: MilepostError = as_problem(error)
        Output(as_json=as_json).error(problem.code, problem.text)
        return exit_status(problem)
    return status if isinstance(status, int) else DONE


def _wrong_command_line(error: Exception, out: Output) -> int:
    words: Any = error
    context = getattr(error, "ctx", None)
    place = context.command_path if context is not None else "milepost"
    text = words.format_message().replace("Value error, ", "").rstrip(". ")
    for other in getattr(getattr(error, "param", None), "secondary_opts", ()):  # as --no-undo: name both ways
        text = text.replace(f"'{words.param.opts[0]}'", f"'{words.param.opts[0]}' or '{other}'")
    out.error("MP601", f"{text}. See `{place} --help`.")
    return USAGE


def main() -> None:
    """Run the command line of this process and exit."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
