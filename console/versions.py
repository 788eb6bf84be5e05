"""What `check` says of open runs: whose definition nobody has, and what changed under those that go on."""

from __future__ import annotations

from collections.abc import Sequence

from ..consumers.app import Milepost
from ..consumers.open_model import NewPolicy, OpenRuns, new_policies, refusals
from ..consumers.opening import read_live, read_open_runs, rolled_back
from ..schemas.errors import StartError
from .findings import Check, counted
from .options import Globals
from .store import reading


async def judge_versions(given: Globals, service: Milepost) -> Sequence[Check]:
    """See whether every open run of the service has its definition in this application or in a live process."""
    async with reading(given.database_url()) as store:
        opened = await read_open_runs(store.fetch, service.name)
        live = await read_live(store.fetch, service.name)
    try:
        without = rolled_back(service.settings.rolled_back)
    except StartError:
        without = []  # said where settings are looked at
    refused = refusals(service.definitions, opened, live, without)
    found = [Check("versions", "error", refusal.text, refusal.code) for refusal in refused]
    return [*found, *map(_words, new_policies(service.definitions, opened))] or [_well(opened)]


def _words(new: NewPolicy) -> Check:
    steps = f" ({', '.join(new.steps)})" if new.steps else ""
    text = f"{new.title}: policy changed{steps} under {counted(new.amount, 'open run')}, which go on with the new one"
    return Check("versions", "ok", text)


def _well(opened: Sequence[OpenRuns]) -> Check:
    amount = sum(runs.amount for runs in opened)
    return Check("versions", "ok", f"{counted(amount, 'open run')}, each with its definition")
