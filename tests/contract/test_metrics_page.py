"""docs/metrics.md says what is exposed, and from which age it matters."""

from __future__ import annotations

import re

from milepost.recovery.age_kinds import KINDS
from milepost.schemas.settings import parse_duration
from milepost.schemas.states import Risk
from milepost.streams.measures import CATALOG

from tests.support.house import ROOT

PAGE = (ROOT / "docs/metrics.md").read_text()


def test_the_page_has_every_metric_and_no_other() -> None:
    rows = re.findall(r"^\| `(milepost_\w+)` \| (\w+)(, seconds)? \| ([^|]+) \| ([^|]+) \|$", PAGE, re.M)
    said = {name: (kind, bool(unit), labels, words) for name, kind, unit, labels, words in rows}
    assert len(said) == len(rows)
    assert said == {
        metric.exposed: (metric.kind, bool(metric.unit), ", ".join(metric.labels) or "-", metric.words)
        for metric in CATALOG
    }


def test_the_page_has_the_table_of_ages() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ([^|]+) \|" + r" (\w+)/(\w+) \|" * 4 + "$", PAGE, re.M)
    said = {
        row[0]: (row[1], row[2], [parse_duration(text).total_seconds() for text in row[3:]]) for row in rows
    }
    assert said == {
        kind.what: (
            kind.table,
            kind.words,
            [
                seconds
                for severity in reversed(Risk)
                for seconds in (kind.bounds[severity].warning, kind.bounds[severity].error)
            ],
        )
        for kind in KINDS.values()
    }


def test_no_label_is_an_id_or_a_key_of_the_users() -> None:
    labels = {label for metric in CATALOG for label in metric.labels}
    assert not labels & {"run", "run_id", "key", "tenant", "correlation", "worker", "id", "message"}
