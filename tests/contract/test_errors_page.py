"""docs/errors.md tells the table that the code has."""

from __future__ import annotations

import re

from milepost.consumers.verdicts import BY_CLASS, BY_STATE, DOUBTFUL_OUTCOMES, TRANSIENT_STATUSES
from milepost.schemas.explain import explanation

from tests.support.house import ROOT

PAGE = (ROOT / "docs/errors.md").read_text()


def test_the_page_has_every_row_of_the_table_and_no_other() -> None:
    states = {
        row[0]: (row[1], row[2])
        for row in re.findall(r"^\| `(\w+)` \| [^|]+ \| (\w+) \| (\w+) \|$", PAGE, re.M)
    }
    assert states == dict(BY_STATE)
    classes = {
        row[0]: (row[1], row[2]) for row in re.findall(r"^\| `([\w.]+)` \| (\w+) \| (\w+) \|$", PAGE, re.M)
    }
    assert classes == dict(BY_CLASS)
    (statuses,) = re.findall(r"^\| ([\d, ]+) \| retry \| HTTP_nnn \|$", PAGE, re.M)
    assert {int(status) for status in statuses.split(", ")} == TRANSIENT_STATUSES
    (outcomes,) = re.findall(
        r"^\| 409 with `Idempotency-Outcome: (\w+)` or `(\w+)` \| unknown \| HTTP_409 \|$", PAGE, re.M
    )
    assert set(outcomes) == DOUBTFUL_OUTCOMES


def test_every_code_of_the_table_is_explained() -> None:
    codes = {code for _, code in (*BY_STATE.values(), *BY_CLASS.values())}
    assert {code for code in codes if explanation(code) is None} == set()
