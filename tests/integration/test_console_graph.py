"""`milepost graph`: runs of the shop's saga, each brought to where it stands by the engine, drawn on top of it."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from milepost.console import main
from milepost.examples.shop.contracts import PlaceOrder
from milepost.examples.shop.saga import order
from milepost.sagas.facts import Claim, Fact, Signalled, Succeeded, TryFailed, Wake

from tests.support import servers
from tests.support.drawings import SVG, Mermaid, svg_boxes, svg_root, svg_words
from tests.support.engine import Rig, rig, worker_id

APP = """
from milepost import Milepost
from milepost.examples.shop.saga import order
service = Milepost("shop", sagas=[order])
"""
RESULTS = {"reserve_stock": {"id": "r-1"}, "charge_card": {"id": "c-1"}, "ship": {"tracking_id": "t-1"}}

Call = Callable[..., tuple[int, str, str]]


async def claim(it: Rig, run: UUID, step: str) -> int:
    """Claim a step; returns the fence."""
    change = await it.engine.change(run, Claim(step, worker_id()))
    assert change is not None
    assert change.decision.claimed is not None, change.decision.reason
    return change.decision.claimed.fence


async def do(it: Rig, run: UUID, *steps: str) -> None:
    for step in steps:
        fence = await claim(it, run, step)
        await tell(it, run, Succeeded(step, fence, RESULTS.get(step)))


async def tell(it: Rig, run: UUID, fact: Fact) -> None:
    change = await it.engine.change(run, fact)
    assert change is not None
    assert change.decision.answer == "changed", change.decision.reason


async def generation(it: Rig, run: UUID, step: str) -> int:
    query = "SELECT generation FROM milepost.step WHERE run_id = $1 AND name = $2"
    found: int = await it.value(query, run, step)
    return found


async def bring_about(url: str) -> None:
    """Make one run per state that is drawn; its key says what it is."""
    async with rig(url, order, name="shop") as it:

        async def begin(key: str, *done: str) -> UUID:
            run = await it.start(order, PlaceOrder(order_id=key, sku="mug", amount=Decimal(3)))
            await do(it, run.id, *done)
            return run.id

        to_wait = ("reserve_stock", "charge_card", "ship")
        await begin("fresh")
        run = await begin("waiting", *to_wait)
        run = await begin("unknown", "reserve_stock")
        fence = await claim(it, run, "charge_card")
        await tell(it, run, TryFailed("charge_card", fence, "unknown", "TIMEOUT", "no answer"))
        run = await begin("failed")
        fence = await claim(it, run, "reserve_stock")
        await tell(it, run, TryFailed("reserve_stock", fence, "fatal", "SOLD_OUT", "none left"))
        for key in ("person", "done"):
            run = await begin(key, *to_wait)
            body = {"tracking_id": "t-1", "order_id": key}
            await tell(it, run, Signalled("delivered", await generation(it, run, "delivered"), body))
            if key == "done":
                await do(it, run, "close_order")
                continue
            fence = await claim(it, run, "close_order")
            await tell(it, run, TryFailed("close_order", fence, "fatal", "NO_ROW", "the order is gone"))
        late = [await begin(key, *to_wait) for key in ("undoing", "undone")]
        await it.clock("1 hour")
        for run in late:
            await tell(it, run, Wake("delivered", await generation(it, run, "delivered")))
            await do(it, run, "cancel_shipment")
        await do(it, late[1], "refund", "release_stock")
        fence = await claim(it, late[0], "refund")
        await tell(it, late[0], TryFailed("refund", fence, "retry", "BANK_BUSY", "later"))


@pytest.fixture(scope="module")
def with_runs(postgres_server: servers.DatabaseServer, database_template: str) -> Iterator[str]:
    with servers.fresh_database(postgres_server, database_template) as url:
        asyncio.run(bring_about(url))
        yield url


@pytest.fixture
def milepost(
    with_runs: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Call]:
    """Run a command line on the runs above, with the application of the present folder."""
    monkeypatch.setenv("MILEPOST_DATABASE_URL", with_runs)
    monkeypatch.setenv("MILEPOST_APP", "drawn_shop:service")
    monkeypatch.chdir(tmp_path)
    Path("drawn_shop.py").write_text(APP)

    def call(*words: str) -> tuple[int, str, str]:
        status = main.run(words)
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    yield call
    sys.modules.pop("drawn_shop", None)


AHEAD = {"release_stock", "refund", "cancel_shipment"}
STATES: dict[str, tuple[str, dict[str, str]]] = {
    "fresh": ("PENDING", {"reserve_stock": "now: PENDING"}),
    "waiting": (
        "WAITING",
        {
            "reserve_stock": "SUCCEEDED, 1 try",
            "charge_card": "SUCCEEDED, 1 try",
            "ship": "SUCCEEDED, 1 try",
            "delivered": "now: WAITING",
        },
    ),
    "unknown": (
        "RUNNING",
        {"reserve_stock": "SUCCEEDED, 1 try", "charge_card": "now: UNKNOWN, 1 try, TIMEOUT"},
    ),
    "failed": ("FAILED", {"reserve_stock": "FAILED, 1 try, SOLD_OUT"}),
    "person": (
        "MANUAL_REQUIRED",
        {
            "reserve_stock": "SUCCEEDED, 1 try",
            "charge_card": "SUCCEEDED, 1 try",
            "ship": "SUCCEEDED, 1 try",
            "delivered": "SUCCEEDED",
            "close_order": "now: MANUAL_REQUIRED, 1 try, NO_ROW",
        },
    ),
    "done": (
        "SUCCEEDED",
        {
            "reserve_stock": "SUCCEEDED, 1 try",
            "charge_card": "SUCCEEDED, 1 try",
            "ship": "SUCCEEDED, 1 try",
            "delivered": "SUCCEEDED",
            "close_order": "SUCCEEDED, 1 try",
        },
    ),
    "undoing": (
        "COMPENSATING",
        {
            "reserve_stock": "SUCCEEDED, 1 try",
            "charge_card": "SUCCEEDED, 1 try",
            "refund": "now: COMPENSATION_PENDING, 1 try, BANK_BUSY",
            "ship": "SUCCEEDED, 1 try, undone",
            "cancel_shipment": "COMPENSATED, 1 try",
            "delivered": "FAILED, WAIT_TIMEOUT",
        },
    ),
    "undone": (
        "COMPENSATED",
        {
            "reserve_stock": "SUCCEEDED, 1 try, undone",
            "release_stock": "COMPENSATED, 1 try",
            "charge_card": "SUCCEEDED, 1 try, undone",
            "refund": "COMPENSATED, 1 try",
            "ship": "SUCCEEDED, 1 try, undone",
            "cancel_shipment": "COMPENSATED, 1 try",
            "delivered": "FAILED, WAIT_TIMEOUT",
        },
    ),
}


@pytest.mark.parametrize("key", STATES)
def test_a_run_is_drawn_on_top_of_its_saga(milepost: Call, key: str) -> None:
    state, said = STATES[key]
    status, out, err = milepost("graph", "order", "--run", f"order/{key}")
    assert (status, err) == (0, "")
    read = Mermaid(out)
    assert read.nodes["start_"][:2] == ["order v1", f"order/{key}: {state}"]
    everything = [*RESULTS, "delivered", "close_order", *AHEAD]
    rest = {name: "not called" if name in AHEAD else "not reached" for name in everything}
    assert {name: read.nodes[read.named(name)][1] for name in everything} == rest | said
    status, out, _ = milepost("graph", "--run", f"order/{key}", "--format", "svg")
    assert status == 0
    for name, box in svg_boxes(out).items():
        assert svg_words(box)[0] == name
        assert (rest | said)[name].startswith(svg_words(box)[1])
        now = "now" in said.get(name, "")
        assert ("current" in (box.get("class") or "").split()) == now
    assert svg_root(out).findtext(f"{SVG}title") == f"order v1, run order/{key}: {state}"
    data = json.loads(milepost("graph", "--run", f"order/{key}", "--json")[1])
    assert (data["run"], data["state"]) == (f"order/{key}", state)
    assert {node["name"]: node["state"] for node in data["nodes"]} == {
        name: said[name].removeprefix("now: ").split(",")[0] if name in said else None for name in rest
    }


def test_a_drawing_goes_to_a_file_that_says_its_format(milepost: Call) -> None:
    assert milepost("graph", "--run", "order/done", "--out", "done.svg") == (0, "done.svg written, svg\n", "")
    assert svg_root(Path("done.svg").read_text()).tag == f"{SVG}svg"
    status, out, _ = milepost("graph", "--out", "order.json", "--json")
    assert (status, json.loads(out)) == (0, {"file": "order.json", "format": "json"})
    assert json.loads(Path("order.json").read_text())["saga"] == "order"
    assert milepost("graph", "--out", "order.svg", "--format", "mermaid")[0] == 0
    assert Mermaid(Path("order.svg").read_text()).nodes
    assert milepost("graph", "--format", "states", "--out", "states.md")[0] == 0
    assert "stateDiagram-v2" in Path("states.md").read_text()
    status, _, err = milepost("graph", "--out", "no/such/folder.svg")
    assert (status, err[:6]) == (2, "MP618 ")


def test_what_does_not_fit_is_refused(milepost: Call) -> None:
    wrong: list[tuple[tuple[Any, ...], int, str]] = [
        (("refund", "--run", "order/done"), 2, "MP601 run order/done is one of order/1, not of refund"),
        (("order/2", "--run", "order/done"), 2, "MP601 run order/done is one of order/1, not of order/2"),
        (("--run", "order/nobody"), 3, "MP604 "),
        (("--run", "what"), 2, "MP605 "),
        (("order", "--format", "states"), 2, "MP601 "),
        (("--run", "order/done", "--format", "states"), 2, "MP601 "),
        (("--format", "png"), 2, "MP601 "),
    ]
    for words, status, said in wrong:
        found = milepost("graph", *words)
        assert (found[0], found[1]) == (status, ""), words
        assert found[2].startswith(said), words
    assert milepost("graph", "order/1", "--run", "order/done")[0] == 0


def test_a_run_of_a_version_that_the_application_lacks(milepost: Call) -> None:
    text = APP.replace("sagas=[order]", "sagas=[newer]").replace("service =", NEWER + "service =")
    Path("newer_shop.py").write_text(text)
    status, _, err = milepost("graph", "--run", "order/done", "--app", "newer_shop:service")
    sys.modules.pop("newer_shop", None)
    assert status == 2
    assert err.startswith("MP613 service shop has no saga 'order/1'. It has: order/2.")


NEWER = """
from milepost import Repeat, Saga
newer = Saga("order", version=2, input=order.input, key=order.key)

@newer.step(repeat=Repeat.SAFE)
async def only(ctx) -> None: ...

newer.flow(only)
"""
