"""Sagas drawn at random."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from milepost.sagas.definition import Definition
from milepost.schemas.options import Found, Probe, Repeat, Retry, Then

from tests.support.sagas import MINUTE, Delivered, add_step, add_tx, flow, new_saga

THEN = [Then.COMPENSATE, Then.COMPENSATE, Then.COMPENSATE, Then.FAIL, Then.PERSON]
WAITS = [Then.RECONCILE, Then.RETRY, Then.CANCEL, Then.COMPENSATE, Then.CONTINUE, Then.PERSON]


def step_nodes(repeats: list[Repeat], undos: list[str], then: list[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Steps as `build` declares them."""
    drawn = {
        "kind": st.just("step"),
        "repeat": st.sampled_from(repeats),
        "undo": st.sampled_from(undos),
        "probe": st.booleans(),
        "attempts": st.integers(1, 3),
        "then": st.sampled_from(then),
    }
    return st.fixed_dictionaries(drawn)


NODES = st.lists(
    st.one_of(
        step_nodes([Repeat.SAFE, Repeat.ASK_FIRST], ["plain", "blind"], [Then.COMPENSATE]),
        step_nodes(list(Repeat), ["none", "plain", "plain", "blind"], THEN),
        st.fixed_dictionaries({"kind": st.just("tx"), "attempts": st.integers(1, 3)}),
        st.fixed_dictionaries({"kind": st.just("wait"), "then": st.sampled_from(WAITS)}),
    ),
    min_size=1,
    max_size=5,
)


def build(nodes: list[dict[str, Any]], *, irreversible: bool) -> Definition:
    """Declare a saga from drawn nodes; the last step may be irreversible."""
    saga = new_saga()
    for n, node in enumerate(nodes):
        name = f"n{n}"
        if node["kind"] == "tx":
            add_tx(saga, name, retry=Retry(attempts=node["attempts"], within=None), no_undo="none needed")
        elif node["kind"] == "wait":
            wait = saga.wait(
                name, Delivered, match=lambda v: v.input.id, timeout=10 * MINUTE, on_timeout=node["then"]
            )
            if node["then"] is Then.RECONCILE:
                wait.probe(_ask)
        else:
            last = irreversible and n == len(nodes) - 1
            undo = "none" if last else node["undo"]
            asked = node["repeat"] is Repeat.ASK_FIRST or (node["repeat"] is Repeat.SAFE and node["probe"])
            add_step(
                saga,
                name,
                node["repeat"],
                undo=undo == "plain",
                blind=undo == "blind",
                probe=asked,
                retry=Retry(attempts=node["attempts"], within=None),
                on_failure=node["then"],
                irreversible=last,
                no_undo="none needed" if undo == "none" and not last else None,
            )
    return flow(saga)


async def _ask(ctx: Any) -> Probe[Delivered]:
    return Found(Delivered(id="x"))
