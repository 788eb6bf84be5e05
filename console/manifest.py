"""`milepost runs show RUN --manifest`: what is done, what is next, on what it rests, and what is in the way."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from ..sagas.codec import digest
from ..sagas.words import RESUME_BLOCKED, REVIEW_REQUIRED
from ..schemas.artifacts import references
from ..schemas.states import StepState
from ..streams.queries import Queries
from . import artifacts
from .artifacts import in_bytes
from .model import Plan, RunDetail, minute
from .output import Output, clean
from .store import Store

_SHORT = 12
_PERSONS = frozenset({StepState.MANUAL_REQUIRED, StepState.COMPENSATION_FAILED})


class Sql(Queries, file="manifest.sql"):
    """Queries of this module."""

    pinned: str
    done_steps: str
    by_persons: str
    waits_of: str
    last_look: str


@dataclass(frozen=True)
class Manifest:
    """The four parts, as --json prints them."""

    done: Sequence[Mapping[str, Any]]
    next: Sequence[Mapping[str, Any]]
    rests_on: Mapping[str, Any]
    blocks: Sequence[Mapping[str, Any]]

    @property
    def item(self) -> dict[str, Any]:
        """As --json prints it."""
        return {"done": self.done, "next": self.next, "rests_on": self.rests_on, "blocks": self.blocks}


async def read_manifest(store: Store, run: RunDetail, plan: Plan) -> Manifest:
    """Put a run's manifest together, from one snapshot of the database.

    Args:
        plan: What the application adds: steps that have not been reached.
    """
    pinned = await store.fetchrow(Sql.pinned, run.id)
    made = await store.fetch(artifacts.Sql.artifacts_of, run.id)
    persons = {
        (row["step"], row["iteration"]): row["by"] for row in await store.fetch(Sql.by_persons, run.id)
    }
    done = [_done(row, persons, made) for row in await store.fetch(Sql.done_steps, run.id)]
    looks = await store.fetch(Sql.last_look, run.id)
    return Manifest(
        done=done,
        next=_next(run, plan),
        rests_on={
            "saga": run.saga,
            "definition": run.definition,
            "shape": pinned["shape"],
            "policy": pinned["policy"],
            "input_sha256": digest(json.loads(pinned["input"])).hex(),
            "input_version": pinned["input_version"],
            "fingerprint": pinned["fingerprint"],
            "parts": None if pinned["parts"] is None else json.loads(pinned["parts"]),
            "artifacts": _referred(pinned["input"], done),
            "waits": [dict(row) for row in await store.fetch(Sql.waits_of, run.id)],
        },
        blocks=[*_held(run), *_found(run, looks)],
    )


def _done(row: Any, persons: Mapping[tuple[str, str], str], made: Iterable[Any]) -> dict[str, Any]:
    result = None if row["result"] is None else json.loads(row["result"])
    own = [a for a in made if (a["step"], a["iteration"]) == (row["name"], row["iteration"])]
    names = ("name", "type", "size", "sha256", "location")
    return {
        "step": row["name"],
        "iteration": row["iteration"],
        "state": row["state"],
        "undo_of": row["undo_of"],
        "tries": row["attempt"],
        "by": persons.get((row["name"], row["iteration"])),
        "finished_at": row["finished_at"],
        "result_sha256": None if result is None else digest(result).hex(),
        "refers_to": [ref.model_dump(mode="json") for ref in references(result)],
        "artifacts": [{name: a[name] for name in names} for a in own],
    }


def _next(run: RunDetail, plan: Plan) -> list[dict[str, Any]]:
    live = [
        {"step": step.label, "state": step.state, "code": step.code, "wake_at": step.wake_at}
        for step in run.steps
        if step.wake_at is not None
    ]
    ahead = plan.not_reached(run) if run.finished_at is None and run.cause is None else []
    return live + [{"step": name, "state": None, "code": None, "wake_at": None} for name in ahead]


def _referred(given: str, done: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return each artifact that the input or a result refers to, once."""
    found = {ref.location: ref.model_dump(mode="json") for ref in references(json.loads(given))}
    for step in done:
        found.update({ref["location"]: ref for ref in step["refers_to"]})
    return list(found.values())


