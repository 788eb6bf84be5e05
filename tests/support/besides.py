"""Runs in which one branch ends, by every cause, while the one beside it is in any state: too many for a search."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeAlias

from milepost.sagas.definition import Definition
from milepost.sagas.facts import Act, ChildSeen, Claim, Replied, Stale, Start, Succeeded, Wake
from milepost.sagas.model import Fan
from milepost.sagas.shapes import all_of, at_least, loop, optional, sequence, when
from milepost.schemas.options import Found, Probe, Repeat, Retry, Then
from milepost.schemas.states import RunState, StepState

from tests.support.allsagas import add_approval, answers
from tests.support.branches import ONCE, Branches
from tests.support.nestedsagas import Book, Booked, spread
from tests.support.sagas import HOUR, NOW, WORKER, Delivered, add_step, new_saga

TWICE = Retry(attempts=2, within=None)
#: Makes a node of a saga; does something to a run.
Make: TypeAlias = Callable[[Any], Any]
Do: TypeAlias = Callable[[Branches], None]


def run_of(*parts: Callable[[Any], Any], started: bool = True, late: bool = False) -> Branches:
    """Return a run of a flow; a late one has to stop in an hour."""
    saga = new_saga()
    saga.flow(*(part(saga) for part in parts))
    definition: Definition = saga.definition
    play = Branches(definition, started=False)
    play.run = replace(play.run, deadline_at=NOW + HOUR if late else None)
    if started:
        play.send(Start())
    return play


def beside(shape: Callable[..., Any], *makes: Make) -> Make:
    """Return what puts nodes side by side."""
    return lambda saga: shape(*(make(saga) for make in makes))


def first(*makes: Make) -> Make:
    """Return an `at_least(1, …)`."""
    return lambda saga: at_least(1, *(make(saga) for make in makes))


def plain(name: str, **options: Any) -> Make:
    """Return what makes a step without undo."""
    values: dict[str, Any] = {"retry": ONCE, "no_undo": "x", **options}
    return lambda saga: add_step(saga, name, **values)


def awaited(name: str, then: Any = Then.RECONCILE) -> Make:
    """Return what makes a wait."""

    def make(saga: Any) -> Any:
        wait = saga.wait(name, Delivered, match=lambda v: "k", timeout=HOUR, on_timeout=then)
        if then is Then.RECONCILE:
            wait.probe(_ask)
        return wait

    return make


async def _ask(ctx: Any) -> Probe[Delivered]:
    return Found(Delivered(id="x"))


def sent(name: str) -> Make:
    """Return what makes a command."""
    return lambda saga: saga.command(
        name, lambda v: Book(truck="t"), reply=Booked, timeout=HOUR, repeat=Repeat.NEVER, no_undo="x"
    )


def timed(name: str) -> Make:
    """Return what makes a timer."""
    return lambda saga: saga.timer(name, HOUR)


def nothing(saga: Any) -> Any:
    """A branch that is over at once."""
    return when(lambda v: False, add_step(saga, "never", retry=ONCE, no_undo="x"))


def lost_loop(then: Any) -> Make:
    """Return a loop that has had its only round as soon as it begins."""
    return lambda saga: loop(nothing(saga), until=lambda v: False, at_most=1, on_failure=then)


# --- how `it` ends, and by which cause --------------------------------------------------------------------


def _refused(play: Branches) -> None:
    play.fact(Replied("it", "do", 1, "refused", None, code="NO"))


def _lose(play: Branches) -> None:
    play.begin("it")
    play.fact(Stale("it", play.row("it").fence, play.now))


def _fail(play: Branches) -> None:
    play.begin("it")
    play.end("it", verdict="fatal")


def fails(then: Any) -> list[tuple[str, Make, Do]]:
    """Return how `it` fails: by a worker, a timer, a sweep, a signal, a person."""
    timeout = Then.COMPENSATE
    found: list[tuple[str, Make, Do]] = [
        ("worker", plain("it", on_failure=then), _fail),
        ("sweep", plain("it", on_failure=then), _lose),
    ]
    if then is Then.COMPENSATE:
        found += [
            ("timer", awaited("it", timeout), _time_out),
            ("signal", sent("it"), _refused),
            ("person", plain("it"), lambda play: play.act("cancel", None, undo=True)),
        ]
    else:
        found.append(("timer", plain("it", on_failure=then), _outlast))
    return found


def _time_out(play: Branches) -> None:
    play.now = max(play.now, NOW + HOUR)
    play.fact(Wake("it", play.row("it").generation))


def _outlast(play: Branches) -> None:
    play.begin("it")
    at = play.row("it").wake_at
    assert at is not None
    play.now = max(play.now, at)
    play.fact(Wake("it", play.row("it").generation))


def _came(play: Branches) -> None:
    """The event is there, and the process that asked the probe is gone."""
    probing(play, "it")
    play.present("it")
    play.fact(Stale("it", play.row("it").fence, play.now))


def succeeds() -> list[tuple[str, Make, Do]]:
    """Return how `it` succeeds: by a worker, a timer, a sweep, a signal."""
    return [
        ("worker", plain("it"), lambda play: play.ok("it")),
        ("timer", timed("it"), _time_out),
        ("sweep", awaited("it"), _came),
        ("signal", awaited("it"), lambda play: _changed(play.signal("it"))),
    ]


def _changed(decision: Any) -> None:
    assert decision.answer == "changed", decision.reason


# --- where `other` is meanwhile ---------------------------------------------------------------------------


def unknown(play: Branches, name: str = "other") -> None:
    """Let a wait come to its probe."""
    play.now = max(play.now, NOW + HOUR)
    play.fact(Wake(name, play.row(name).generation))


def probing(play: Branches, name: str = "other") -> None:
    """Let its probe be asked."""
    unknown(play, name)
    play.fact(Claim(name, WORKER))


def _tried(verdict: Any) -> Do:
    def tried(play: Branches) -> None:
        play.begin("other")
        play.end("other", verdict=verdict)

    return tried


def _gone(play: Branches) -> None:
    play.begin("other")
    play.fact(Stale("other", play.row("other").fence, play.now))


def _matched(play: Branches) -> None:
    play.present("other")


def _matched_late(play: Branches) -> None:
    unknown(play)
    _matched(play)


def others() -> list[tuple[str, Make, Do, StepState]]:
    """Return what `other` is, what has become of it, and what it is once the run stops."""
    undone = plain("other", undo=True, no_undo=None, retry=TWICE)
    left = plain("other", retry=TWICE)
    blind = plain("other", repeat=Repeat.NEVER, blind=True, no_undo=None)
    held = plain("other", on_failure=Then.PERSON)
    return [
        ("begun not", undone, lambda play: None, StepState.CANCELLED),
        ("held", held, _tried("fatal"), StepState.CANCELLED),
        ("again", undone, _tried("not_sent"), StepState.CANCELLED),
        ("again, undone", undone, _tried("unknown"), StepState.UNKNOWN),
        ("again, left", left, _tried("unknown"), StepState.FAILED),
        ("lost, undone", undone, _gone, StepState.UNKNOWN),
        ("lost, left", left, _gone, StepState.FAILED),
        ("held, blind", blind, _tried("unknown"), StepState.FAILED),
        ("waits", awaited("other"), lambda play: None, StepState.CANCELLED),
        ("asked about", awaited("other"), unknown, StepState.CANCELLED),
        ("probed", awaited("other"), probing, StepState.CANCELLED),
        ("matched", awaited("other"), _matched, StepState.SUCCEEDED),
        ("matched late", awaited("other"), _matched_late, StepState.SUCCEEDED),
    ]


def doubted() -> Make:
    """Return an optional step whose outcome is asked for by repeating it."""
    return lambda saga: optional(plain("other", undo=True, no_undo=None)(saga))


# --- plays that only use arrows ---------------------------------------------------------------------------


def plays() -> Iterator[tuple[str, Branches]]:
    """Play everything that only nested flows can come to, to its end."""
    for cause, it, end in fails(Then.COMPENSATE):
        for title, other, become, _ in others():
            play = run_of(beside(all_of, it, other))
            become(play)
            end(play)
            yield f"{title}, {cause}", play
    for cause, it, end in (*fails(Then.FAIL), ("signal", sent("it"), _refused)):
        then_fail = beside(all_of, it, doubted()) if cause != "signal" else _refusing()
        play = run_of(then_fail)
        _tried("unknown")(play)
        end(play)
        yield f"doubted, {cause}", play
    yield "forgotten", _forgotten()
    yield from _joins()
    yield from _in_part()
    yield from _beginnings()
    yield from _ends()


def _forgotten() -> Branches:
    """The database has moved since the run was made, and a step that is not to be repeated comes."""
    play = run_of(plain("it", repeat=Repeat.NEVER))
    play.run = replace(play.run, moved_at=NOW)
    play.begin("it")
    return play


def _refusing() -> Make:
    def make(saga: Any) -> Any:
        command = saga.command(
            "it",
            lambda v: Book(truck="t"),
            reply=Booked,
            timeout=HOUR,
            repeat=Repeat.NEVER,
            no_undo="x",
            on_failure=Then.FAIL,
        )
        return all_of(command, doubted()(saga))

    return make


def _joins() -> Iterator[tuple[str, Branches]]:
    """One branch is enough, while the other stands in front of a person, or will be tried again."""
    held, again = plain("other", on_failure=Then.PERSON), plain("other", retry=TWICE)
    follow: Sequence[tuple[str, tuple[Make, ...]]] = (
        ("ends", ()),
        ("runs", (plain("next"),)),
        ("waits", (awaited("w", Then.CONTINUE),)),
    )
    for cause, it, end in succeeds():
        for what, after in follow:
            for title, other, verdict in (("held", held, "fatal"), ("again", again, "not_sent")):
                play = run_of(first(it, other), *after)
                _tried(verdict)(play)
                end(play)
                yield f"{title}, {what}, {cause}", play


def _in_part() -> Iterator[tuple[str, Branches]]:
    """Items have failed, and then one branch is enough while the other stands in front of a person."""
    asked = (
        "person",
        lambda saga: add_approval(saga, "it"),
        lambda play: play.fact(answers(play.row("it"))[0]),
    )
    for cause, it, end in (*succeeds(), asked):
        play = run_of(spread, first(it, plain("other", on_failure=Then.PERSON)))
        play.begin("spread")
        play.fact(Succeeded("spread", play.row("spread").fence, items=2))
        row = replace(play.row("spread"), fan=Fan(1, 2, next=2, started=0, succeeded=1, failed=1))
        play.run = replace(play.run, steps=(row,))
        play.fact(ChildSeen("spread"))
        _tried("fatal")(play)
        end(play)
        assert play.run.state is RunState.PARTIALLY_SUCCEEDED
        yield f"in part, {cause}", play


def _beginnings() -> Iterator[tuple[str, Branches]]:
    """Runs of which something is over or lost as soon as they begin."""
    unmatched = lambda saga: saga.wait(  # noqa: E731
        "bad", Delivered, match=lambda v: "", timeout=HOUR, on_timeout=Then.PERSON
    )
    yield "given up at once", run_of(first(plain("it"), awaited("other"), unmatched, nothing))
    yield "lost at once", run_of(lost_loop(Then.FAIL))
    for fact in (Wake(None, 0), Act("resume", "ann", "because")):
        play = run_of(lost_loop(Then.FAIL), started=False)
        play.send(fact)
        yield f"lost when looked at, {type(fact).__name__}", play
    yield "stopped at once", run_of(beside(all_of, sent("it"), lost_loop(Then.COMPENSATE)))


def _ends() -> Iterator[tuple[str, Branches]]:
    """The time is over, or the last round was, when an event comes that nobody has looked at."""
    play = run_of(awaited("it"), lost_loop(Then.FAIL))
    _came(play)
    yield "lost by sweep", play
    held, again = plain("other", on_failure=Then.PERSON), plain("other", retry=TWICE)
    for cause, it, end in succeeds():
        for title, other, verdict in (("held", held, "fatal"), ("again", again, "not_sent")):
            play = run_of(beside(all_of, _then(it, plain("next")), other), late=True)
            _tried(verdict)(play)
            if cause == "worker":
                play.begin("it")
            play.now = NOW + timedelta(hours=2)
            play.end("it") if cause == "worker" else end(play)
            yield f"late, {title}, {cause}", play


def _then(one: Make, other: Make) -> Make:
    return lambda saga: sequence(one(saga), other(saga))
