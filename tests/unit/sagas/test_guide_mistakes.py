"""Mistakes in a saga that the guide prints: code and words are exactly these."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from milepost.sagas.trying import check_definition
from milepost.schemas.errors import DefinitionError
from milepost.schemas.options import Repeat, Then

from tests.support.sagas import add_step, add_tx, flow, new_saga
from tests.support.waits import add_wait


def refused(code: str, text: str, declare: Callable[[], Any]) -> None:
    """Assert that declaring raises exactly this error; the text may hold newlines and indents as in the guide."""
    with pytest.raises(DefinitionError) as caught:
        declare()
    assert caught.value.code == code
    assert caught.value.text == re.sub(r"\s+", " ", text.strip())


def test_mp101_ask_first_without_a_probe() -> None:
    saga = new_saga()
    add_step(saga, "charge_card", Repeat.ASK_FIRST)
    refused(
        "MP101",
        """order v1, step charge_card: repeat=ASK_FIRST needs a probe, or a lost reply can never be settled.
        Add @charge_card.probe, or say repeat=Repeat.NEVER to send such cases to a person.""",
        lambda: flow(saga),
    )


def test_mp102_a_step_that_would_be_left_behind() -> None:
    saga = new_saga()
    add_step(saga, "reserve", undo=True)
    add_step(saga, "pack")
    add_step(saga, "ship")
    refused(
        "MP102",
        """order v1, step pack: later steps can fail, and pack has no undo. Add @pack.undo, or no_undo="why nothing
        needs undoing", or irreversible=True.""",
        lambda: flow(saga),
    )


def test_mp102_a_wait_that_compensates_counts_as_a_later_failure() -> None:
    saga = new_saga()
    add_step(saga, "reserve", undo=True)
    add_step(saga, "pack", on_failure=Then.PERSON)
    add_wait(saga, on_timeout=Then.COMPENSATE)
    with pytest.raises(DefinitionError, match="MP102 order v1, step pack"):
        flow(saga)


def test_mp102_asks_for_nothing_in_a_saga_without_undo_nor_after_the_last_failure() -> None:
    saga = new_saga()
    add_step(saga, "one")
    add_step(saga, "two")
    assert [node.on_failure for node in flow(saga).nodes] == [Then.FAIL, Then.FAIL]
    saga = new_saga()
    add_step(saga, "one", undo=True)
    add_step(saga, "two")
    add_step(saga, "three", on_failure=Then.PERSON)
    assert [node.on_failure for node in flow(saga).nodes] == [Then.COMPENSATE, Then.COMPENSATE, Then.PERSON]


def test_mp103_something_irreversible_before_a_failure_that_compensates() -> None:
    saga = new_saga()
    add_step(saga, "reserve", undo=True)
    add_step(saga, "ship", irreversible=True)
    add_tx(saga, "close_order")
    refused(
        "MP103",
        """order v1: ship is irreversible, but close_order after it would compensate. Move ship later, or give
        close_order on_failure=Then.PERSON.""",
        lambda: flow(saga),
    )


def test_mp103_names_the_waits_own_option() -> None:
    saga = new_saga()
    add_step(saga, "reserve", undo=True)
    add_step(saga, "ship", irreversible=True)
    add_wait(saga, on_timeout=Then.COMPENSATE)
    with pytest.raises(DefinitionError, match=r"give delivered on_timeout=Then\.PERSON"):
        flow(saga)


def test_mp104_is_found_by_trying_the_lambdas() -> None:
    saga = new_saga()
    add_step(saga, "reserve")
    ship = add_step(saga, "ship")
    wait = add_wait(saga, match=lambda v: f"{v.input.id}/{v.result(ship).id.lower()}")
    saga.flow(saga.nodes[0], wait, ship)
    found = check_definition(saga)
    assert [error.code for error in found] == ["MP104"]
    assert found[0].text == (
        "order v1, wait delivered reads the result of ship, which runs later. Flow: reserve > delivered > ship. "
        "Move delivered after ship."
    )


def test_mp104_trial_finds_nothing_in_good_lambdas_and_survives_hard_ones() -> None:
    saga = new_saga()
    ship = add_step(saga, "ship")
    add_wait(saga, match=lambda v: v.result(ship).id)
    add_wait(saga, "hard", match=lambda v: str(int(v.result(ship).id) + len(v.input.id)))
    flow(saga)
    assert check_definition(saga) == []


def test_mp105_a_step_that_is_not_in_the_flow() -> None:
    saga = new_saga()
    one = add_step(saga, "one")
    add_step(saga, "gift_wrap")
    refused(
        "MP105",
        "order v1: step gift_wrap is defined but not in order.flow(...). Add it, or delete it.",
        lambda: saga.flow(one),
    )
