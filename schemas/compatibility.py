"""Whether everything that one JSON Schema lets somebody write is accepted by another; pure.

A proof, not a guess: no finding means that no reader of the second schema refuses what a writer of the first one
writes. What cannot be shown is a finding too (UNPROVEN), so that a wrong alarm is possible and a wrong silence is not.

A writer's object has the fields that its schema names and no others, unless the schema says additionalProperties; what
it may add in a later version is compared when it does.

Source: JSON Schema 2020-12, https://json-schema.org/draft/2020-12
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from .compatibility_rules import KINDS, accepts, kind_findings, kinds_of, never_both, of_kind
from .finding import Finding

Schema: TypeAlias = Mapping[str, Any] | bool

#: What says nothing about which values are allowed.
_NOTES = frozenset(
    {
        *("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"),
        *("$schema", "$id", "$defs", "definitions", "$comment", "$anchor", "discriminator"),
        *("contentMediaType", "contentEncoding"),
    }
)
_REF, _DEFS = re.compile(r'"\$ref": "([^"]*)"'), "#/$defs/"
#: What is taken apart here.
_SHAPES = frozenset({"$ref", "allOf", "anyOf", "oneOf", "type", "enum", "const"})


def differences(writer: Schema, reader: Schema) -> list[Finding]:
    """Return what the writer may write and the reader may refuse, by path; nothing when that cannot happen.

    Args:
        writer: Schema of what is written.
        reader: Schema of what is read.
    """
    return _Comparison(writer, reader).compare(writer, reader, "")


@dataclass(slots=True)
class _Comparison:
    """One comparison.

    Attributes:
        under_way: Pairs being compared, with the path where: a schema that refers to itself holds for what is deeper
            inside if it holds on the way down, and says nothing where nothing lies between.
    """

    writer: Schema
    reader: Schema
    under_way: dict[tuple[str, str], str] = field(default_factory=dict)

    def compare(self, w: Schema, r: Schema, path: str) -> list[Finding]:
        """Return why something of `w` may be refused by `r`."""
        if r is True or w is False or (isinstance(r, Mapping) and not rules_of(r)):
            return []
        if r is False:
            return [Finding("FORBIDDEN_FIELD", path, "nothing is accepted here")]
        pair = (_text(w), _text(r))
        if pair in self.under_way:
            deeper = self.under_way[pair] != path
            return [] if deeper else [Finding("UNPROVEN", path, "the schema refers to itself without an end")]
        if pair[0] == pair[1] and self._means_the_same(pair[0]):
            return []
        self.under_way[pair] = path
        try:
            return self._split(w, r, path)
        finally:
            del self.under_way[pair]

    def _means_the_same(self, text: str) -> bool:
        """Tell whether a schema that is written the same in both documents also refers to the same, which is there."""
        definitions = _definitions(self.writer)
        names = self.writer.get("$defs", {}) if isinstance(self.writer, Mapping) else {}
        refs = _REF.findall(text + definitions)
        known = all(ref.startswith(_DEFS) and ref.removeprefix(_DEFS) in names for ref in refs)
        return known and definitions == _definitions(self.reader)

    def _split(self, w: Schema, r: Mapping[str, Any], path: str) -> list[Finding]:
        """Take the writer's schema apart until it is of one kind, each part against the whole reader."""
        if not isinstance(w, Mapping):
            w = {}
        if "$ref" in w:
            return self._any_conjunct([self.written(w["$ref"]), _without(w, "$ref")], r, path)
        if "allOf" in w:
            return self._any_conjunct([*w["allOf"], _without(w, "allOf")], r, path)
        for shape in ("anyOf", "oneOf"):
            if shape in w:
                return self._alternatives(w, shape, r, path)
        if "const" in w or "enum" in w:
            values = [w["const"]] if "const" in w else w["enum"]
            return self._values(values, r, path)
        kinds = kinds_of(w)
        if len(kinds) > 1:
            return [one for kind in kinds for one in self.compare(of_kind(w, kind), r, path)]
        return self._read(w, kinds[0], r, path)

    def _any_conjunct(self, parts: Sequence[Schema], r: Mapping[str, Any], path: str) -> list[Finding]:
        """A value fulfils all parts: it is enough that one of them is accepted."""
        said = [part for part in parts if not isinstance(part, Mapping) or rules_of(part)]
        found = [self.compare(part, r, path) for part in said] or [self.compare({}, r, path)]
        return [] if any(not findings for findings in found) else found[0]

    def _alternatives(
        self, w: Mapping[str, Any], shape: str, r: Mapping[str, Any], path: str
    ) -> list[Finding]:
        rest = _without(w, shape)
        found = [one for branch in w[shape] for one in self.compare(branch, r, path)]
        if found and rules_of(rest) and not self.compare(rest, r, path):
            return []
        return list(dict.fromkeys(found))

    def _values(self, values: Sequence[Any], r: Mapping[str, Any], path: str) -> list[Finding]:
        refused = [value for value in values if accepts(value, r, self.accepted) is not True]
        if not refused:
            return []
        shown = ", ".join(json.dumps(value, ensure_ascii=False) for value in refused[:5])
        return [Finding("NARROWER_TYPE", path, f"{shown} may be written and is not accepted")]

    def _read(self, w: Mapping[str, Any], kind: str, r: Mapping[str, Any], path: str) -> list[Finding]:
        """Compare a writer's schema of one kind with everything that the reader's says."""
        found: list[Finding] = []
        if "$ref" in r:
            found += self.compare(w, self.accepted(r["$ref"]), path)
        for part in r.get("allOf", ()):
            found += self.compare(w, part, path)
        if "anyOf" in r:
            found += self._one_of_many(w, kind, r["anyOf"], path)
        if "oneOf" in r:
            found += self._exactly_one(w, kind, r["oneOf"], path)
        if "enum" in r or "const" in r:
            found.append(
                Finding("NARROWER_TYPE", path, "only some values are accepted, and any may be written")
            )
        if kind not in kinds_of(r) and not (kind == "integer" and "number" in kinds_of(r)):
            accepted = " or ".join(kinds_of(r))
            return [
                *found,
                Finding("NARROWER_TYPE", path, f"{kind} may be written, and {accepted} is accepted"),
            ]
        found += kind_findings(self.compare, kind, w, r, path)
        return found + self._unknown(kind, w, r, path)

    def _one_of_many(
        self, w: Mapping[str, Any], kind: str, branches: Sequence[Schema], path: str
    ) -> list[Finding]:
        found = [self.compare(w, branch, path) for branch in branches]
        if any(not findings for findings in found):
            return []
        near = [
            findings
            for branch, findings in zip(branches, found, strict=True)
            if kind in kinds_of(_followed(branch, self.accepted))
        ]
        return (
            near[0]
            if near
            else [Finding("NARROWER_TYPE", path, f"{kind} may be written and is not accepted")]
        )

    def _exactly_one(
        self, w: Mapping[str, Any], kind: str, branches: Sequence[Schema], path: str
    ) -> list[Finding]:
        found = self._one_of_many(w, kind, branches, path)
        if found:
            return found
        for n, branch in enumerate(branches):
            others = [other for m, other in enumerate(branches) if m != n]
            if not self.compare(w, branch, path) and all(
                never_both(_with_fields(w, self.written), _with_fields(other, self.accepted))
                for other in others
            ):
                return []
        return [Finding("UNPROVEN", path, "more than one alternative of oneOf may fit, and exactly one must")]

    def _unknown(self, kind: str, w: Mapping[str, Any], r: Mapping[str, Any], path: str) -> list[Finding]:
        known = _NOTES | _SHAPES | {name for rules in KINDS.values() for name in rules}
        return [
            Finding("UNPROVEN", path, f"{name} of the reader is not understood here")
            for name, value in r.items()
            if not (name in known or name.startswith("x-") or _same_without_references(w.get(name), value))
        ]

    def written(self, ref: str) -> Schema:
        """Return what a reference of the writer points to; anything where it points to nothing."""
        return _target(self.writer, ref, missing=True)

    def accepted(self, ref: str) -> Schema:
        """Return what a reference of the reader points to; nothing is accepted where it points to nothing."""
        return _target(self.reader, ref, missing=False)


