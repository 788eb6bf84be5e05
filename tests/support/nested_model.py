"""What docs/shapes.md says about a flow, for one run: written from the page, for drawn flows, without the engine.

`Model` is told which leaves have begun and how they ended, and says what may begin now and how the flow stands.
`fated` says how a run ends whose every outcome is known beforehand.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from milepost.schemas.options import Repeat, Then

from tests.support.nested_drawn import PATIENT, Leaf, Loop, Par, Part, Seq, When, inner, leaves

Key: TypeAlias = tuple[str, str]
End: TypeAlias = Literal["ok", "skipped", "failed", "poor", "given up"]
Stands: TypeAlias = Literal["open", "ok", "failed", "lost"]


def under(path: str, number: int) -> str:
    """Return the place of a round."""
    return f"{path}.{number}" if path else f"{number}"


@dataclass
class Model:
    """One run.

    Attributes:
        begun: Leaves that have begun, by name and round.
        ends: How they ended.
        order: Leaves that succeeded, in order of completion.
    """

    tree: Seq
    begun: set[Key] = field(default_factory=set)
    ends: dict[Key, End] = field(default_factory=dict)
    order: list[Key] = field(default_factory=list)

    def end(self, key: Key, how: End) -> None:
        """Record an end."""
        assert key in self.begun, f"{key} ends without having begun"
        assert key not in self.ends, f"{key} ends twice"
        self.ends[key] = how
        if how == "ok":
            self.order.append(key)

    def live(self, part: Part, path: str) -> bool:
        """Whether something in a part is still going on."""
        names = {leaf.name for leaf in leaves(part)}
        return any(
            name in names and (not path or at == path or at.startswith(f"{path}."))
            for name, at in self.begun - self.ends.keys()
        )

    def stands(self, part: Part | None = None, path: str = "") -> Stands:
        """Say how a part stands; lost = it cannot succeed any more, but something in it is going on."""
        match part or self.tree:
            case Leaf(name=name):
                end = self.ends.get((name, path))
                return "open" if end is None else "ok" if end in {"ok", "skipped"} else "failed"
            case Seq(parts=parts):
                return next((s for one in parts if (s := self.stands(one, path)) != "ok"), "ok")
            case Par() as par:
                return self._beside(par, path)
            case When() as choice:
                return self.stands(choice.then if choice.answer else choice.otherwise, path)
            case Loop() as loop:
                return self._rounds(loop, path)

    def _beside(self, par: Par, path: str) -> Stands:
        stand = [self.stands(branch, path) for branch in par.branches]
        if self.gives_up(par, path):
            enough = par.early and stand.count("ok") >= par.need
            if self.live(par, path):
                return "open" if enough else "lost"
            return "ok" if enough else "failed"
        return "ok" if all(one in {"ok", "failed"} for one in stand) else "open"

    def gives_up(self, par: Par, path: str) -> bool:
        """Whether nothing more is wanted of what is side by side: enough have succeeded, or enough no longer can."""
        stand = [self.stands(branch, path) for branch in par.branches]
        lost = stand.count("failed") + stand.count("lost")
        return len(stand) - lost < par.need or (par.early and stand.count("ok") >= par.need)

    def _rounds(self, loop: Loop, path: str) -> Stands:
        number, poor = self._round(loop, path)
        inside = under(path, number)
        stand = self.stands(loop.body, inside)
        if poor:
            return "open" if self.live(loop.body, inside) else "failed"
        if stand != "ok":
            return stand
        return "ok" if self._good(loop, path, number) else "failed"

    def _round(self, loop: Loop, path: str) -> tuple[int, bool]:
        """Return the number of the latest round, and whether it ended because of poor work."""
        number = 1
        while True:
            inside = under(path, number)
            poor = self._poor(loop.body, inside)
            over = poor or (self.stands(loop.body, inside) == "ok" and not self._good(loop, path, number))
            if not over or number == loop.at_most or self.live(loop.body, inside):
                return number, poor
            number += 1

    def _good(self, loop: Loop, path: str, number: int) -> bool:
        return number >= loop.good and self.ends.get((loop.judge.name, under(path, number))) == "ok"

    def _poor(self, part: Part, path: str) -> bool:
        if isinstance(part, Loop):
            return False
        if isinstance(part, Leaf):
            return self.ends.get((part.name, path)) == "poor"
        return any(self._poor(one, path) for one in inner(part))

    def may_begin(self, part: Part | None = None, path: str = "") -> Iterator[Key]:
        """Yield every leaf that is to begin now."""
        part = part or self.tree
        if self.stands(part, path) != "open":
            return
        match part:
            case Leaf(name=name):
                yield from () if (name, path) in self.begun else ((name, path),)
            case Seq(parts=parts):
                stuck = next(one for one in parts if self.stands(one, path) != "ok")
                yield from self.may_begin(stuck, path)
            case Par(branches=branches):
                for branch in () if self.gives_up(part, path) else branches:
                    yield from self.may_begin(branch, path)
            case When():
                yield from self.may_begin(part.then if part.answer else part.otherwise, path)
            case Loop():
                number, poor = self._round(part, path)
                if not poor:
                    yield from self.may_begin(part.body, under(path, number))

    def reasons(self, part: Part | None = None, path: str = "") -> set[Then]:
        """Return what is to follow by the `on_failure` of everything by which a part is lost."""
        match part or self.tree:
            case Leaf() as leaf:
                return {leaf.then} if self.ends.get((leaf.name, path)) in {"failed", "poor"} else set()
            case Seq(parts=parts):
                stuck = [one for one in parts if self.stands(one, path) != "ok"]
                return self.reasons(stuck[0], path) if stuck else set()
            case Par() as par:
                found = [self.reasons(branch, path) for branch in par.branches if par.need]
                return set().union(*found)
            case When() as choice:
                return self.reasons(choice.then if choice.answer else choice.otherwise, path)
            case Loop() as loop:
                number, poor = self._round(loop, path)
                inside = under(path, number)
                over = poor or self.stands(loop.body, inside) == "ok"
                return {loop.then} if over else self.reasons(loop.body, inside)

    def unwanted(self, key: Key, part: Part | None = None, path: str = "") -> bool:
        """Whether a leaf is in a part of which nothing more is wanted."""
        part = part or self.tree
        name, at = key
        if name not in {leaf.name for leaf in leaves(part)}:
            return False
        if isinstance(part, Par) and self.gives_up(part, path):
            return True
        if isinstance(part, Loop):
            inside = under(path, int(at.split(".")[path.count(".") + 1 if path else 0]))
            return self._poor(part.body, inside) or self.unwanted(key, part.body, inside)
        return any(self.unwanted(key, one, path) for one in inner(part))


# --- what is known beforehand ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Fated:
    """How a part must end; `effects` are those of its leaves, None where that depends on who is faster."""

    ok: bool
    effects: frozenset[Key] | None


def fated(part: Part, path: str = "", number: int = 0) -> Fated | None:
    """Return how a part ends whatever goes wrong on the way, None where that depends on time or on a person."""
    match part:
        case Leaf():
            return _fated_leaf(part, path, number)
        case Seq(parts=parts):
            return _in_order(parts, path, number)
        case Par():
            return _side_by_side(part, path, number)
        case When():
            return fated(part.then if part.answer else part.otherwise, path, number)
        case Loop():
            return _fated_rounds(part, path)


def _fated_leaf(leaf: Leaf, path: str, number: int) -> Fated | None:
    if leaf.kind == "wait":
        if leaf.fate == "ok" or leaf.then is Then.CONTINUE:
            return Fated(True, frozenset())
        return Fated(False, frozenset()) if leaf.then is Then.COMPENSATE else None
    if leaf.attempts != PATIENT or leaf.repeat is Repeat.NEVER or (leaf.fate == "poor" and number == 1):
        return None
    if leaf.fate == "no":
        return None if leaf.then is Then.PERSON else Fated(False, frozenset())
    return Fated(True, frozenset() if leaf.kind == "timer" else frozenset({(leaf.name, path)}))


def _in_order(parts: tuple[Part, ...], path: str, number: int) -> Fated | None:
    effects: frozenset[Key] | None = frozenset()
    for part in parts:
        one = fated(part, path, number)
        if one is None:
            return None
        effects = None if effects is None or one.effects is None else effects | one.effects
        if not one.ok:
            return Fated(False, effects)
    return Fated(True, effects)


def _side_by_side(par: Par, path: str, number: int) -> Fated | None:
    found = [fated(branch, path, number) for branch in par.branches]
    known = [one for one in found if one is not None]
    if len(known) < len(found):
        return None
    ok = sum(one.ok for one in known) >= par.need
    effects: frozenset[Key] | None = frozenset()
    for one in known:
        effects = None if effects is None or one.effects is None else effects | one.effects
    return Fated(ok, effects if ok and not par.early else None)


def _fated_rounds(loop: Loop, path: str) -> Fated | None:
    effects: frozenset[Key] | None = frozenset()
    for number in range(1, loop.at_most + 1):
        one = fated(loop.body, under(path, number), number)
        if one is None:
            return None
        effects = None if effects is None or one.effects is None else effects | one.effects
        if not one.ok or number >= loop.good:
            return Fated(one.ok, effects)
    return Fated(False, effects)
