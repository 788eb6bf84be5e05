"""References to artifacts: names, places, and how they are found in stored JSON."""

from __future__ import annotations

from typing import Any

import pytest
from milepost.schemas.artifacts import location_of, name_problem, place_problem, references

from tests.support.artifacts import MADE, RUN


@pytest.mark.parametrize("name", ["report.md", "a", "pages/1.html", "_x-y.z", "a" * 200])
def test_plain_names_are_taken(name: str) -> None:
    assert name_problem(name) == ""


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "a/../b",
        "/a",
        "a/",
        "a//b",
        ".hidden",
        "a/.b",
        "a b",
        "ä",
        "a\n",
        "a\\b",
        "#1",
        "a" * 201,
        7,
    ],
)
def test_names_that_are_no_plain_relative_path_are_refused(name: object) -> None:
    assert name_problem(name)


def test_each_try_has_a_folder_in_that_of_its_run() -> None:
    place = location_of("report", RUN, "write", iteration="", fence=3, name="pages/1.html")
    assert place == f"report/{RUN}/write/3/pages/1.html"
    assert location_of("report", RUN, "fix", iteration="2", fence=1, name="x") == f"report/{RUN}/fix@2/1/x"


def test_references_are_found_wherever_they_stand_in_a_result() -> None:
    plain = MADE.model_dump(mode="json")
    other = {**plain, "name": "b"}
    stored: Any = {"one": plain, "many": [other, {"deep": plain}], "words": 3, "none": None}
    assert [found.name for found in references(stored)] == ["report.md", "b", "report.md"]
    assert list(references(plain)) == [MADE]
    assert list(references({**plain, "more": 1})) == [], "an object of somebody else's"
    assert list(references({**plain, "sha256": "no hash"})) == []
    assert list(references(None)) == list(references("text")) == []


@pytest.mark.parametrize("url", ["file:///var/lib/shop", "s3://bucket", "s3://bucket/a/b"])
def test_folders_and_buckets_are_places(url: str) -> None:
    assert place_problem(url) == ""


@pytest.mark.parametrize(
    "url",
    [
        "/var/lib",
        "file://host/x",
        "file:///",
        "file:x",
        "s3://",
        "s3://key:secret@bucket",
        "s3://b/x?endpoint=y",
        "gs://b",
    ],
)
def test_what_is_no_place_is_refused_with_a_reason(url: str) -> None:
    assert place_problem(url)