def _target(root: Schema, ref: str, *, missing: bool) -> Schema:
    found: Any = root
    parts = ref.split("/")
    if parts[0] != "#":
        return missing
    for part in parts[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(found, Mapping) or name not in found:
            return missing
        found = found[name]
    result: Schema = found
    return result


def _followed(schema: Schema, target: Callable[[str], Schema]) -> Schema:
    """Return a schema with its outermost references followed; what stands beside one is left out."""
    for _ in range(20):
        if not (isinstance(schema, Mapping) and "$ref" in schema):
            return schema
        schema = target(schema["$ref"])
    return True


def _with_fields(schema: Schema, target: Callable[[str], Schema]) -> Schema:
    """Return a schema, and the schemas of its fields, with references followed."""
    schema = _followed(schema, target)
    if not isinstance(schema, Mapping) or not isinstance(schema.get("properties"), Mapping):
        return schema
    fields = {name: _followed(inner, target) for name, inner in schema["properties"].items()}
    return {**schema, "properties": fields}


def _same_without_references(one: object, other: object) -> bool:
    return one == other and "$ref" not in _text(other)


def rules_of(schema: Mapping[str, Any]) -> list[str]:
    """Return the keywords of a schema that restrict anything."""
    return [name for name in schema if name not in _NOTES and not name.startswith("x-")]


def _without(schema: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key != name}


def _text(schema: object) -> str:
    return json.dumps(schema, sort_keys=True)


def _definitions(schema: Schema) -> str:
    return _text(schema.get("$defs")) if isinstance(schema, Mapping) else ""
