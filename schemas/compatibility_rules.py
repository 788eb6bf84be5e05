"""What each kind of JSON value is checked for when two schemas are compared; pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeAlias

from .finding import Finding

Schema: TypeAlias = Mapping[str, Any] | bool
Compare: TypeAlias = Callable[[Schema, Schema, str], list[Finding]]
Target: TypeAlias = Callable[[str], Schema]

#: Keywords by the kind of value that they speak about.
KINDS: Mapping[str, frozenset[str]] = {
    "null": frozenset(),
    "boolean": frozenset(),
    "integer": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}),
    "number": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}),
    "string": frozenset({"minLength", "maxLength", "pattern", "format"}),
    "array": frozenset({"items", "prefixItems", "minItems", "maxItems", "uniqueItems"}),
    "object": frozenset({"properties", "required", "additionalProperties", "minProperties", "maxProperties"}),
}
#: An integer is a number too.
_WITHOUT_INTEGER = tuple(kind for kind in KINDS if kind != "integer")


def kinds_of(schema: Schema) -> Sequence[str]:
    """Return the kinds of value that a schema's type allows."""
    if not isinstance(schema, Mapping) or "type" not in schema:
        return _WITHOUT_INTEGER
    found = schema["type"]
    return [found] if isinstance(found, str) else list(found)


