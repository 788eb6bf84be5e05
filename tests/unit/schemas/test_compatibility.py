"""Which pairs of schemas fit, and in which words they do not."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from milepost.schemas.compatibility import differences
from pydantic import BaseModel, ConfigDict, Field


def obj(required: str = "", **fields: Any) -> dict[str, Any]:
    """Return an object schema; `required` are names with blanks between."""
    return {"type": "object", "properties": fields, "required": required.split()}


STRING, INTEGER, NUMBER, NULL = ({"type": kind} for kind in ("string", "integer", "number", "null"))
NODE = {"$ref": "#/$defs/Node"}


def tree(**more: Any) -> dict[str, Any]:
    """Return a schema that refers to itself."""
    node = obj("v", v=INTEGER, left=NODE)
    return {"$ref": "#/$defs/Node", "$defs": {"Node": {**node, **more}}}


FITS: list[tuple[str, Any, Any]] = [
    ("the same", obj("a", a=STRING), obj("a", a=STRING)),
    ("the reader takes fewer fields", obj("a b", a=STRING, b=STRING), obj("a", a=STRING)),
    ("a new optional field of the reader", obj("a", a=STRING), obj("a", a=STRING, b=INTEGER)),
    ("an integer is a number", INTEGER, NUMBER),
    ("anything is taken", obj("a", a=STRING), {}),
    ("one alternative is enough", INTEGER, {"anyOf": [STRING, NUMBER]}),
    ("each alternative is taken", {"anyOf": [STRING, NULL]}, {"anyOf": [NULL, STRING, INTEGER]}),
    ("a list of types", {"type": ["string", "null"]}, {"anyOf": [NULL, STRING]}),
    ("fewer values", {"enum": ["a", 1, None]}, {"enum": ["b", "a", 1.0, None]}),
    ("a value of the type", {"const": "a"}, {"type": "string", "maxLength": 1}),
    (
        "tighter bounds",
        {"type": "integer", "minimum": 1, "maximum": 5},
        {"type": "number", "exclusiveMinimum": 0},
    ),
    ("multiples of a multiple", {"type": "integer", "multipleOf": 6}, {"type": "integer", "multipleOf": 3}),
    ("shorter text", {"type": "string", "maxLength": 3}, {"type": "string", "maxLength": 4}),
    ("a format is text", {"type": "string", "format": "uuid"}, STRING),
    (
        "items",
        {"type": "array", "items": INTEGER, "minItems": 2},
        {"type": "array", "items": NUMBER, "minItems": 1},
    ),
    (
        "a tuple is an array",
        {"type": "array", "prefixItems": [INTEGER, INTEGER], "minItems": 2, "maxItems": 2},
        {"type": "array", "items": INTEGER},
    ),
    (
        "a map",
        {"type": "object", "additionalProperties": INTEGER},
        {"type": "object", "additionalProperties": NUMBER},
    ),
    ("fields are a map", obj("a", a=INTEGER), {"type": "object", "additionalProperties": NUMBER}),
    ("no others are written", obj("a", a=STRING), {**obj("a", a=STRING), "additionalProperties": False}),
    ("all parts", {"allOf": [STRING, {"minLength": 3}]}, STRING),
    (
        "references",
        {"$ref": "#/$defs/A", "$defs": {"A": STRING}},
        {"$ref": "#/$defs/B", "$defs": {"B": STRING}},
    ),
    ("a tree", tree(), tree(required=[])),
    (
        "unknown rules that are the same",
        {"not": STRING, "type": "integer"},
        {"not": STRING, "type": "integer"},
    ),
    (
        "told apart by a field",
        obj("k", k={"const": "a"}),
        {"oneOf": [obj("k", k={"const": "a"}), obj("k", k={"const": "b"})]},
    ),
]

FAILS: list[tuple[str, Any, Any, str, str]] = [
    ("a field is missing", obj("a", a=STRING), obj("a b", a=STRING, b=STRING), "MISSING_FIELD", "b"),
    ("a field may be left out", obj("", a=STRING), obj("a", a=STRING), "MISSING_FIELD", "a"),
    ("another type", obj("a", a=STRING), obj("a", a=INTEGER), "NARROWER_TYPE", "a"),
    ("a number is no integer", NUMBER, INTEGER, "NARROWER_TYPE", ""),
    ("null is not taken", {"anyOf": [STRING, NULL]}, STRING, "NARROWER_TYPE", ""),
    ("a value more", {"enum": ["a", "b"]}, {"enum": ["a"]}, "NARROWER_TYPE", ""),
    ("only values", STRING, {"enum": ["a"]}, "NARROWER_TYPE", ""),
    ("true is not 1", {"const": True}, {"const": 1}, "NARROWER_TYPE", ""),
    ("a smaller number", INTEGER, {"type": "integer", "minimum": 0}, "NARROWER_RULE", ""),
    (
        "the bound itself",
        {"type": "number", "maximum": 5},
        {"type": "number", "exclusiveMaximum": 5},
        "NARROWER_RULE",
        "",
    ),
    ("other multiples", {**INTEGER, "multipleOf": 2}, {**INTEGER, "multipleOf": 3}, "NARROWER_RULE", ""),
    ("longer text", STRING, {"type": "string", "maxLength": 4}, "NARROWER_RULE", ""),
    ("any text", STRING, {"type": "string", "format": "uuid"}, "NARROWER_RULE", ""),
    ("another pattern", {"type": "string", "pattern": "a"}, {"type": "string", "pattern": "b"}, "NARROWER_RULE", ""),
    (
        "inside",
        obj("l", l={"type": "array", "items": obj("", s=STRING)}),
        obj("l", l={"type": "array", "items": obj("s", s=STRING)}),
        "MISSING_FIELD",
        "l[].s",
    ),
    ("too few items", {"type": "array"}, {"type": "array", "minItems": 1}, "NARROWER_RULE", ""),
    ("twice the same", {"type": "array"}, {"type": "array", "uniqueItems": True}, "NARROWER_RULE", ""),
    (
        "a field that is forbidden",
        obj("a b", a=STRING, b=STRING),
        {**obj("a", a=STRING), "additionalProperties": False},
        "FORBIDDEN_FIELD",
        "b",
    ),
    (
        "any field may be written",
        {**obj("a", a=STRING), "additionalProperties": True},
        obj("a", a=STRING, b=INTEGER),
        "NARROWER_TYPE",
        "b",
    ),
    ("a tree", tree(required=[]), tree(), "MISSING_FIELD", "v"),
    ("a rule that is not understood", STRING, {"not": {"const": "x"}}, "UNPROVEN", ""),
    (
        "two alternatives may fit",
        obj("a b", a=STRING, b=STRING),
        {"oneOf": [obj("a", a=STRING), obj("b", b=STRING)]},
        "UNPROVEN",
        "",
    ),
    ("a reference to nothing is anything", {"$ref": "#/$defs/A"}, STRING, "NARROWER_TYPE", ""),
    ("a reference to nothing takes nothing", STRING, {"$ref": "#/$defs/A"}, "FORBIDDEN_FIELD", ""),
    ("another document is anything", {"$ref": "other.json"}, STRING, "NARROWER_TYPE", ""),
    (
        "a reference without an end",
        INTEGER,
        {"$ref": "#/$defs/R", "$defs": {"R": {"anyOf": [{"$ref": "#/$defs/R"}, STRING]}}},
        "NARROWER_TYPE",
        "",
    ),
    ("the same words about other definitions", {"$ref": "#/$defs/A", "$defs": {"A": STRING}},
     {"$ref": "#/$defs/A", "$defs": {"A": INTEGER}}, "NARROWER_TYPE", ""),
]  # fmt: skip


@pytest.mark.parametrize(("writer", "reader"), [pair[1:] for pair in FITS], ids=[pair[0] for pair in FITS])
def test_a_pair_that_fits(writer: Any, reader: Any) -> None:
    assert differences(writer, reader) == []


@pytest.mark.parametrize(
    ("writer", "reader", "code", "path"), [case[1:] for case in FAILS], ids=[case[0] for case in FAILS]
)
def test_a_pair_that_does_not_fit(writer: Any, reader: Any, code: str, path: str) -> None:
    found = differences(writer, reader)
    assert (code, path) in {(one.code, one.path) for one in found}, found
    assert all(one.reason and str(one).startswith(one.code) for one in found)


class Size(Enum):
    S = "s"
    L = "l"


class ByCard(BaseModel):
    by: Literal["card"]
    number: str


class ByBill(BaseModel):
    by: Literal["bill"]
    days: int = 14


class Line(BaseModel):
    sku: str
    size: Size
    amount: Annotated[int, Field(ge=1)] = 1
    parts: list[Line] = []


class Written(BaseModel):
    id: UUID
    at: datetime
    total: Decimal
    lines: list[Line]
    payment: Annotated[ByCard | ByBill, Field(discriminator="by")]
    note: str | None = None
    tags: set[str] = set()
    prices: dict[str, Decimal] = {}
    pair: tuple[int, str] = (1, "a")


def schemas(reader: type[BaseModel]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    return Written.model_json_schema(mode="serialization"), reader.model_json_schema(mode="validation")


def test_a_class_reads_what_it_writes() -> None:
    assert differences(*schemas(Written)) == []


def test_a_reader_with_a_few_fields_of_wider_types() -> None:
    class Read(BaseModel):
        id: str
        total: Decimal
        note: str | None
        other: int = 0

        model_config = ConfigDict(extra="ignore")

    assert [str(one) for one in differences(*schemas(Read))] == [
        "MISSING_FIELD note: it may be left out, and is required"
    ]


def test_a_reader_of_narrower_types_is_told_where() -> None:
    class Small(BaseModel):
        sku: str
        size: Literal["s"]
        amount: Annotated[int, Field(ge=2)] = 2

    class Read(BaseModel):
        at: UUID
        lines: list[Small]
        total: float
        payment: ByCard

    found = {(one.code, one.path) for one in differences(*schemas(Read))}
    assert found == {
        ("NARROWER_RULE", "at"),
        ("NARROWER_TYPE", "lines[].size"),
        ("NARROWER_RULE", "lines[].amount"),
        ("NARROWER_TYPE", "total"),
        ("NARROWER_TYPE", "payment.by"),
        ("MISSING_FIELD", "payment.number"),
    }
