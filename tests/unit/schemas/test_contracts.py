"""Contracts as files, and whether a class fits one, from each side."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from milepost import Command, DefinitionError, Event, UsageError
from milepost.schemas.contracts import Contract, contract_of, from_text, named, to_text
from milepost.schemas.contracts_check import Judged, Side, judge, with_negatives
from pydantic import BaseModel, ConfigDict, Field


class Placed(Event, type="shop.placed", version=1, topic="orders", key="id", correlate="id"):
    """An order was placed."""

    id: str
    amount: int
    note: str = ""


class Booked(Event, type="truck.booked", topic="replies", key="truck"):
    truck: str


class Book(Command[Booked], type="truck.book", topic="trucks", key="truck"):
    truck: str
    note: str = ""


PLACED = contract_of(Placed, "event", mode="serialization")
BOOK = contract_of(Book, "command", mode="validation", reply="truck.booked.v1")
BOOKED = contract_of(Booked, "reply", mode="serialization")
RELEASED = {one.name: one for one in (PLACED, BOOK, BOOKED)}


def judged(side: Side, mine: Contract) -> Judged:
    return judge(side, mine, RELEASED)


def with_body(contract: Contract, *, required: list[str] | None = None, **fields: Any) -> Contract:
    """Return a contract whose body has other fields; None takes one away."""
    body = {
        name: rule for name, rule in {**contract.schema["properties"], **fields}.items() if rule is not None
    }
    needed = contract.schema["required"] if required is None else required
    return replace(contract, schema={**contract.schema, "properties": body, "required": needed})


def codes(found: Judged) -> set[tuple[str, str]]:
    return {(one.code, one.path) for one in found.findings}


def test_a_file_holds_the_body_and_what_travels_around_it() -> None:
    document = json.loads(to_text(PLACED))
    assert PLACED.file == "shop.placed.v1.json"
    assert document["x-milepost"] == {
        "kind": "event",
        "type": "shop.placed",
        "version": 1,
        "topic": "orders",
        "key": "id",
        "correlation": "id",
    }
    assert document["required"] == ["id", "amount"], "a field with a default is optional"
    assert document["description"] == "An order was placed."
    assert json.loads(to_text(BOOK))["x-milepost"]["reply"] == "truck.booked.v1"
    for contract in (PLACED, BOOK, BOOKED):
        assert from_text(contract.file, to_text(contract)) == contract


def test_names_of_files() -> None:
    assert named("shop.order-placed.v12.json") == ("shop.order-placed", 12)
    assert named("README.md") is named("shop.v0.json") is named("package.json") is None


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("a.v1.json", "{"),
        ("a.v1.json", "[]"),
        ("a.v1.json", "{}"),
        ("a.v1.json", '{"x-milepost": 1}'),
        ("a.v1.json", '{"x-milepost": {"kind": "event"}}'),
        ("shop.placed.v2.json", to_text(PLACED)),
    ],
)
def test_what_is_no_contract_is_named(file: str, text: str) -> None:
    with pytest.raises(UsageError, match="MP481") as raised:
        from_text(file, text)
    assert file in raised.value.text


def test_a_field_without_a_schema_is_named() -> None:
    class Thing:
        pass

    class Odd(Event, type="shop.odd", topic="t"):
        model_config = ConfigDict(arbitrary_types_allowed=True)
        thing: Thing

    with pytest.raises(DefinitionError, match="MP480"):
        contract_of(Odd, "event", mode="serialization")


CONSUMERS: list[tuple[str, Contract, set[tuple[str, str]]]] = [
    ("as released", PLACED, set()),
    ("fewer fields", with_body(PLACED, amount=None, required=["id"]), set()),
    ("no key of its own", replace(PLACED, key="", correlation=""), set()),
    ("a field of its own", with_body(PLACED, seen={"type": "boolean"}), set()),
    (
        "a missing field",
        with_body(PLACED, sku={"type": "string"}, required=["id", "sku"]),
        {("MISSING_FIELD", "sku")},
    ),
    ("an optional one", with_body(PLACED, required=["id", "note"]), {("MISSING_FIELD", "note")}),
    ("a narrower type", with_body(PLACED, amount={"type": "string"}), {("NARROWER_TYPE", "amount")}),
    ("a rule", with_body(PLACED, amount={"type": "integer", "minimum": 1}), {("NARROWER_RULE", "amount")}),
    ("another topic", replace(PLACED, topic="other"), {("OTHER_TOPIC", "")}),
    ("another key", replace(PLACED, key="amount"), {("OTHER_KEY", "amount")}),
    ("another codec", replace(PLACED, codec="aes-gcm"), {("OTHER_CODEC", "")}),
    ("no such version", replace(PLACED, version=2), {("NO_CONTRACT", "")}),
    ("no such type", replace(PLACED, type="shop.gone"), {("NO_CONTRACT", "")}),
]


@pytest.mark.parametrize(
    ("mine", "found"), [case[1:] for case in CONSUMERS], ids=[case[0] for case in CONSUMERS]
)
def test_a_consumer_is_held_against_what_is_published(mine: Contract, found: set[tuple[str, str]]) -> None:
    answer = judged("consumes", mine)
    assert codes(answer) == found
    assert answer.compatible == (not found) and bool(answer.advice) == bool(found)


PUBLISHERS: list[tuple[str, Contract, set[tuple[str, str]]]] = [
    ("as released", PLACED, set()),
    ("a new optional field", with_body(PLACED, sku={"type": "string"}), set()),
    (
        "a new field that is always there",
        with_body(PLACED, sku={"type": "string"}, required=["id", "amount", "sku"]),
        {("MISSING_FIELD", "sku")},
    ),
    ("a field less", with_body(PLACED, amount=None, required=["id"]), {("MISSING_FIELD", "amount")}),
    ("a field that is optional now", with_body(PLACED, required=["id"]), {("MISSING_FIELD", "amount")}),
    ("a wider type", with_body(PLACED, amount={"type": "number"}), {("NARROWER_TYPE", "amount")}),
    ("a narrower type", with_body(PLACED, note={"const": ""}), {("NARROWER_TYPE", "note")}),
    ("another topic", replace(PLACED, topic="other"), {("OTHER_TOPIC", "")}),
    ("another key", replace(PLACED, key=""), {("OTHER_KEY", "")}),
    ("another correlation", replace(PLACED, correlation="amount"), {("OTHER_CORRELATION", "amount")}),
]


@pytest.mark.parametrize(
    ("mine", "found"), [case[1:] for case in PUBLISHERS], ids=[case[0] for case in PUBLISHERS]
)
def test_a_publisher_may_not_break_what_it_released(mine: Contract, found: set[tuple[str, str]]) -> None:
    answer = judged("publishes", mine)
    assert codes(answer) == found
    assert answer.compatible == (not found)
    assert answer.advice == (
        "shop.placed.v1 is released: leave it as it was and declare version=2 beside it" if found else ""
    )


def test_the_version_to_raise_to_is_the_next_free_one() -> None:
    released = {**RELEASED, "shop.placed.v2": replace(PLACED, version=2)}
    answer = judge("publishes", replace(PLACED, topic="other"), released)
    assert "declare version=3" in answer.advice


def test_a_new_version_is_not_released_yet() -> None:
    answer = judged("publishes", replace(PLACED, version=2))
    assert answer.compatible and not answer.released and answer.advice == "not released yet"


def test_a_consumer_hears_of_a_newer_version_without_failing() -> None:
    released = {**RELEASED, "shop.placed.v2": replace(PLACED, version=2)}
    answer = judge("consumes", PLACED, released)
    assert codes(answer) == {("NEWER_VERSION", "")} and answer.compatible


def test_commands_are_judged_from_both_ends() -> None:
    sent = contract_of(Book, "command", mode="serialization", reply="truck.booked.v1")
    assert judged("sends", sent).compatible
    assert codes(judged("sends", with_body(sent, truck=None, required=[]))) == {("MISSING_FIELD", "truck")}
    assert codes(judged("sends", replace(sent, reply="other.v1"))) == {("OTHER_REPLY", "")}
    assert judged("answers", with_body(BOOK, extra={"type": "string"})).compatible
    narrow = with_body(BOOK, required=["truck", "note"])
    assert codes(judged("answers", narrow)) == {("MISSING_FIELD", "note")}
    assert judged("consumes", replace(BOOKED, kind="event", topic="mine", key="")).compatible, (
        "a requester chooses the topic of its replies"
    )


def test_every_command_has_the_two_replies_that_are_no_class() -> None:
    class Refused(Event, type="truck.book.refused", topic="replies"):
        code: str
        run: str

    class Nothing(Event, type="truck.book.nothing-to-undo", topic="replies"):
        gone: str

    released = with_negatives(RELEASED)
    fits = judge("consumes", contract_of(Refused, "event", mode="validation"), released)
    fails = judge("consumes", contract_of(Nothing, "event", mode="validation"), released)
    assert fits.compatible
    assert codes(fails) == {("MISSING_FIELD", "gone")}


def test_aliases_are_those_of_the_wire() -> None:
    class Line(BaseModel):
        number: int

    class Sent(Event, type="shop.sent", topic="t"):
        model_config = ConfigDict(populate_by_name=True)
        at: Line = Field(alias="where")

    written = contract_of(Sent, "event", mode="serialization").schema["properties"]
    body = json.loads(Sent.model_validate({"where": {"number": 1}}).model_dump_json())
    assert set(written) == set(body) == {"at"}
