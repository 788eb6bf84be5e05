"""Nested flows drawn at random: as plain data for the world and the model, and as a saga for the engine."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, TypeAlias

from milepost.sagas.definition import Definition
from milepost.sagas.shapes import all_of, at_least, best_effort, loop, optional, sequence, when
from milepost.schemas.options import Found, Probe, Repeat, Retry, Then

from tests.support.nestedsagas import Book, Booked
from tests.support.sagas import HOUR, MINUTE, Delivered, add_step, add_tx, new_saga

PATIENT = 1000
WAITS = [Then.COMPENSATE, Then.CONTINUE, Then.RETRY, Then.PERSON, Then.CANCEL, Then.RECONCILE]

Kind: TypeAlias = Literal["step", "tx", "command", "wait", "timer"]
Fate: TypeAlias = Literal["ok", "no", "poor"]


@dataclass(frozen=True)
class Leaf:
    """A node.

    Attributes:
        undo: "plain", "blind" or "none".
        then: What follows when it fails, or when a wait has timed out.
        fate: ok = the other side will do it; no = it always refuses, or the event never comes; poor = the work of
            the first round of its innermost loop is not good enough.
    """

    name: str
    kind: Kind
    repeat: Repeat
    undo: str
    attempts: int
    then: Any
    fate: Fate


@dataclass(frozen=True)
class Seq:
    """In order."""

    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Par:
    """Side by side; `need` of them must succeed, and `early` gives the rest up then."""

    kind: str
    need: int
    early: bool
    branches: tuple[Part, ...]


@dataclass(frozen=True)
class When:
    """One of two ways."""

    name: str
    answer: bool
    then: Seq
    otherwise: Seq


@dataclass(frozen=True)
class Loop:
    """Rounds; `judge` is the first step of the body, and from round `good` on `until` says True."""

    name: str
    judge: Leaf
    body: Seq
    good: int
    at_most: int
    then: Any


Part: TypeAlias = Leaf | Seq | Par | When | Loop


def leaves(part: Part) -> Iterator[Leaf]:
    """Yield every leaf of a part."""
    if isinstance(part, Leaf):
        yield part
    for one in inner(part):
        yield from leaves(one)


def inner(part: Part) -> tuple[Part, ...]:
    """Return the parts of a part."""
    match part:
        case Leaf():
            return ()
        case Seq(parts=parts):
            return parts
        case Par(branches=branches):
            return branches
        case When(then=then, otherwise=otherwise):
            return (then, otherwise)
        case Loop(body=body):
            return (body,)


class _Drawing:
    """Draws a tree; names are numbered."""

    def __init__(self, choose: Callable[[tuple[Any, ...]], Any]) -> None:
        self.choose, self.made = choose, 0
        self.patient = choose((True, False))

    def name(self, kind: str) -> str:
        self.made += 1
        return f"{kind[0]}{self.made}"

    def one(self, *choices: Any) -> Any:
        return self.choose(choices)

    def leaf(self, rounds: int, *, judge: bool = False) -> Leaf:
        kind: Kind = "step" if judge else self.one("step", "step", "step", "tx", "command", "wait", "timer")
        repeats = (Repeat.SAFE, Repeat.ASK_FIRST, *(() if self.patient or judge else (Repeat.NEVER,)))
        certain = (Then.COMPENSATE, Then.COMPENSATE, Then.COMPENSATE, Then.FAIL)
        fate = self.one("ok", "ok", "ok", "ok", "ok", "no", "poor" if rounds and kind == "step" else "ok")
        return Leaf(
            self.name(kind),
            kind,
            self.one(*repeats),
            "none" if kind == "tx" else self.one("plain", "plain", "blind", "none"),
            PATIENT if self.patient else self.one(1, 2, PATIENT),
            self.one(*WAITS)
            if kind == "wait"
            else self.one(*certain, *(() if self.patient else (Then.PERSON,))),
            "ok" if kind == "timer" or (judge and fate == "poor") else fate,
        )

    def part(self, depth: int, rounds: int) -> Part:
        kind = self.one("leaf", "leaf", "seq", "par", "par", "when", "loop") if depth else "leaf"
        if kind == "leaf":
            return self.leaf(rounds)
        if kind == "seq":
            return self.seq(depth - 1, rounds)
        if kind == "when":
            then, otherwise = self.seq(depth - 1, rounds), self.seq(depth - 1, rounds)
            return When(self.name("q"), self.one(True, False), then, self.one(otherwise, Seq(())))
        if kind == "par":
            return self.par(depth - 1, rounds)
        judge = self.leaf(1, judge=True)
        body = Seq((judge, *self.seq(depth - 1, 1).parts))
        at_most = self.one(1, 2, 3)
        return Loop(
            self.name("loop"), judge, body, self.one(1, 2, 3), at_most, self.one(Then.COMPENSATE, Then.FAIL)
        )

    def par(self, depth: int, rounds: int) -> Par:
        kind = self.one("all_of", "all_of", "best_effort", "at_least", "optional")
        count = 1 if kind == "optional" else self.one(2, 2, 3)
        branches = tuple(self.part(depth, rounds) for _ in range(count))
        need = {"all_of": count, "at_least": self.one(*range(1, count + 1))}.get(kind, 0)
        return Par(kind, need, kind == "at_least", branches)

    def seq(self, depth: int, rounds: int) -> Seq:
        return Seq(tuple(self.part(depth, rounds) for _ in range(self.one(1, 1, 2, 3))))


def drawn(choose: Callable[[tuple[Any, ...]], Any]) -> Seq:
    """Draw a flow up to three shapes deep."""
    return _Drawing(choose).seq(3, 0)


def drawn_by(dice: random.Random) -> Seq:
    """Draw a flow without Hypothesis, which is much faster, and cannot make it smaller."""
    return drawn(dice.choice)


def build(tree: Seq) -> Definition:
    """Declare the saga of a drawn flow."""
    saga = new_saga()
    saga.flow(*flow_of(saga, tree, _leaf))
    return saga.definition


#: Declares the node of a leaf on a saga.
Declare: TypeAlias = Callable[[Any, Leaf], Any]


def flow_of(saga: Any, tree: Seq, leaf: Declare) -> list[Any]:
    """Return what a drawn flow is for a saga, whose leaves `leaf` declares."""
    return [_node(saga, part, leaf) for part in tree.parts]


def _node(saga: Any, part: Part, leaf: Declare) -> Any:
    match part:
        case Leaf():
            return leaf(saga, part)
        case Seq():
            return sequence(*flow_of(saga, part, leaf))
        case Par(kind=kind, need=need, branches=branches):
            made = [_node(saga, one, leaf) for one in branches]
            if kind == "at_least":
                return at_least(need, *made)
            if kind == "optional":
                return optional(made[0])
            return (all_of if kind == "all_of" else best_effort)(*made)
        case When(name=name, answer=answer):
            then, otherwise = flow_of(saga, part.then, leaf), flow_of(saga, part.otherwise, leaf)
            return when(lambda v: answer, *then, otherwise=otherwise, name=name)
        case Loop(name=name, at_most=at_most, then=failing):
            body = flow_of(saga, part.body, leaf)
            return loop(
                *body, until=_until(body[0], part.good), at_most=at_most, on_failure=failing, name=name
            )


def _until(judge: Any, good: int) -> Any:
    def until(view: Any) -> bool:
        found = view.result(judge, default=None)
        return found is not None and int(found.id.rpartition(".")[2]) >= good

    return until


def _leaf(saga: Any, leaf: Leaf) -> Any:
    retry = Retry(attempts=leaf.attempts, within=None)
    if leaf.kind == "timer":
        return saga.timer(leaf.name, 5 * MINUTE)
    if leaf.kind == "tx":
        return add_tx(saga, leaf.name, retry=retry, on_failure=leaf.then, no_undo="none needed")
    if leaf.kind == "wait":
        match = lambda v: v.input.id  # noqa: E731
        wait = saga.wait(leaf.name, Delivered, match=match, timeout=HOUR, on_timeout=leaf.then)
        if leaf.then is Then.RECONCILE:

            async def ask(ctx: Any) -> Probe[Delivered]:
                return Found(Delivered(id="x"))

            wait.probe(ask)
        return wait
    if leaf.kind == "command":
        return _command(saga, leaf, retry)
    return add_step(
        saga,
        leaf.name,
        leaf.repeat,
        undo=leaf.undo == "plain",
        blind=leaf.undo == "blind",
        undo_retry=Retry(attempts=PATIENT, within=None),
        probe=leaf.repeat is Repeat.ASK_FIRST,
        give_up=timedelta(days=3000),
        retry=retry,
        on_failure=leaf.then,
        no_undo="none needed" if leaf.undo == "none" else None,
    )


def _command(saga: Any, leaf: Leaf, retry: Retry) -> Any:
    node = saga.command(
        leaf.name,
        lambda v: Book(truck="t"),
        reply=Booked,
        timeout=HOUR,
        repeat=leaf.repeat,
        retry=retry,
        on_failure=leaf.then,
        no_undo="none needed" if leaf.undo == "none" else None,
    )

    async def cancel(ctx: Any, done: Any) -> None: ...

    async def ask(ctx: Any) -> Probe[Booked]:
        return Found(Booked(truck="t"))

    cancel.__name__ = f"undo_{leaf.name}"
    if leaf.undo != "none":
        node.undo(blind=leaf.undo == "blind", retry=Retry(attempts=PATIENT, within=None))(cancel)
    if leaf.repeat is Repeat.ASK_FIRST:
        node.probe(settle=MINUTE, give_up=timedelta(days=3000))(ask)
    return node
