"""Whether every open run has its definition somewhere, and what changed under those that go on."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from milepost.consumers.open_model import Live, OpenRuns, changed, new_policies, refusals
from milepost.sagas.definition import Definition
from milepost.sagas.registry import Definitions
from milepost.sagas.saga import Saga
from milepost.schemas.options import Retry

from tests.support.sagas import Order, add_step, flow, new_saga


def saga_of(*steps: str, version: int = 1, retry: Retry | None = None) -> Saga[Order]:
    saga = new_saga(version=version)
    for step in steps:
        add_step(saga, step, retry=retry)
    flow(saga)
    return saga


def opened(definition: Definition, amount: int = 1, first: str = "01 o-1", **more: Any) -> OpenRuns:
    runs = OpenRuns(
        saga=definition.name,
        version=definition.version,
        shape=definition.shape,
        input_version=1,
        policy=definition.policy,
        amount=amount,
        first=first,
        outline=definition.outline,
    )
    return replace(runs, **more)


OLD = saga_of("reserve", "invoice", "ship")
EDITED = saga_of("reserve", "ship")
NEW = saga_of("reserve", "ship", version=2)
LIVE = Live({f"order/1#{OLD.definition.shape}@1"}, {"order/1"})


def text_of(
    own: list[Saga[Any]], *runs: OpenRuns, live: tuple[Live, ...] = (), back: tuple[str, ...] = ()
) -> str:
    return "\n".join(str(error) for error in refusals(Definitions(own), runs, live, back))


def test_the_words_of_an_edited_version() -> None:
    assert text_of([EDITED], opened(OLD.definition, 37), live=(LIVE,)) == (
        "MP201 order v1 changed shape (removed: invoice) while 37 runs of v1 are open. Keep v1 as it was and add "
        "version=2 beside it; those runs finish on v1. First open run: order/o-1."
    )


def test_the_words_of_a_missing_version() -> None:
    runs = (opened(OLD.definition, first="02 o-2"), opened(OLD.definition, first="01 o-1", policy="other"))
    assert text_of([NEW], *runs) == (
        "MP201 order v1 is in no live process and not in this one while 2 runs of v1 are open. Keep v1 as it was "
        "beside the new version; those runs finish on v1. After a rollback, MILEPOST_ROLLED_BACK=order/1 starts "
        "without it. First open run: order/o-1."
    )


@pytest.mark.parametrize(
    ("own", "live", "back"),
    [
        ([OLD], (), ()),
        ([OLD, NEW], (), ()),
        ([NEW], (LIVE,), ()),
        ([NEW], (Live((), {"order/1"}),), ()),
        ([NEW], (), ("order/1",)),
        ([EDITED], (), ("order/1",)),
    ],
)
def test_what_is_somewhere_is_well(
    own: list[Saga[Any]], live: tuple[Live, ...], back: tuple[str, ...]
) -> None:
    assert text_of(own, opened(OLD.definition), live=live, back=back) == ""


def test_a_live_process_with_another_shape_has_not_the_version() -> None:
    other = Live({f"order/1#{EDITED.definition.shape}@1"}, {"order/1"})
    assert "in no live process" in text_of([NEW], opened(OLD.definition), live=(other,))


def test_inputs_that_are_too_new() -> None:
    words = text_of([OLD], opened(OLD.definition, input_version=2))
    assert "has inputs of a newer version than this process reads while 1 run of v1 is open. Deploy" in words


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (("a", "b"), ("a", "b", "c"), "added: c"),
        (("a", "b"), ("b", "a"), "order"),
        (("a", "b"), ("a", "x"), "removed: b; added: x"),
    ],
)
def test_differences_have_names(old: tuple[str, ...], new: tuple[str, ...], words: str) -> None:
    assert changed(saga_of(*old).definition.outline, saga_of(*new).definition.outline) == words
    assert changed(None, saga_of(*new).definition.outline) == "its form of then was not registered"


def test_a_new_policy_goes_on_and_is_named() -> None:
    patient = saga_of("reserve", "invoice", "ship", retry=Retry(attempts=9, first=timedelta(seconds=3)))
    assert patient.definition.shape == OLD.definition.shape
    runs = opened(OLD.definition, 3)
    assert refusals(Definitions([patient]), [runs], ()) == []
    (found,) = new_policies(Definitions([patient]), [runs])
    assert (found.title, found.amount, list(found.steps)) == ("order v1", 3, ["reserve", "invoice", "ship"])
    assert new_policies(Definitions([OLD]), [runs]) == []
