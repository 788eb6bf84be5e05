"""Interleaving 4: a branch ends after it has been decided what becomes of the run: its effect counts, once.

What follows begins once; what a late branch did is undone where the run is; a zombie's late word changes no row.
"""

from __future__ import annotations

import pytest
from milepost import RunRef

from tests.support.joins import Joins, joining, outside_of, saga
from tests.support.waiting import until


async def step_is(it: Joins, run: RunRef, name: str, state: str) -> None:
    """Wait until a step is in a state."""

    async def there() -> bool:
        return (await it.it.states(run.id)).get(name) == state

    await until(there, what=f"{name} to be {state}")


async def expire(it: Joins, worker: int) -> None:
    """Let the lease of a worker end, as if it were frozen, and let the sweep find what it held."""
    lease = it.hands[worker].lease.id
    await it.it.value("UPDATE milepost.worker SET expires_at = milepost.clock() WHERE id = $1", lease)
    assert await it.it.waker.sweep() > 0


@pytest.mark.parametrize("failing", ["", "c"])
@pytest.mark.parametrize("queue", ["default", "later"])
async def test_enough_have_succeeded_when_another_one_ends(
    database_url: str, failing: str, queue: str
) -> None:
    """Nothing follows while it runs; whatever becomes of it, what follows begins once."""
    async with outside_of(database_url) as outside:
        made = saga(outside, "at_least", failing, queue)
        async with joining(database_url, outside, made) as it:
            run = await it.begin(made)
            outside.end(run.key, "a", "b")
            await step_is(it, run, "a", "SUCCEEDED")
            await step_is(it, run, "b", "SUCCEEDED")
            assert "after" not in await it.it.states(run.id)
            outside.end(run.key, "c")
            await it.to_the_end([run])
            await it.check(run, "at_least", failing)


async def test_another_branch_has_failed_and_the_late_one_is_undone(database_url: str) -> None:
    """What is undone is decided when nothing runs any more, in reverse order of completion: the late one first."""
    async with outside_of(database_url) as outside:
        made = saga(outside, "all_of", "a", "later")
        async with joining(database_url, outside, made) as it:
            run = await it.begin(made)
            outside.end(run.key, "b")
            await step_is(it, run, "b", "SUCCEEDED")
            outside.end(run.key, "a")
            await step_is(it, run, "", "COMPENSATING")
            await it.hand_over()
            assert set(await it.ledger(run)) == {"b", "c"}, "nothing is undone while a branch runs"
            outside.end(run.key, "c")
            await it.to_the_end([run])
            await it.check(run, "all_of", "a")
            assert (await it.ledger(run))[2:] == ["undo c", "undo b"]


@pytest.mark.parametrize("shape", ["at_least", "all_of", "best_effort"])
async def test_a_zombie_says_that_it_has_succeeded_after_the_join(database_url: str, shape: str) -> None:
    """Its lease has ended and another one did its branch, under the same key; then it thaws."""
    async with outside_of(database_url) as outside:
        made = saga(outside, shape, "", "later")
        async with joining(database_url, outside, made) as it:
            run = await it.begin(made)
            outside.end(run.key, "a", "b")
            await step_is(it, run, "b", "SUCCEEDED")
            await step_is(it, run, "a", "SUCCEEDED")
            zombie = it.hands[2]
            await expire(it, 2)
            # The frozen one waits on an event of its own; who does it again does not.
            frozen = outside.replace(run.key, "c")
            outside.end(run.key, "c")
            await it.wake_to_the_end(run)
            assert (await it.it.states(run.id))[""] == "SUCCEEDED"
            before = await it.it.row("SELECT version, history_n FROM milepost.run WHERE id = $1", run.id)
            frozen.set()
            await until(zombie.idle, what="the zombie to have said what it has to say")
            history = await it.it.history(run.id)
            assert history.count("step.late_result") == 1
            after = await it.it.row("SELECT version, history_n FROM milepost.run WHERE id = $1", run.id)
            assert (after["history_n"], history[-1]) == (before["history_n"] + 1, "step.late_result")
            assert (await it.ledger(run)).count("after") == 1 == await it.joined(run)
            assert sorted(await it.ledger(run)) == ["a", "after", "b", "c"], "c was done under one key"
