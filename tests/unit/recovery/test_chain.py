"""The chain over the audit: whatever is changed, removed, moved or put in between is found where it is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st
from milepost.recovery.chain import FIELDS, Broken, Link, Walk, digest_of, link

START = datetime(2026, 1, 1, tzinfo=UTC)


def entry(n: int, **more: Any) -> dict[str, Any]:
    at = START + timedelta(seconds=n)
    plain = {name: f"{name} {n}" for name in FIELDS}
    return plain | {"id": UUID(int=n), "at": at, "at_us": n, "step": None} | more


def whole(amount: int) -> list[tuple[Link, dict[str, Any]]]:
    entries = [entry(n) for n in range(1, amount + 1)]
    return list(zip(link(None, entries), entries, strict=True))


def walk(pairs: list[tuple[Link, dict[str, Any] | None]], retired: int = 0) -> Broken | Walk:
    going = Walk()
    for one, found in pairs:
        broken = going.step(one, found, retired=one.n <= retired)
        if broken is not None:
            return broken
    return going


def test_a_whole_chain_is_whole_in_one_piece_or_two() -> None:
    pairs = whole(9)
    done = walk(list(pairs))
    assert isinstance(done, Walk) and (done.n, done.entries, done.gone) == (9, 9, 0)
    entries = [found for _, found in pairs]
    first = list(link(None, entries[:4]))
    assert [*first, *link(first[-1], entries[4:])] == [one for one, _ in pairs]
    gone = walk([(one, None if one.n < 4 else found) for one, found in pairs], retired=3)
    assert isinstance(gone, Walk) and (gone.entries, gone.gone) == (6, 3)


@given(st.sampled_from(FIELDS), st.integers(1, 6))
def test_a_change_of_any_field_is_found(name: str, n: int) -> None:
    pairs: list[tuple[Link, dict[str, Any] | None]] = list(whole(6))
    one, found = pairs[n - 1]
    assert found is not None
    for other in ("something else", None):
        if str(found[name]) == str(other):
            continue
        pairs[n - 1] = (one, found | {name: other})
        broken = walk(pairs)
        assert isinstance(broken, Broken) and (broken.what, broken.n) == ("changed", n)


@settings(max_examples=60)
@given(st.data())
def test_what_is_removed_moved_or_put_in_is_found_at_the_first_place(data: st.DataObject) -> None:
    pairs: list[tuple[Link, dict[str, Any] | None]] = list(whole(8))
    n = data.draw(st.integers(1, 7))
    way = data.draw(st.sampled_from(["entry removed", "link removed", "swapped", "put in", "digest mended"]))
    one, found = pairs[n - 1]
    if way == "entry removed":
        pairs[n - 1] = (one, None)
    elif way == "link removed":
        del pairs[n - 1]
    elif way == "swapped":
        other, its = pairs[n]
        pairs[n - 1] = (Link(one.n, other.id, other.at, other.digest, other.hash), its)
        pairs[n] = (Link(other.n, one.id, one.at, one.digest, one.hash), found)
    elif way == "put in":
        new = entry(99)
        pairs.insert(n, (Link(one.n + 1, new["id"], new["at"], digest_of(new), one.hash), new))
    else:
        assert found is not None
        changed = found | {"reason": "mended"}
        pairs[n - 1] = (Link(one.n, one.id, one.at, digest_of(changed), one.hash), changed)
    broken = walk(pairs)
    assert isinstance(broken, Broken)
    expected = {"entry removed": ("removed", n), "put in": ("chain", n + 1)}
    assert (broken.what, broken.n) == expected.get(way, ("chain", n))
    if way == "entry removed":
        assert isinstance(walk(pairs, retired=n), Walk)


def test_two_entries_that_read_the_same_when_joined_differ() -> None:
    one, other = entry(1, actor="ann", act="x"), entry(1, actor="an", act="nx")
    assert digest_of(one) != digest_of(other)
    assert digest_of(entry(1, step=None)) != digest_of(entry(1, step=""))
