"""docs/graph.md shows what is drawn."""

from __future__ import annotations

import re
from pathlib import Path

from milepost.console.graph_commands import GraphFormat
from milepost.examples.shop.saga import order
from milepost.sagas.drawing import Mark, Progress
from milepost.sagas.drawing_mermaid import flow_mermaid
from milepost.sagas.drawing_plan import draw
from milepost.sagas.graph import flow_json
from milepost.schemas.states import RunState, StepState

PAGE = (Path(__file__).parents[2] / "docs" / "graph.md").read_text()

DONE = Mark(state=StepState.SUCCEEDED, tries=1)
RUN = Progress(
    reference="order/o-7",
    state=RunState.COMPENSATING,
    situation="refund COMPENSATING for 3s",
    marks={
        "reserve_stock": DONE,
        "charge_card": Mark(state=StepState.SUCCEEDED, tries=2, probes=1),
        "ship": DONE,
        "delivered": Mark(state=StepState.FAILED, tries=1, code="WAIT_TIMEOUT"),
        "cancel_shipment": Mark(state=StepState.COMPENSATED, tries=1),
        "refund": Mark(state=StepState.COMPENSATING, tries=2, code="BANK_BUSY"),
    },
)


def test_the_page_shows_a_run_of_the_shop_as_it_is_drawn() -> None:
    """Write the block anew with: print(flow_mermaid(draw(order.definition, RUN)))."""
    assert re.findall(r"```mermaid\n(.*?)```", PAGE, re.S) == [flow_mermaid(draw(order.definition, RUN))]


def test_the_page_names_every_format_and_every_field() -> None:
    assert [form for form in GraphFormat if f"`{form.value}`" not in PAGE] == []
    data = flow_json(draw(order.definition, RUN))
    fields = {*data, *(field for node in data["nodes"] for field in node)}
    assert [field for field in sorted(fields) if f"`{field}`" not in PAGE] == []
