"""A flow as a tree: what comes after, beside and instead of what. Pure data, made by compiling.py.

`Leaf` is a step or a wait. The others put parts together: in order, side by side, one of two, again and again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Pure: TypeAlias = Callable[[Any], object]


@dataclass(frozen=True, slots=True, eq=False)
class Leaf:
    """A step, a wait, or whatever else has a row of its own."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """Parts in order; an empty one is over at once."""

    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Parallel:
    """Branches side by side.

    Attributes:
        need: So many branches have to succeed; 0: whatever becomes of them.
        early: Once so many have, the others are given up at the next safe boundary.
        title: For people: "all of", "at least 2 of", "optional".
    """

    branches: tuple[Part, ...]
    need: int
    early: bool
    title: str


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """One of two ways; which one is asked once, and kept in a row of this name."""

    name: str
    test: Pure
    then: Series
    otherwise: Series


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """A body that runs until `until` says so, at most so often; each round is kept in a row of this name."""

    name: str
    body: Series
    until: Pure
    at_most: int


Part: TypeAlias = Leaf | Series | Parallel | Choice | Loop

#: How one node stands to another: strictly earlier, strictly later, at the same time, never in the same run, or in
#: another round of the same loop as well.
Relation: TypeAlias = Literal["before", "after", "beside", "instead", "round"]


def inner(part: Part) -> tuple[Part, ...]:
    """Return the parts of a part, in order."""
    match part:
        case Leaf():
            return ()
        case Series(parts=parts):
            return parts
        case Parallel(branches=branches):
            return branches
        case Choice(then=then, otherwise=otherwise):
            return (then, otherwise)
        case Loop(body=body):
            return (body,)


def names(part: Part) -> Iterator[str]:
    """Yield the name of every row that a part may have, rows of choices and loops included."""
    if isinstance(part, Leaf | Choice | Loop):
        yield part.name
    for one in inner(part):
        yield from names(one)


def parts(part: Part) -> Iterator[Part]:
    """Yield a part and everything in it."""
    yield part
    for one in inner(part):
        yield from parts(one)


def way_to(part: Part, name: str) -> tuple[Part, ...]:
    """Return the parts that lead to a node, outermost first and itself last; () when it is not in there."""
    if isinstance(part, Leaf | Choice | Loop) and part.name == name:
        return (part,)
    for one in inner(part):
        found = way_to(one, name)
        if found:
            return (part, *found)
    return ()


def relation(root: Part, name: str, other: str) -> Relation:
    """Say how the node `name` stands to `other`; both are in the tree and are not the same."""
    mine, its = way_to(root, name), way_to(root, other)
    shared = [a for a, b in zip(mine, its, strict=False) if a is b]
    if any(isinstance(part, Loop) for part in shared) and not _earlier(shared[-1], mine, its, len(shared)):
        return "round"
    last = shared[-1]
    if isinstance(last, Parallel):
        return "beside"
    if isinstance(last, Choice) and mine[-1] is not last and its[-1] is not last:
        return "instead"
    return "before" if _earlier(last, mine, its, len(shared)) else "after"


def _earlier(last: Part, mine: tuple[Part, ...], its: tuple[Part, ...], depth: int) -> bool:
    """Whether the first way comes earlier in the last part that both share."""
    if (
        len(mine) == depth
    ):  # itself the choice or loop around the other: a choice is asked before, a round ends after
        return isinstance(last, Choice)
    if len(its) == depth:
        return isinstance(last, Loop)
    if not isinstance(last, Series):
        return False
    places = [next(n for n, part in enumerate(last.parts) if part is way[depth]) for way in (mine, its)]
    return places[0] < places[1]


def firsts(part: Part) -> Iterator[str]:
    """Yield the leaves with which a part may begin."""
    if isinstance(part, Leaf):
        yield part.name
        return
    for one in inner(part)[:1] if isinstance(part, Series) else inner(part):
        yield from firsts(one)


def next_after(root: Part, name: str) -> tuple[str, ...]:
    """Return the leaves that may begin as soon as a leaf is over, and because of it."""
    way = way_to(root, name)
    for outer, one in zip(way[-2::-1], way[:0:-1], strict=True):
        if isinstance(outer, Parallel | Loop):
            return ()
        if isinstance(outer, Series) and outer.parts[-1] is not one:
            place = next(n for n, part in enumerate(outer.parts) if part is one)
            return tuple(firsts(outer.parts[place + 1]))
    return ()


def tolerated(root: Part, name: str) -> bool:
    """Whether a failure of the node never stops the run: it is in a part that needs none of its branches."""
    return any(isinstance(part, Parallel) and part.need == 0 for part in way_to(root, name))


def text(part: Part) -> str:
    """Write a part for people: "a > (b | c) > d"."""
    match part:
        case Leaf(name=name):
            return name
        case Series(parts=parts):
            return " > ".join(text(one) for one in parts)
        case Parallel(branches=branches):
            return f"({' | '.join(text(one) for one in branches)})"
        case Choice(name=name, then=then, otherwise=otherwise):
            return f"{name}? ({text(then) or '-'} : {text(otherwise) or '-'})"
        case Loop(name=name, body=body, at_most=at_most):
            return f"{name} ({text(body)}) up to {at_most}x"


def under(path: str, round_: int) -> str:
    """Return the iteration of a loop's round within the iteration `path`: rounds from 1, joined by dots."""
    return f"{path}.{round_}" if path else str(round_)