def of_kind(schema: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return a schema narrowed to one of its kinds."""
    return {**schema, "type": kind}


def kind_findings(
    compare: Compare, kind: str, w: Mapping[str, Any], r: Mapping[str, Any], path: str
) -> list[Finding]:
    """Return what a value of one kind may be refused for.

    Args:
        compare: Compares schemas of what is inside.
    """
    if kind in {"integer", "number"}:
        return _numbers(kind, w, r, path)
    if kind == "string":
        return _texts(w, r, path)
    if kind == "array":
        return _arrays(compare, w, r, path)
    return _objects(compare, w, r, path) if kind == "object" else []


def _rule(path: str, reason: str) -> Finding:
    return Finding("NARROWER_RULE", path, reason)


def _numbers(kind: str, w: Mapping[str, Any], r: Mapping[str, Any], path: str) -> list[Finding]:
    found = []
    if not _bound_holds(w, r, "minimum", "exclusiveMinimum", 1):
        found.append(_rule(path, f"smaller numbers may be written than are accepted ({_said(r, 'inimum')})"))
    if not _bound_holds(w, r, "maximum", "exclusiveMaximum", -1):
        found.append(_rule(path, f"larger numbers may be written than are accepted ({_said(r, 'aximum')})"))
    if "multipleOf" in r:
        step = (
            Fraction(str(w["multipleOf"]))
            if "multipleOf" in w
            else Fraction(1)
            if kind == "integer"
            else None
        )
        if step is None or (step / Fraction(str(r["multipleOf"]))).denominator != 1:
            found.append(_rule(path, f"only multiples of {r['multipleOf']} are accepted"))
    return found


def _said(r: Mapping[str, Any], end: str) -> str:
    return ", ".join(f"{name} {value}" for name, value in r.items() if name.endswith(end))


def _bound_holds(w: Mapping[str, Any], r: Mapping[str, Any], closed: str, opened: str, sign: int) -> bool:
    """Tell whether every number beyond the writer's bound is beyond the reader's; sign -1 turns maxima around."""
    wanted = _tightest(r, closed, opened, sign)
    given = _tightest(w, closed, opened, sign)
    return wanted is None or (given is not None and given >= wanted)


def _tightest(schema: Mapping[str, Any], closed: str, opened: str, sign: int) -> tuple[Fraction, bool] | None:
    bounds = []
    if closed in schema:
        bounds.append((sign * Fraction(str(schema[closed])), False))
    if opened in schema:
        bounds.append((sign * Fraction(str(schema[opened])), True))
    return max(bounds, default=None)


def _lengths(w: Mapping[str, Any], r: Mapping[str, Any], path: str, what: str) -> list[Finding]:
    found, (least, most) = [], (f"min{what}", f"max{what}")
    what = {"Length": "characters", "Items": "items"}[what]
    if w.get(least, 0) < r.get(least, 0):
        found.append(_rule(path, f"fewer {what} than {r[least]} may be written"))
    if most in r and (most not in w or w[most] > r[most]):
        found.append(_rule(path, f"more {what} than {r[most]} may be written"))
    return found


def _texts(w: Mapping[str, Any], r: Mapping[str, Any], path: str) -> list[Finding]:
    found = _lengths(w, r, path, "Length")
    for name in ("pattern", "format"):
        if name in r and w.get(name) != r[name]:
            found.append(_rule(path, f"only text of the {name} {r[name]} is accepted"))
    return found


def _arrays(compare: Compare, w: Mapping[str, Any], r: Mapping[str, Any], path: str) -> list[Finding]:
    found = _lengths(w, r, path, "Items")
    if r.get("uniqueItems") and not w.get("uniqueItems"):
        found.append(_rule(path, "an item may be written twice"))
    ours, theirs = w.get("prefixItems", []), r.get("prefixItems", [])
    most = w.get("maxItems")
    places = max(len(ours), len(theirs))
    for n in range(places if most is None else min(places, most)):
        one = ours[n] if n < len(ours) else w.get("items", True)
        other = theirs[n] if n < len(theirs) else r.get("items", True)
        found += compare(one, other, f"{path}[{n}]")
    if most is None or most > places:
        found += compare(w.get("items", True), r.get("items", True), f"{path}[]")
    return found


def _objects(compare: Compare, w: Mapping[str, Any], r: Mapping[str, Any], path: str) -> list[Finding]:
    fields, others = w.get("properties", {}), _others_of(w)
    found = [
        Finding(
            "MISSING_FIELD",
            _field(path, name),
            "it may be left out, and is required" if name in fields else "it is not written, and is required",
        )
        for name in r.get("required", ())
        if name not in w.get("required", ())
    ]
    accepted, rest = r.get("properties", {}), r.get("additionalProperties", True)
    for name, inner in fields.items():
        place = _field(path, name)
        if name in accepted:
            found += compare(inner, accepted[name], place)
        elif rest is False and inner is not False:
            found.append(
                Finding("FORBIDDEN_FIELD", place, "it may be written, and no other fields are accepted")
            )
        else:
            found += compare(inner, rest, place)
    if others is not False:
        for name, inner in accepted.items():
            if name not in fields:
                found += compare(others, inner, _field(path, name))
        found += compare(others, rest, _field(path, "*"))
    return found + _counts(w, r, path, others)


def _counts(w: Mapping[str, Any], r: Mapping[str, Any], path: str, others: Schema) -> list[Finding]:
    least = max(w.get("minProperties", 0), len(set(w.get("required", ()))))
    most = w.get("maxProperties", len(w.get("properties", {})) if others is False else None)
    found = []
    if r.get("minProperties", 0) > least:
        found.append(_rule(path, f"fewer fields than {r['minProperties']} may be written"))
    if "maxProperties" in r and (most is None or most > r["maxProperties"]):
        found.append(_rule(path, f"more fields than {r['maxProperties']} may be written"))
    return found


def _others_of(w: Mapping[str, Any]) -> Schema:
    """Return what a writer may put into fields that it does not name: nothing, unless it says so."""
    if "patternProperties" in w:
        return True
    found: Schema = w.get("additionalProperties", "properties" not in w)
    return found


def _field(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def accepts(value: Any, r: Schema, target: Target, depth: int = 0) -> bool | None:
    """Tell whether a schema accepts a value; None when that is not worked out here.

    Args:
        target: Returns what a reference points to.
    """
    if isinstance(r, bool):
        return r
    if depth > 20 or isinstance(value, dict | list):
        return None if r else True
    answers: list[bool | None] = [_value_rule(value, name, rule, r) for name, rule in r.items()]
    inner = [accepts(value, part, target, depth + 1) for part in r.get("allOf", ())]
    if "$ref" in r:
        inner.append(accepts(value, target(r["$ref"]), target, depth + 1))
    for shape in ("anyOf", "oneOf"):
        if shape in r:
            branches = [accepts(value, part, target, depth + 1) for part in r[shape]]
            inner.append(_any(branches) if shape == "anyOf" else _one(branches))
    answers += inner
    return False if False in answers else None if None in answers else True


def _any(branches: Sequence[bool | None]) -> bool | None:
    return True if True in branches else None if None in branches else False


def _one(branches: Sequence[bool | None]) -> bool | None:
    return None if None in branches else branches.count(True) == 1


_HARMLESS = frozenset(
    {
        *("$ref", "allOf", "anyOf", "oneOf", "$defs", "$schema", "$id", "title", "description", "default"),
        *("examples", "deprecated", "discriminator", "readOnly", "writeOnly"),
    }
)


def _value_rule(value: Any, name: str, rule: Any, r: Mapping[str, Any]) -> bool | None:
    kind = _kind_of(value)
    if name == "type":
        return kind in kinds_of(r) or (kind == "integer" and "number" in kinds_of(r))
    if name == "const":
        return _equal(value, rule)
    if name == "enum":
        return any(_equal(value, one) for one in rule)
    if name in _HARMLESS or name.startswith("x-"):
        return True
    if any(name in rules for rules in KINDS.values()) and name not in KINDS[kind]:
        return True
    checks: Mapping[str, Callable[[], bool]] = {
        "minimum": lambda: value >= rule,
        "maximum": lambda: value <= rule,
        "exclusiveMinimum": lambda: value > rule,
        "exclusiveMaximum": lambda: value < rule,
        "minLength": lambda: len(value) >= rule,
        "maxLength": lambda: len(value) <= rule,
    }
    return checks[name]() if name in checks else None


def _kind_of(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return "integer"
    return "number" if isinstance(value, float) else "string"


def _equal(one: object, other: object) -> bool:
    """JSON's equality: 1 and 1.0 are one number, 1 and true are not."""
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def never_both(w: Schema, other: Schema) -> bool:
    """Tell whether no value of the writer fits an alternative: by kind, or by a field that tells them apart."""
    if not isinstance(w, Mapping) or not isinstance(other, Mapping):
        return other is False or w is False
    ours, theirs = ({kind.replace("integer", "number") for kind in kinds_of(one)} for one in (w, other))
    if not ours & theirs:
        return True
    if ours != {"object"}:
        return False
    fields, accepted = w.get("properties", {}), other.get("properties", {})
    return any(
        name in fields
        and name in accepted
        and (mine := _values_of(fields[name])) is not None
        and (others := _values_of(accepted[name])) is not None
        and not any(_equal(one, two) for one in mine for two in others)
        for name in w.get("required", ())
    )


def _values_of(schema: Schema) -> Sequence[Any] | None:
    if not isinstance(schema, Mapping):
        return None
    if "const" in schema:
        return [schema["const"]]
    found = schema.get("enum")
    return found if isinstance(found, list) else None
