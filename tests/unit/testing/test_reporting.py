"""What open and closed kits leave for the report of a failing test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from milepost.testing import reporting


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    """Begin and end with nothing kept."""
    reporting.forget()
    yield
    reporting.forget()


def test_open_kits_are_asked_and_closed_ones_are_not() -> None:
    with reporting.reporting(lambda: "first"), reporting.reporting(lambda: "second"):
        assert reporting.take() == "first\n\nsecond"
    assert reporting.take() == ""


def test_what_was_kept_is_told_once() -> None:
    reporting.keep("left")
    assert reporting.take() == "left"
    assert reporting.take() == ""
    reporting.keep("left")
    reporting.forget()
    assert reporting.take() == ""


def test_a_kit_that_fails_is_not_asked_again() -> None:
    def fail() -> Iterator[None]:
        with reporting.reporting(lambda: "text"):
            raise ZeroDivisionError
        yield

    with pytest.raises(ZeroDivisionError):
        next(fail())
    assert reporting.take() == ""
