"""`milepost contracts` as a user types it, on applications of a few lines; no server is needed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator

from tests.support.house import ROOT

PUBLISHER = '''
from decimal import Decimal
from milepost import Command, Event, Milepost
from pydantic import BaseModel

class Line(BaseModel):
    sku: str
    amount: Decimal

class OrderPlaced(Event, type="shop.order-placed", version=1, topic="orders", key="order_id"):
    """An order was placed."""
    order_id: str
    lines: list[Line]

class Own(Event, type="shop.own", topic="own"):
    n: int

class Booked(Event, type="truck.booked", topic="replies", key="order_id"):
    order_id: str
    plate: str

class Book(Command[Booked], type="truck.book", topic="trucks", key="order_id"):
    order_id: str

service = Milepost("shop")
consumer = service.consumer("shop-trucks")

@consumer.answers(Book, Booked)
async def book(command, tx): return Booked(order_id=command.order_id, plate="p")

@consumer.on(Own)
async def own(event, tx): pass
'''

CONSUMER = """
from milepost import Command, Event, Milepost
from pydantic import BaseModel

class Line(BaseModel):
    sku: str

class Placed(Event, type="shop.order-placed", version=1, topic="orders"):
    order_id: str
    lines: list[Line]

class Booked(Event, type="truck.booked", topic="mine", key="order_id"):
    order_id: str

class Refused(Event, type="truck.book.refused", topic="mine"):
    code: str

class Book(Command[Booked], type="truck.book", topic="trucks", key="order_id"):
    order_id: str

service = Milepost("billing")
consumer = service.consumer("billing-orders")

@consumer.on(Placed)
async def placed(event, tx): pass

