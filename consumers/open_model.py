"""Whether every open run has its definition somewhere, and what has changed under those that have. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..sagas.model import Json
from ..sagas.registry import Definitions
from ..schemas.errors import StartError


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRuns:
    """Open runs that are pinned to the same.

    Attributes:
        first: Business key of the oldest, after the id that orders them: "0197… o-1".
        outline: What shape and policy were fingerprints of; None where no process has registered it.
    """

    saga: str
    version: int
    shape: str
    input_version: int
    policy: str
    amount: int
    first: str
    outline: Json = None

    @property
    def id(self) -> str:
        """As workers register it: "order/1"."""
        return f"{self.saga}/{self.version}"

    @property
    def pin(self) -> str:
        """All that they are pinned to."""
        return f"{self.id}#{self.shape}@{self.input_version}"


@dataclass(frozen=True, slots=True)
class Live:
    """What one live process of the service has; one of an older Milepost registers no pins."""

    pins: Collection[str]
    definitions: Collection[str]

    def has(self, runs: OpenRuns) -> bool:
        """Whether it can decide about them."""
        return runs.pin in self.pins if self.pins else runs.id in self.definitions


def refusals(
    own: Definitions, opened: Iterable[OpenRuns], live: Sequence[Live], rolled_back: Collection[str] = ()
) -> list[StartError]:
    """Return MP201 for every definition of open runs that nobody has.

    A version whose shape was edited in place is refused although an old process lives: this one is about to replace it.

    Args:
        own: What the starting process has.
        live: What the processes have whose lease holds.
        rolled_back: Definitions ("order/2") that need not be anywhere.
    """
    lost = defaultdict[tuple[str, int, str], list[OpenRuns]](list)
    pins = set(own.pins)
    for runs in opened:
        if runs.pin in pins or runs.id in rolled_back:
            continue
        known = own.get(runs.saga, runs.version)
        if known is not None and runs.shape != known.shape:
            lost[runs.saga, runs.version, f"changed shape ({changed(runs.outline, known.outline)})"].append(
                runs
            )
        elif not any(process.has(runs) for process in live):
            why = "is in no live process and not in this one" if known is None else _INPUT
            lost[runs.saga, runs.version, why].append(runs)
    return [_refusal(saga, version, why, runs, own) for (saga, version, why), runs in sorted(lost.items())]


_INPUT = "has inputs of a newer version than this process reads"


def _refusal(saga: str, version: int, why: str, runs: Sequence[OpenRuns], own: Definitions) -> StartError:
    amount, first = sum(group.amount for group in runs), key_of_first(runs)
    versions = [definition.version for definition in own if definition.name == saga]
    beside = (
        f" and add version={max(versions) + 1} beside it"
        if version in versions
        else " beside the new version"
    )
    keep = f"Keep v{version} as it was{beside}; those runs finish on v{version}."
    if why == _INPUT:
        keep = "Deploy the code that reads them."
    back = (
        ""
        if version in versions
        else f" After a rollback, MILEPOST_ROLLED_BACK={saga}/{version} starts without it."
    )
    open_runs = (
        f"{amount} run{' of' if amount == 1 else 's of'} v{version} {'is' if amount == 1 else 'are'} open"
    )
    return StartError(
        "MP201", f"{saga} v{version} {why} while {open_runs}. {keep}{back} First open run: {saga}/{first}."
    )


def key_of_first(runs: Sequence[OpenRuns]) -> str:
    """Return the business key of the oldest run."""
    return min(group.first for group in runs).partition(" ")[2]


def changed(old: Json, new: Json) -> str:
    """Name what differs between two shapes: "removed: invoice; added: gift_wrap; changed: ship"."""
    before, after = (outline.get("shape") if isinstance(outline, dict) else None for outline in (old, new))
    if before is None or after is None:
        return "its form of then was not registered"
    mine, theirs = dict(_named(before)), dict(_named(after))
    found = {
        "removed": [name for name in mine if name not in theirs],
        "added": [name for name in theirs if name not in mine],
        "changed": [name for name in mine if name in theirs and mine[name] != theirs[name]],
    }
    if before.get("input") != after.get("input"):
        found["changed"].append("input")
    words = [f"{what}: {', '.join(names)}" for what, names in found.items() if names]
    return "; ".join(words) or "order"


def changed_policy(old: Json, new: Json) -> list[str]:
    """Name the steps whose policy differs; empty where it cannot be told."""
    before, after = (outline.get("policy") if isinstance(outline, dict) else None for outline in (old, new))
    mine, theirs = dict(_named(before)), dict(_named(after))
    return [name for name in theirs if mine.get(name, theirs[name]) != theirs[name]]


def _named(part: Json) -> Iterator[tuple[str, Json]]:
    """Walk an outline: everything that has a name, without what stands inside it."""
    if isinstance(part, Mapping):
        name = part.get("name")
        if isinstance(name, str):
            yield name, {key: value for key, value in part.items() if not _has_named(value)}
        for value in part.values():
            yield from _named(value)
    elif isinstance(part, list | tuple):
        for value in part:
            yield from _named(value)


def _has_named(value: Json) -> bool:
    return next(_named(value), None) is not None


@dataclass(frozen=True, slots=True)
class NewPolicy:
    """Open runs that go on under another policy than they began with.

    Attributes:
        steps: Whose policy changed; empty where that was not registered.
    """

    title: str
    amount: int
    steps: Sequence[str]


def new_policies(own: Definitions, opened: Iterable[OpenRuns]) -> list[NewPolicy]:
    """Return what has changed under open runs without a new version, as it may."""
    amounts, steps = defaultdict[str, int](int), defaultdict[str, dict[str, None]](dict)
    pins = set(own.pins)
    for runs in opened:
        known = own.get(runs.saga, runs.version)
        if known is not None and runs.pin in pins and runs.policy != known.policy:
            amounts[known.title] += runs.amount
            steps[known.title].update(dict.fromkeys(changed_policy(runs.outline, known.outline)))
    return [NewPolicy(title, amounts[title], list(steps[title])) for title in sorted(amounts)]
