"""Which round of a loop a row is of, and what the round before fell short of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..schemas.errors import QualityFailed
from . import tree
from .model import Run

if TYPE_CHECKING:
    from .definition import Definition


def number(iteration: str) -> int:
    """Return the number of the innermost round, from 1; outside of loops everything is in its first."""
    return int(iteration.rpartition(".")[2]) if iteration else 1


def fell_short(definition: Definition, run: Run, name: str, iteration: str) -> QualityFailed | None:
    """Return the poor work that ended the round before, of the innermost loop around a node or undo; None for none."""
    undone = definition.undone_by(name)
    loop = loop_around(definition.flow, name if undone is None else undone.name)
    outer, _, last = iteration.rpartition(".")
    if loop is None or not last or int(last) == 1:
        return None
    before = tree.under(outer, int(last) - 1)
    ended = run.step(loop.name, before)
    because = ended.result.get("because") if ended is not None and ended.result else None
    poor = None if because is None else run.step(because, before)
    return None if poor is None else QualityFailed(poor.code or "", poor.message or "")


def loop_around(flow: tree.Part, name: str) -> tree.Loop | None:
    """Return the innermost loop that a node is in."""
    loops = [part for part in tree.way_to(flow, name) if isinstance(part, tree.Loop) and part.name != name]
    return loops[-1] if loops else None
