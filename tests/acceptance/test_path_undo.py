"""Scenarios 38 and 39: whatever may have taken effect is undone, in reverse order, and nothing else."""

from __future__ import annotations

from uuid import UUID

import pytest

from tests.support.apps.ledger import WORDS, blind, chain
from tests.support.apps.ledger_stage import staged
from tests.support.process import served

#: How a try goes wrong: where, how, how often. Two tries are all that the chain's steps have.
WAYS = {
    "refused": ("before", "refuse", 1),
    "raises before the effect": ("before", "raise", 2),
    "raises after the effect": ("after", "raise", 2),
    "never answers": ("after", "hang", 2),
    "raises once": ("after", "raise", 1),
}


def expected(way: str, k: int) -> tuple[str, list[str]]:
    """Return the state and the ledger of a chain whose step number k goes wrong."""
    if way == "raises once":
        return "SUCCEEDED", list(WORDS)
    # A refusal is a definite no. After two tries without an answer the step may have had its effect: it is settled by
    # repeating it under its own key, which then answers, and undone.
    done = list(WORDS[: k if way == "refused" else k + 1])
    return ("COMPENSATED" if done else "FAILED"), done + [f"undo {word}" for word in reversed(done)]


async def test_a_chain_that_fails_at_any_step_is_undone_in_reverse(
    database_url: str, kafka: str, topic_prefix: str
) -> None:
    async with staged(database_url, kafka, topic_prefix) as stage:
        runs: dict[tuple[str, int], UUID] = {}
        for way, (point, act, times) in WAYS.items():
            for k, word in enumerate(WORDS):
                name = f"{way} {word}"
                await stage.fault(name, word, point, act, times)
                runs[way, k] = await stage.start(chain, name)
        async with served(stage.env()):
            await stage.resting(list(runs.values()), within=120)
        for (way, k), run in runs.items():
            state, ledger = expected(way, k)
            place = f"{WORDS[k]} {way}\n{await stage.story(run)}"
            assert await stage.effects(run) == ledger, place
            assert await stage.state(run) == state, place
        query = "SELECT DISTINCT cause FROM milepost.run WHERE state IN ('COMPENSATED', 'FAILED')"
        causes = {row["cause"] for row in await stage.pool.fetch(query)}
        assert causes == {"TOLD_TO", "RUNTIMEERROR", "TIMEOUT"}


@pytest.mark.parametrize(("point", "happened"), [("before", []), ("after", ["second"])])
async def test_an_undo_that_may_run_blind_runs_without_a_result(
    database_url: str, kafka: str, topic_prefix: str, point: str, happened: list[str]
) -> None:
    async with staged(database_url, kafka, topic_prefix) as stage:
        await stage.fault("b", "second", point, "raise", 2)
        run = await stage.start(blind, "b")
        async with served(stage.env()):
            assert await stage.resting([run], within=60) == {"COMPENSATED": 1}
        assert await stage.effects(run) == [
            "first",
            *happened,
            "undo second of nobody knows",
            "undo first",
        ], await stage.story(run)


async def test_an_undo_that_fails_is_repeated_and_a_refused_one_is_never_shown_as_undone(
    database_url: str, kafka: str, topic_prefix: str
) -> None:
    async with staged(database_url, kafka, topic_prefix) as stage:
        await stage.fault("twice", "three", "before", "refuse")
        await stage.fault("twice", "undo two", "after", "raise", 2)
        twice = await stage.start(chain, "twice")
        await stage.fault("refused", "four", "before", "refuse")
        await stage.fault("refused", "undo two", "before", "refuse")
        refused = await stage.start(chain, "refused")
        async with served(stage.env()):
            ended = await stage.resting([twice, refused], within=90)
        assert ended == {"COMPENSATED": 1, "COMPENSATION_FAILED": 1}
        assert await stage.effects(twice) == ["one", "two", "undo two", "undo one"], await stage.story(twice)
        assert await stage.calls(twice, "undo two") == 3
        assert await stage.state(refused) == "COMPENSATION_FAILED"
        assert await stage.effects(refused) == ["one", "two", "three", "undo three"], await stage.story(
            refused
        )
        assert "incident.candidate" in await stage.history(refused)
