"""Texts that the engine itself writes."""

from __future__ import annotations

import pytest
from milepost import Absent, Found
from milepost.sagas.words import bad_answer


@pytest.mark.parametrize(
    ("answer", "given"),
    [
        (None, "None"),
        (True, "an object of bool"),
        ({"card": "4242"}, "an object of dict"),
        (Absent, "the class Absent, without ()"),
        (Found, "the class Found, without ()"),
    ],
)
def test_a_probe_is_told_what_it_returned_and_what_it_may_return(answer: object, given: str) -> None:
    assert bad_answer(answer) == (
        f"the probe returned {given}; it has to return Found(...), Absent(), InProgress() or Failed(code)"
    )
