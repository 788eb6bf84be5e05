"""`milepost check`: import the application, try its definitions, and compare the schema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from ..consumers.probes import health_address
from ..schemas.errors import ConnectError, DefinitionError, MilepostError, StartError, StateError, UsageError
from ..streams.migrate import migration_files
from .application import load_app
from .findings import Check, counted, judge_schema
from .memory import judge_memory
from .options import Globals
from .output import Output
from .problems import FINDINGS, NO_CONNECTION, REFUSED, exit_status
from .settings import unread
from .store import Sql, reading
from .versions import judge_versions

if TYPE_CHECKING:
    from ..consumers.app import Milepost


async def check(given: Globals, *, strict: bool) -> None:
    """Print what each saga has, and what is wrong with it.

    Args:
        strict: A server that cannot be looked at fails too.

    Raises:
        typer.Exit: 1 with findings, 3 when the database's schema is not this version's; with `strict` 2 when no
            database is named, 4 when it cannot be reached.
    """
    from ..sagas import timing
    from ..sagas.trying import check_definition

    out = given.out
    service = load_app(given)
    found = 0
    for saga in sorted(service.sagas, key=lambda saga: (saga.name, saga.version)):
        errors = check_definition(saga)
        found += len(errors)
        findings = [{"code": error.code, "text": error.text} for error in errors]
        out.item(saga=saga.name, version=saga.version, findings=findings)
        amount = counted(len(errors), "finding") if errors else "no findings"
        out.say(f"{saga.definition.summary()}, {amount}")
        if limits := timing.words(saga.definition):
            out.say(f"  {limits}")
        for error in errors:
            out.say(f"  {error.code} {error.text}")
    found += _rates(out, service)
    if not service.sagas:
        out.say(f"service {service.name}: no sagas, {counted(len(service.consumers), 'consumer')}")
    schema, unseen = await _schema(given)
    _print_schema(out, schema)
    _print_probes(out, service)
    for _, words in unread():
        _print_schema(out, Check("settings", "warning", words))
    memory = await _memory(out, service)
    versions = await _versions(given, service, schema)
    found += sum(judged.severity == "error" for judged in (*memory, *versions, *_keys(out, service)))
    if found:
        raise typer.Exit(FINDINGS)
    if strict and unseen is not None:
        raise typer.Exit(exit_status(unseen))
    if strict and any(judged.severity == "warning" for judged in memory):
        raise typer.Exit(NO_CONNECTION)
    if schema.severity == "error":
        raise typer.Exit(REFUSED)


def _keys(out: Output, service: Milepost) -> Sequence[Check]:
    """Look at the keys of codecs that this service's consumers read by."""
    classes = {event for consumer in service.consumers.values() for event in consumer.events}
    codecs = {id(event.milepost_spec.codec): event.milepost_spec.codec for event in classes}
    wrong: dict[str, Check] = {}
    for codec in codecs.values():
        try:
            codec.check()
        except UsageError as error:
            wrong[error.text] = Check("encryption", "error", error.text, error.code)
    for text in sorted(wrong):
        _print_schema(out, wrong[text])
    return list(wrong.values())


def _rates(out: Output, service: Milepost) -> int:
    """Say which rate limit is not there; returns the number of findings."""
    from ..consumers.gates import check_limits

    try:
        check_limits(service)
    except DefinitionError as error:
        out.item(limits=sorted(service.limits), findings=[{"code": error.code, "text": error.text}])
        out.say(f"{error.code} {error.text}")
        return 1
    return 0


async def _versions(given: Globals, service: Milepost, schema: Check) -> Sequence[Check]:
    """Look for open runs whose definition nobody has, where the schema could be looked at and is right."""
    if schema.severity != "ok":
        return ()
    versions = await judge_versions(given, service)
    for judged in versions:
        _print_schema(given.out, judged)
    return versions


async def _memory(out: Output, service: Milepost) -> Sequence[Check]:
    """Compare how long the inbox remembers with how long topics keep their records."""
    memory = await judge_memory(service)
    for judged in memory:
        _print_schema(out, judged)
    return memory


async def _schema(given: Globals) -> tuple[Check, MilepostError | None]:
    """Compare the schema; where the database cannot be looked at, say why."""
    newest = migration_files()[-1].number
    try:
        async with reading(given.database_url()) as store:
            if not (await store.fetchrow(Sql.server))["has_schema"]:
                return judge_schema(0, newest), None
            return judge_schema((await store.fetchrow(Sql.schema_version))[0], newest), None
    except (UsageError, ConnectError, StateError) as error:
        text = f"the schema was not looked at: {error.text}"
        return Check("schema", "warning", text, error.code), error


def _print_schema(out: Output, schema: Check) -> None:
    out.item(check=schema.name, severity=schema.severity, code=schema.code, text=schema.text, fix=schema.fix)
    code = f"{schema.code} " if schema.code else ""
    out.say(" ".join(part for part in (code + schema.text, schema.fix) if part))


def _print_probes(out: Output, service: Milepost) -> None:
    """Say where `serve` answers a platform's probes, and refuse an address that is none."""
    try:
        address = service.settings.health
    except StartError:
        return  # said where the database is looked at
    if address is not None:
        health_address(address)
    out.item(check="probes", severity="ok", address=address)
    where = (
        f"serve answers GET /live and /ready at {address}" if address else "off; MILEPOST_HEALTH=host:port"
    )
    out.say(f"probes: {where}")
