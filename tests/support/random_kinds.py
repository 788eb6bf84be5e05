"""What runs of the ledger's sagas of every kind may come to, whatever was killed on the way."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from tests.support.apps.ledger import WORDS
from tests.support.apps.ledger_family import CROWD, ENOUGH
from tests.support.apps.ledger_stage import Stage
from tests.support.apps.nested_ledger import NESTED

__all__ = ["MODEL", "NESTED", "REFUSED", "certain", "check_crowd", "check_family"]

#: Judges a run by its state and its effects, in order.
Judge = Callable[[str, list[str]], bool]


def undone(effects: list[str], words: tuple[str, ...]) -> bool:
    """Whether some of the words happened in order and then all of them were undone in reverse."""
    done = effects[: len(effects) // 2]
    return done == list(words[: len(done)]) and effects[len(done) :] == [
        f"undo {word}" for word in reversed(done)
    ]


def plain(state: str, effects: list[str]) -> bool:
    """Both steps happened."""
    return state == "SUCCEEDED" and effects == ["act", "next"]


def never_twice(state: str, effects: list[str]) -> bool:
    """Both happened, or a person is asked about the first."""
    return plain(state, effects) or (state == "MANUAL_REQUIRED" and effects in ([], ["act"]))


def parcels(state: str, effects: list[str]) -> bool:
    """There, or back again."""
    if state == "SUCCEEDED":
        return effects == ["pay", "send", "close"]
    back: dict[str, list[list[str]]] = {
        "FAILED": [[]],
        "COMPENSATED": [["pay", "repay"], ["pay", "send", "call back", "repay"]],
    }
    return effects in back.get(state, [])


def chained(state: str, effects: list[str]) -> bool:
    """All of it, or none of it."""
    if state == "SUCCEEDED":
        return effects == list(WORDS)
    return undone(effects, WORDS) and state == ("COMPENSATED" if effects else "FAILED")


def blindly(state: str, effects: list[str]) -> bool:
    """All of it, or none of it; the second may be undone without having happened."""
    words = ("first", "second", "third")
    if state == "SUCCEEDED":
        return effects == list(words)
    known = [what.removesuffix(" of a result") for what in effects]
    nobody = "undo second of nobody knows"
    blind = [["first", "second", nobody, "undo first"], ["first", nobody, "undo first"]]
    return (effects in blind or undone(known, words)) and state == ("COMPENSATED" if effects else "FAILED")


def paid_out(state: str, effects: list[str]) -> bool:
    """Approved and done, or rejected and undone."""
    ends: dict[str, list[list[str]]] = {
        "SUCCEEDED": [["prepare", "pay out"]],
        "COMPENSATED": [["prepare", "unprepare"]],
        "FAILED": [[]],
    }
    return effects in ends.get(state, [])


def returned(state: str, effects: list[str]) -> bool:
    """Shipped, or all of it undone, the refund after a person's yes."""
    if state == "SUCCEEDED":
        return sorted(effects[:2]) == ["label", "reserve"] and effects[2:] == ["charge", "ship"]
    back = {"charge": "refund", "label": "unlabel", "reserve": "release"}
    done = [what for what in effects if what in back]
    # A refund that waits for a yes holds back no other undo.
    return sorted(effects) == sorted([*done, *(back[what] for what in done)]) and state == (
        "COMPENSATED" if done else "FAILED"
    )


MODEL: dict[str, Judge] = {
    "safe": plain,
    "ask": plain,
    "never": never_twice,
    "booked": plain,
    "parcel": parcels,
    "chain": chained,
    "blind": blindly,
    "payout": paid_out,
    "returns": returned,
    "strict": returned,
}
#: Sagas of which the fault that is ordered at a step makes the run turn back.
REFUSED = {"chain": WORDS, "blind": ("first", "second", "third"), "returns": ("ship",), "strict": ("ship",)}


async def certain(stage: Stage, run: UUID) -> list[str]:
    """Return a run's effects without those of steps that were given up in doubt.

    A step without an undo that lost all of its tries may have happened, and the run says so.
    """
    doubted = await stage.left_in_doubt(run)
    return [what for what in await stage.effects(run) if what not in doubted]


async def check_family(stage: Stage, run: UUID, name: str) -> None:
    """A parent and its children: all of them are over, and what one did for the other is undone where the parent is."""
    state, effects = await stage.state(run), await certain(stage, run)
    ends, find = {}, "SELECT id FROM milepost.run WHERE saga = 'member' AND key = $1"
    for side in ("left", "right"):
        child = await stage.pool.fetchval(find, f"{name}-{side}")
        ends[side] = "" if child is None else await stage.state(child)
        done = [] if child is None else await certain(stage, child)
        wanted: dict[str, list[list[str]]] = {
            "": [[]],
            "SUCCEEDED": [["make", "polish"]],
            # What has no undo stays where a parent stops its child while that is at it.
            "COMPENSATED": [["make", "unmake"], ["make", "polish", "unmake"]],
            "FAILED": [[]],
            "CANCELLED": [[]],
        }
        assert done in wanted[ends[side]], f"{name}-{side} {ends[side]} {done}"
    if state == "SUCCEEDED":
        assert (effects, set(ends.values())) == (["prepare", "close"], {"SUCCEEDED"}), (
            f"{name} {effects} {ends}"
        )
        return
    assert state == ("COMPENSATED" if effects else "FAILED"), f"{name} {state} {effects}"
    taken = sorted(f"take back {side}" for side, end in ends.items() if end == "SUCCEEDED")
    assert sorted(effects[1:-1]) == taken, f"{name} {effects} {ends}"
    assert not effects or (effects[0], effects[-1]) == ("prepare", "unprepare"), f"{name} {effects}"


async def check_crowd(stage: Stage, run: UUID, name: str) -> None:
    """A fan-out: each member did all or nothing, once; enough are enough, and else what was done is called off."""
    state, effects = await stage.state(run), await certain(stage, run)
    find = "SELECT id FROM milepost.run WHERE saga = 'member' AND key = $1"
    ends = []
    for n in range(CROWD):
        child = await stage.pool.fetchval(find, f"{name}-{n}")
        ends.append(await stage.state(child))
        wanted = {"SUCCEEDED": ["make", "polish"], "COMPENSATED": ["make", "unmake"]}
        assert await certain(stage, child) == wanted[ends[-1]], f"{name}-{n} {ends[-1]}"
    well = ends.count("SUCCEEDED")
    numbers = await stage.pool.fetchrow("SELECT * FROM milepost.fanout WHERE run_id = $1", run)
    assert numbers is not None
    assert (numbers["started"], numbers["succeeded"], numbers["failed"]) == (0, well, CROWD - well)
    if well / CROWD >= ENOUGH:
        expected = ("SUCCEEDED" if well == CROWD else "PARTIALLY_SUCCEEDED", ["gather", "disband"])
    else:
        undone = [f"call off {well}", "scatter"] if well else ["scatter"]
        expected = ("COMPENSATED", ["gather", *undone])
    assert (state, effects) == expected, f"{name} {state} {effects} {ends}"