@consumer.on(Refused)
async def refused(event, tx): pass
"""


class Shell:
    """A folder with two applications."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write("shop_app", PUBLISHER)
        self.write("billing_app", CONSUMER)

    def write(self, module: str, text: str) -> None:
        """Write an application."""
        (self.folder / f"{module}.py").write_text(text)

    def __call__(self, app: str, *words: str) -> tuple[int, list[str], str]:
        """Run `milepost contracts`; returns exit status, lines of stdout, and stderr."""
        path = os.pathsep.join(part for part in [os.environ.get("PYTHONPATH", ""), str(ROOT)] if part)
        environment = {name: text for name, text in os.environ.items() if not name.startswith("MILEPOST_")}
        done = subprocess.run(
            [sys.executable, "-m", "milepost.console.main", "--app", f"{app}:service", "contracts", *words],
            check=False,
            cwd=self.folder,
            env={**environment, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=120,
        )
        return done.returncode, done.stdout.splitlines(), done.stderr


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_export_check_edit_and_refuse(shell: Shell) -> None:
    status, lines, errors = shell("shop_app", "export", "--out", "contracts", "--also", "shop.own")
    assert (status, errors) == (0, "")
    assert lines == [
        f"{name}.v1 written" for name in ("shop.order-placed", "shop.own", "truck.book", "truck.booked")
    ]
    assert sorted(path.name for path in (shell.folder / "contracts").iterdir()) == [
        f"{line.split()[0]}.json" for line in lines
    ]

    status, lines, _ = shell("billing_app", "check", "--against", "contracts", "--json")
    found = [json.loads(line) for line in lines]
    assert status == 0
    assert {(one["contract"], one["side"], one["compatible"]) for one in found} == {
        ("shop.order-placed.v1", "consumes", True),
        ("truck.book.v1", "sends", True),
        ("truck.booked.v1", "consumes", True),
        ("truck.book.refused.v1", "consumes", True),
    }

    shell.write(
        "shop_app",
        PUBLISHER.replace("    lines: list[Line]\n", '    lines: list[Line]\n    note: str = ""\n'),
    )
    assert shell("shop_app", "check", "--against", "contracts", "--also", "shop.own")[0] == 0, (
        "a new optional field"
    )
    shell.write("shop_app", PUBLISHER.replace("    sku: str\n", "    sku: int\n"))
    status, lines, _ = shell("shop_app", "check", "--against", "contracts")
    text = "\n".join(lines)
    assert status == 1
    assert "shop.order-placed.v1 (publishes): NOT compatible" in text
    assert "NARROWER_TYPE lines[].sku: integer may be written, and string is accepted" in text
    assert "declare version=2 beside it" in text

    before = (shell.folder / "contracts" / "shop.order-placed.v1.json").read_text()
    status, lines, _ = shell("shop_app", "export", "--out", "contracts")
    assert status == 1 and "shop.order-placed.v1 refused" in lines and "truck.book.v1 unchanged" in lines
    assert (shell.folder / "contracts" / "shop.order-placed.v1.json").read_text() == before
    assert shell("shop_app", "export", "--out", "contracts", "--overwrite")[0] == 0
    assert (shell.folder / "contracts" / "shop.order-placed.v1.json").read_text() != before

    status, lines, _ = shell("billing_app", "check", "--against", "contracts")
    assert status == 1 and "shop.order-placed.v1 (consumes): NOT compatible" in lines
    assert lines[-1] == "4 contracts, 1 not compatible"


def test_a_consumer_that_asks_for_more_fails_its_build(shell: Shell) -> None:
    assert shell("shop_app", "export", "--out", "contracts")[0] == 0
    wrong = CONSUMER.replace("    sku: str\n", "    sku: str\n    weight: int\n").replace(
        '"orders")', '"order")'
    )
    shell.write("billing_app", wrong)
    status, lines, _ = shell("billing_app", "check", "--against", "contracts")
    assert status == 1
    assert "  MISSING_FIELD lines[].weight: it is not written, and is required" in lines
    assert "  OTHER_TOPIC topic 'order', released is 'orders'" in lines


def test_a_service_that_owns_nothing_is_told_why(shell: Shell) -> None:
    status, lines, _ = shell("billing_app", "export", "--out", "contracts")
    assert status == 0 and "owns no contract" in lines[0] and lines[0].endswith("--also TYPE.")
    assert not (shell.folder / "contracts").exists()


def test_wrong_words_are_told(shell: Shell) -> None:
    status, _, errors = shell("shop_app", "check", "--against", "nowhere")
    assert status == 2 and "MP484" in errors
    status, _, errors = shell("shop_app", "export", "--out", "contracts", "--also", "shop.nothing")
    assert status == 2 and "MP482" in errors and "shop.own" in errors
    assert shell("shop_app", "check")[0] == 2
    folder = shell.folder / "contracts"
    folder.mkdir()
    (folder / "shop.order-placed.v1.json").write_text("{}")
    (folder / "package.json").write_text("no contract, and not named like one")
    status, _, errors = shell("shop_app", "check", "--against", "contracts")
    assert status == 2 and "MP481 shop.order-placed.v1.json" in errors
    twice = (
        PUBLISHER
        + '\nclass Again(Event, type="shop.order-placed", version=1, topic="elsewhere"):\n    n: int\n'
    )
    shell.write("shop_app", twice)
    status, _, errors = shell("shop_app", "export", "--out", "other")
    assert status == 1 and "MP483" in errors


def refs(value: Any) -> list[str]:
    """Return every reference in a document."""
    if isinstance(value, list):
        return [ref for one in value for ref in refs(one)]
    if not isinstance(value, dict):
        return []
    own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
    return own + [ref for one in value.values() for ref in refs(one)]


def test_the_asyncapi_document_is_valid_and_has_every_topic_message_and_schema(shell: Shell) -> None:
    status, _, errors = shell("shop_app", "asyncapi", "--out", "shop.json", "--release", "2.1.0")
    assert (status, errors) == (0, "")
    document = json.loads((shell.folder / "shop.json").read_text())
    official = json.loads((ROOT / "tests" / "contract" / "data" / "asyncapi-3.0.0.json").read_text())
    assert [str(error.message) for error in Draft7Validator(official).iter_errors(document)] == []
    assert document["info"] == {"title": "shop", "version": "2.1.0"}
    topics = {channel["address"] for channel in document["channels"].values()}
    assert topics == {"orders", "own", "trucks", "replies"}
    actions = {(one["action"], name) for name, one in document["operations"].items()}
    assert actions == {
        ("send", "shop.order-placed.v1"),
        ("send", "truck.booked.v1"),
        ("receive", "shop-trucks.truck.book.v1"),
        ("receive", "shop-trucks.shop.own.v1"),
    }
    messages = document["components"]["messages"].values()
    assert {message["name"] for message in messages} == {
        "shop.order-placed",
        "truck.booked",
        "truck.book",
        "shop.own",
    }
    placed = document["components"]["schemas"]["shop.order-placed.v1"]
    assert placed["$defs"]["Line"]["required"] == ["sku", "amount"]
    for ref in refs(document):
        found = document
        for part in ref.removeprefix("#/").split("/"):
            found = found[part.replace("~1", "/").replace("~0", "~")]


def test_the_asyncapi_document_of_a_service_without_events_is_valid(shell: Shell) -> None:
    shell.write("empty_app", 'from milepost import Milepost\nservice = Milepost("empty")\n')
    status, lines, errors = shell("empty_app", "asyncapi", "--out", "-")
    assert (status, errors) == (0, "")
    document = json.loads("\n".join(lines))
    official = json.loads((ROOT / "tests" / "contract" / "data" / "asyncapi-3.0.0.json").read_text())
    assert [str(error.message) for error in Draft7Validator(official).iter_errors(document)] == []