def _held(run: RunDetail) -> list[dict[str, Any]]:
    return [
        {"step": step.label, "code": step.code, "text": step.message or ""}
        for step in run.steps
        if step.state in _PERSONS
    ]


def _found(run: RunDetail, looks: Sequence[Any]) -> list[dict[str, Any]]:
    """Return what the last look found, while it is what holds the run back."""
    if not looks or run.code not in {RESUME_BLOCKED, REVIEW_REQUIRED}:
        return []
    reasons = json.loads(looks[0]["reasons"])
    return [{"step": None, "code": f"{run.code}, {r['code']}", "text": r["text"]} for r in reasons]


# --- for people -----------------------------------------------------------------------------------------


def print_manifest(out: Output, manifest: Manifest) -> None:
    """Print the four parts, folded to the terminal's width."""
    _part(out, "done", [_done_line(step) for step in manifest.done])
    _part(out, "next", [_next_line(step) for step in manifest.next])
    _part(out, "rests on", _rests_lines(manifest.rests_on))
    _part(out, "in the way", [_block_line(block) for block in manifest.blocks])


def _part(out: Output, title: str, lines: Sequence[tuple[str, str]]) -> None:
    out.say(Text(f"  {title}", style="bold"))
    width = max((len(name) for name, _ in lines), default=0)
    for name, words in lines or [("nothing", "")]:
        out.hanging(Text(f"    {clean(name).ljust(width)}  "), clean(words))


def _done_line(step: Mapping[str, Any]) -> tuple[str, str]:
    words = [str(step["state"])]
    words += [f"undoes {step['undo_of']}"] if step["undo_of"] else []
    words += [f"by {step['by']}"] if step["by"] else []
    words += [f"{minute(step['finished_at'])}"] if step["finished_at"] else []
    words += [f"result {step['result_sha256'][:_SHORT]}…"] if step["result_sha256"] else []
    made = [f"{a['name']} ({in_bytes(a['size'])}, {a['sha256'][:_SHORT]}…)" for a in step["artifacts"]]
    words += [f"made {', '.join(made)}"] if made else []
    label = f"{step['step']}#{step['iteration']}" if step["iteration"] else str(step["step"])
    return label, ", ".join(words)


def _next_line(step: Mapping[str, Any]) -> tuple[str, str]:
    if step["state"] is None:
        return str(step["step"]), "not reached"
    return str(step["step"]), f"{step['state']}" + (f", {step['code']}" if step["code"] else "")


def _rests_lines(on: Mapping[str, Any]) -> list[tuple[str, str]]:
    pins = f"{on['saga']} v{on['definition']}, shape {on['shape'][:_SHORT]}…, policy {on['policy'][:_SHORT]}…"
    lines = [
        ("definition", pins),
        ("input", f"version {on['input_version']}, {on['input_sha256'][:_SHORT]}…"),
    ]
    if on["fingerprint"]:
        parts = ", ".join(f"{name} {json.dumps(part)}" for name, part in sorted(on["parts"].items()))
        lines.append(("fingerprint", f"{on['fingerprint'][:_SHORT]}…: {parts}"))
    for made in on["artifacts"]:
        lines.append(
            (
                "artifact",
                f"{made['name']} of {made['step']}, {in_bytes(made['size'])}, {made['sha256'][:_SHORT]}…",
            )
        )
    for wait in on["waits"]:
        lines.append(("event", f"{wait['type']} {wait['key']} for {wait['step']}: {wait['state']}"))
    return lines


def _block_line(block: Mapping[str, Any]) -> tuple[str, str]:
    words = ": ".join(part for part in (block["code"] or "", block["text"]) if part)
    return str(block["step"] or "the run"), words
