"""`milepost contracts`: release what this service owns as files, and hold its classes against what was released."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from ..schemas.contracts import Contract, from_text, named, to_text
from ..schemas.contracts_check import Judged, judge, with_negatives
from ..schemas.errors import UsageError
from .application import load_app
from .contract_classes import OWNERS, contracts_of
from .findings import counted
from .options import Globals
from .problems import FINDINGS


def export(given: Globals, *, out: Path, also: Sequence[str], overwrite: bool) -> None:
    """Write the contracts that this service owns.

    Args:
        overwrite: Write also over a released version that the class breaks.

    Raises:
        typer.Exit: 1 when a released version would be broken; that file stays.
        UsageError: MP481 or MP484 when the folder cannot be used.
    """
    service = load_app(given)
    owned = [(side, one) for side, one in contracts_of(service, also) if side in OWNERS]
    released = read_folder(out) if out.exists() else {}
    refused = 0
    for side, contract in owned:
        judged = judge(side, contract, released)
        before = released.get(contract.name)
        if before is not None and to_text(before) == to_text(contract):
            outcome = "unchanged"
        elif judged.compatible or overwrite:
            outcome = "changed" if before is not None else "written"
            _write(out, contract)
        else:
            outcome, refused = "refused", refused + 1
        _say_export(given, out, judged, outcome)
    if not owned:
        given.out.say(
            f"service {service.name} owns no contract: it answers no command, and publishes no event but those that it "
            "handles too. Name these with --also TYPE."
        )
    if refused:
        raise typer.Exit(FINDINGS)


def _say_export(given: Globals, out: Path, judged: Judged, outcome: str) -> None:
    contract = judged.mine
    given.out.item(
        contract=contract.name,
        side=judged.side,
        file=str(out / contract.file),
        outcome=outcome,
        **_findings(judged),
    )
    given.out.say(f"{contract.name} {outcome}")
    if outcome == "refused":
        _say_findings(given, judged)


def check(given: Globals, *, against: Path, also: Sequence[str], strict: bool) -> None:
    """Compare the application's classes with released contracts.

    Args:
        strict: Remarks fail too.

    Raises:
        typer.Exit: 1 when one does not fit.
        UsageError: MP481 or MP484 when the folder cannot be read.
    """
    service = load_app(given)
    released = with_negatives(read_folder(against))
    judged = [judge(side, contract, released) for side, contract in contracts_of(service, also)]
    for one in judged:
        given.out.item(
            contract=one.mine.name,
            side=one.side,
            compatible=one.compatible,
            released=one.released,
            **_findings(one),
        )
        verdict = "compatible" if one.compatible else "NOT compatible"
        if one.side in OWNERS and not one.released:
            verdict = "not released yet"
        given.out.say(f"{one.mine.name} ({one.side}): {verdict}")
        _say_findings(given, one)
    wrong = [one for one in judged if not one.compatible or (strict and one.findings)]
    if not judged:
        given.out.say(f"service {service.name} has no event classes")
    else:
        given.out.say(f"{counted(len(judged), 'contract')}, {len(wrong) or 'none'} not compatible")
    if wrong:
        raise typer.Exit(FINDINGS)


def _findings(judged: Judged) -> dict[str, Any]:
    found = [{"code": one.code, "path": one.path, "reason": one.reason} for one in judged.findings]
    return {"findings": found, "advice": judged.advice}


def _say_findings(given: Globals, judged: Judged) -> None:
    for finding in judged.findings:
        given.out.say(f"  {finding}")
    if judged.findings and judged.advice:
        given.out.say(f"  → {judged.advice}")


def read_folder(folder: Path) -> dict[str, Contract]:
    """Return the contracts in a folder, by name; files that are named otherwise are passed over.

    Raises:
        UsageError: MP481 for a file that is no contract, MP484 when the folder cannot be read.
    """
    try:
        files = sorted(path for path in folder.iterdir() if named(path.name))
        contracts = [from_text(path.name, path.read_text(encoding="utf-8")) for path in files]
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            "MP484",
            f"the contracts in {folder} cannot be read: {error}. Name the folder that holds the files.",
        ) from error
    return {contract.name: contract for contract in contracts}


def _write(folder: Path, contract: Contract) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / contract.file).write_text(to_text(contract), encoding="utf-8")
    except OSError as error:
        raise UsageError(
            "MP484", f"{folder / contract.file} cannot be written: {error}. Name another folder with --out."
        ) from error
