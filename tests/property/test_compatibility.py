"""Two schemas are never said to fit when a value of the first one is refused by the second one.

The judge is a JSON Schema validator; writers are read as the comparison reads them: an object has no other fields than
those that its schema names.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from typing import Any, TypeAlias

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from milepost.schemas.compatibility import differences

Schema: TypeAlias = Any

LONG = os.environ.get("MILEPOST_CHAOS") == "long"
NAMES = st.sampled_from(["a", "b", "c"])
SMALL = st.integers(-3, 3)
SIZE = st.integers(0, 3)
SCALARS = st.sampled_from(["", "a", "bb", 0, 1, 2, -1, 1.0, 1.5, True, False, None])


def some(*rules: tuple[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Return any choice of rules."""
    return st.fixed_dictionaries({}, optional=dict(rules))


def typed(kind: str, *rules: tuple[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Return schemas of a kind."""
    return some(*rules).map(lambda found: {"type": kind, **found})


BOUNDS = [(name, SMALL) for name in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")]
LEAVES = st.one_of(
    st.just({"type": "null"}),
    st.just({"type": "boolean"}),
    typed("integer", *BOUNDS, ("multipleOf", st.integers(1, 4))),
    typed("number", *BOUNDS),
    typed("string", ("minLength", SIZE), ("maxLength", SIZE), ("pattern", st.just("^a"))),
    st.lists(SCALARS, min_size=1, max_size=3).map(lambda values: {"enum": values}),
    SCALARS.map(lambda value: {"const": value}),
    st.sampled_from(
        [
            True,
            False,
            {},
            {"title": "x"},
            {"type": ["string", "null"]},
            {"minimum": 1},
            {"maxLength": 1},
            {"required": ["a"]},
            {"$ref": "#/$defs/D"},
            {"$ref": "#/$defs/missing"},
        ]
    ),
)


def around(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    """Return schemas that have others inside."""
    branches = st.lists(inner, min_size=1, max_size=3)
    fields = st.tuples(st.dictionaries(NAMES, inner, min_size=1, max_size=3), st.booleans()).map(
        lambda found: {
            "type": "object",
            "properties": found[0],
            "required": sorted(found[0]) if found[1] else sorted(found[0])[:1],
        }
    )
    return st.one_of(
        fields,
        fields,
        typed(
            "object",
            ("properties", st.dictionaries(NAMES, inner, max_size=3)),
            ("required", st.lists(NAMES, unique=True, max_size=2)),
            ("additionalProperties", st.booleans() | inner),
            ("minProperties", SIZE),
            ("maxProperties", SIZE),
        ),
        typed(
            "array",
            ("items", inner),
            ("prefixItems", branches),
            ("minItems", SIZE),
            ("maxItems", SIZE),
            ("uniqueItems", st.booleans()),
        ),
        branches.map(lambda found: {"anyOf": found}),
        branches.map(lambda found: {"oneOf": found}),
        branches.map(lambda found: {"allOf": found}),
        st.tuples(LEAVES.filter(lambda leaf: isinstance(leaf, dict)), branches).map(
            lambda both: {**both[0], "anyOf": both[1]}
        ),
        inner.map(lambda found: {"not": found}),
    )


SCHEMAS = st.recursive(LEAVES, around, max_leaves=6)


class Sampler:
    """Draws values that a schema probably accepts, those at the edges of its rules above all."""

    def __init__(self, schema: Schema, seed: int) -> None:
        self._root = schema
        self._dice = random.Random(seed)

    def value(self, schema: Schema, depth: int = 0) -> Any:
        """Return a value."""
        dice = self._dice
        if not isinstance(schema, dict) or depth > 5:
            return dice.choice(["", "a", "bb", 0, 1, -1, 2.5, True, None, {}, {"a": 1}, [], [1, 1]])
        if "$ref" in schema:
            found = self._root["$defs"].get(schema["$ref"].rpartition("/")[2], True)
            return self.value(found, depth + 1)
        for shape in ("anyOf", "oneOf", "allOf"):
            if shape in schema and (shape == "allOf" or dice.random() < 0.8):
                return self.value(dice.choice(schema[shape]), depth + 1)
        if "const" in schema or "enum" in schema:
            return schema["const"] if "const" in schema else dice.choice(schema["enum"])
        kind = schema.get("type", "")
        kind = dice.choice(kind) if isinstance(kind, list) else kind
        make = getattr(self, f"_{kind}", None)
        return make(schema, depth) if make else self.value(True)

    def _null(self, schema: Schema, depth: int) -> None:
        return None

    def _boolean(self, schema: Schema, depth: int) -> bool:
        return self._dice.random() < 0.5

    def _integer(self, schema: Schema, depth: int) -> int:
        edges = [schema[name] for name, _ in BOUNDS if name in schema]
        edge = self._dice.choice(edges) if edges else self._dice.randint(-4, 4)
        return int(edge + self._dice.randint(-1, 1)) * int(schema.get("multipleOf", 1))

    def _number(self, schema: Schema, depth: int) -> float:
        return self._integer(schema, depth) + self._dice.choice([0, 0, 0.5, -0.5])

    def _string(self, schema: Schema, depth: int) -> str:
        lengths = [schema.get("minLength", 0), schema.get("maxLength", 4)]
        return self._dice.choice(["aaaaaa", "aXbbbb", "Xaaaaa"])[: self._dice.choice(lengths)]

    def _array(self, schema: Schema, depth: int) -> list[Any]:
        first = schema.get("prefixItems", [])
        least = schema.get("minItems", 0)
        size = self._dice.choice([least, least + 1, schema.get("maxItems", 3), len(first)])
        items = [*first, *[schema.get("items", True)] * 9][:size]
        found = [self.value(item, depth + 1) for item in items]
        return [found[0]] * len(found) if found and self._dice.random() < 0.2 else found

    def _object(self, schema: Schema, depth: int) -> dict[str, Any]:
        fields, others = (
            schema.get("properties", {}),
            schema.get("additionalProperties", "properties" not in schema),
        )
        names = set(schema.get("required", ())) | {name for name in fields if self._dice.random() < 0.6}
        if others is not False:
            names |= {name for name in "abcd" if self._dice.random() < 0.4}
        return {name: self.value(fields.get(name, others), depth + 1) for name in sorted(names)}


@st.composite
def edits(draw: st.DrawFn, schema: Schema) -> Schema:
    """Return a schema with a small change somewhere inside, as a person would make it."""
    if not isinstance(schema, dict) or not schema or draw(st.integers(0, 4)) == 0:
        return draw(st.one_of(st.just(schema), LEAVES, SCHEMAS))
    name = draw(st.sampled_from(sorted(schema)))
    rule = schema[name]
    changed: Any
    if draw(st.integers(0, 5)) == 0:
        return {key: value for key, value in schema.items() if key != name}
    if name in {"items", "not", "additionalProperties"}:
        changed = draw(edits(rule))
    elif name in {"anyOf", "oneOf", "allOf", "prefixItems"}:
        at = draw(st.integers(0, len(rule) - 1))
        changed = [draw(edits(one)) if n == at else one for n, one in enumerate(rule)]
        changed += [draw(LEAVES)] if draw(st.booleans()) else []
    elif name == "properties":
        inner = draw(NAMES)
        changed = {**rule, inner: draw(edits(rule.get(inner, True)))}
    elif name in {"required", "enum"}:
        changed = rule[:-1] if draw(st.booleans()) and len(rule) > 1 else [*rule, draw(NAMES)]
        changed = list(dict.fromkeys(changed)) if name == "required" else changed
    elif isinstance(rule, int) and not isinstance(rule, bool):
        changed = max(rule + draw(st.integers(-1, 1)), 1 if name == "multipleOf" else -9)
        changed = (
            max(changed, 0) if name.startswith(("min", "max")) and not name.endswith("imum") else changed
        )
    else:
        changed = rule
    return {**schema, name: changed}


def with_definition(schema: Schema, definition: Schema) -> Schema:
    """Return a document in which #/$defs/D exists."""
    if schema is True:
        schema = {}
    return schema if schema is False else {**schema, "$defs": {"D": definition}}


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Schema, Schema]:
    """Return a writer's and a reader's schema, often alike."""
    writer = draw(SCHEMAS)
    reader = draw(SCHEMAS if draw(st.integers(0, 3)) == 0 else edits(writer))
    first, second = draw(LEAVES.filter(no_reference)), draw(LEAVES.filter(no_reference))
    loop = obj_loop(first)
    ours = draw(st.sampled_from([first, loop]))
    theirs = ours if draw(st.booleans()) else draw(st.sampled_from([second, loop]))
    return with_definition(writer, ours), with_definition(reader, theirs)


def no_reference(schema: Schema) -> bool:
    """Tell whether a schema refers to none."""
    return not (isinstance(schema, dict) and "$ref" in schema)


def obj_loop(leaf: Schema) -> Schema:
    """Return a schema that refers to itself further inside."""
    return {"type": "object", "properties": {"a": leaf, "b": {"$ref": "#/$defs/D"}}}


def closed(schema: Schema) -> Schema:
    """Return a writer's schema in which an object has no other fields than those it names."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {
        name: {field: closed(inner) for field, inner in rule.items()}
        if name in {"properties", "$defs"}
        else closed(rule)
        for name, rule in schema.items()
        if not (name == "$ref" and rule.endswith("missing"))
    }
    if "properties" in found:
        found.setdefault("additionalProperties", False)
    return found


def without_missing(schema: Schema) -> Schema:
    """Return a writer's schema without its references to nothing, which say nothing about what is written."""
    if isinstance(schema, list):
        return [without_missing(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: rule if name in {"enum", "const"} else without_missing(rule)
        for name, rule in schema.items()
        if not (name == "$ref" and rule.endswith("missing"))
    }


def lenient(schema: Schema) -> Schema:
    """Return a reader's schema in which a reference to nothing accepts nothing, as the comparison has it."""
    if isinstance(schema, list):
        return [lenient(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if str(schema.get("$ref", "")).endswith("missing"):
        return False
    return {name: lenient(rule) if name not in {"enum", "const"} else rule for name, rule in schema.items()}


SEEN: Counter[str] = Counter()


@settings(
    max_examples=5000 if LONG else 300,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
@given(pairs(), st.integers(0, 2**32))
def test_what_is_said_to_fit_is_never_refused(pair: tuple[Schema, Schema], seed: int) -> None:
    writer, reader = pair
    found = differences(writer, reader)
    SEEN["fit" if not found else "no"] += 1
    if found:
        return
    sampler = Sampler(writer, seed)
    # What a writer writes is right by its schema, and still right if nothing else than what it names is allowed.
    allowed = [Draft202012Validator(schema) for schema in (closed(writer), without_missing(writer))]
    accepted = Draft202012Validator(lenient(reader))
    for value in [sampler.value(writer) for _ in range(25)]:
        if not accepted.is_valid(value):
            assert not all(schema.is_valid(value) for schema in allowed), (writer, reader, value)
        SEEN["values"] += 1


def test_the_property_above_has_looked_at_something() -> None:
    assert SEEN["fit"] > 20 and SEEN["no"] > 10 and SEEN["values"] > 100, SEEN


@settings(max_examples=100, deadline=None)
@given(SCHEMAS)
def test_a_schema_fits_itself(schema: Schema) -> None:
    document = with_definition(schema, {"type": "string"})
    assume("missing" not in str(document))
    assert differences(document, document) == []
