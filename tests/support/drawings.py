"""Reading drawings back: SVG as XML, mermaid text as nodes and arrows."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

SVG = "{http://www.w3.org/2000/svg}"
_LABEL = r'"(?P<label>[^"]*)"'
_NODE = re.compile(rf"(?P<id>\w+)(?P<open>\(\[|\[\[|\{{\{{|\(|\[){_LABEL}(?P<close>\]\)|\]\]|\}}\}}|\)|\])")
_ARROW = re.compile(rf"(?P<before>\w+) (?P<arrow>-->|-\.->)(\|{_LABEL}\|)? (?P<after>\w+)")
_FRAME = re.compile(rf"subgraph (?P<id>\w+)\[{_LABEL}\]")
_CLASS = re.compile(r"class (?P<ids>[\w,]+) (?P<name>\w+)")
_LOOK = re.compile(r"classDef \w+ [a-z0-9#:,\- ]+")
_CLOSING = {"([": "])", "[[": "]]", "{{": "}}", "(": ")", "[": "]"}


def svg_root(text: str) -> ElementTree.Element:
    """Parse an SVG file; it must be well-formed."""
    return ElementTree.fromstring(text)


def svg_boxes(text: str) -> dict[str, ElementTree.Element]:
    """Return the groups of steps, waits and undos by name; no name may be there twice."""
    found = [g for g in svg_root(text).iter(f"{SVG}g") if g.get("data-name") is not None]
    by_name = {g.get("data-name", ""): g for g in found}
    assert len(by_name) == len(found)
    return by_name


def svg_words(element: ElementTree.Element) -> list[str]:
    """Return the lines of text that are seen in an element."""
    return ["".join(text.itertext()) for text in element.iter(f"{SVG}text")]


def svg_full(element: ElementTree.Element) -> str:
    """Return what is shown of a group on pointing at it."""
    title = element.find(f"{SVG}title")
    assert title is not None
    return title.text or ""


class Mermaid:
    """A flowchart, read by a grammar that knows only what ours may contain; anything else fails.

    Attributes:
        nodes: Lines of the label by id.
        shapes: Opening bracket by id.
        arrows: (before, after, label).
        classes: By id.
        frames: Lines of the label of each subgraph.
    """

    def __init__(self, text: str) -> None:
        self.nodes: dict[str, list[str]] = {}
        self.shapes: dict[str, str] = {}
        self.arrows: list[tuple[str, str, str]] = []
        self.classes: dict[str, set[str]] = {}
        self.frames: list[list[str]] = []
        first, *lines = text.splitlines()
        assert first == "flowchart TD"
        depth = 0
        for line in map(str.strip, lines):
            depth += line.startswith("subgraph") - (line == "end")
            assert depth >= 0
            self._read(line)
        assert depth == 0
        for before, after, _ in self.arrows:
            assert {before, after} <= self.nodes.keys()
        assert self.classes.keys() <= self.nodes.keys()

    def _read(self, line: str) -> None:
        if line == "end" or _LOOK.fullmatch(line):
            return
        if node := _NODE.fullmatch(line):
            assert _CLOSING[node["open"]] == node["close"]
            assert node["id"] not in self.nodes, "an id twice"
            self.nodes[node["id"]] = _lines(node["label"])
            self.shapes[node["id"]] = node["open"]
        elif frame := _FRAME.fullmatch(line):
            assert frame["id"] not in self.nodes
            self.frames.append(_lines(frame["label"]))
        elif arrow := _ARROW.fullmatch(line):
            self.arrows.append((arrow["before"], arrow["after"], " ".join(_lines(arrow["label"] or ""))))
        else:
            classes = _CLASS.fullmatch(line)
            assert classes is not None, line
            for name in classes["ids"].split(","):
                self.classes.setdefault(name, set()).add(classes["name"])

    def named(self, name: str) -> str:
        """Return the id of the one node whose first line is the name."""
        (found,) = [each for each, lines in self.nodes.items() if lines[0] == name]
        return found


def _lines(label: str) -> list[str]:
    parts = label.split("<br/>")
    assert not any(set(re.sub(r"#\d+;", "", part)) & set("<>&#;`*\"'{}[]|\\~$") for part in parts), label
    return [re.sub(r"#(\d+);", lambda found: chr(int(found[1])), part) for part in parts]


def names_of(data: Any) -> list[str]:
    """Return the names of a drawing's nodes for machines."""
    return [node["name"] for node in data["nodes"]]
