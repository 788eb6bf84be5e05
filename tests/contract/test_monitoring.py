"""Alert rules and dashboards: what they ask for is there, and Prometheus's own tool finds no fault with them."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from milepost.recovery.age_kinds import KINDS
from milepost.recovery.model import Drift
from milepost.schemas.states import Risk

from tests.support.house import ROOT
from tests.support.monitoring import (
    RULES,
    boards,
    exposed,
    expressions,
    names_in,
    program,
    rules,
    rules_written,
    run,
)

SCHEMA = json.loads((ROOT / "tests/support/grafana.schema.json").read_text())
RUNBOOKS = ROOT / "recovery" / "runbooks"
dashboards = pytest.mark.parametrize("board", boards().values(), ids=list(boards()))


def test_rules_are_what_the_tables_say() -> None:
    written = rules_written()
    assert written.keys() == {path.name for path in RULES.glob("*.rules.yml")}
    for name, text in written.items():
        assert (RULES / name).read_text() == text, f"run .ci/deploy_rules.py: {name} differs"


def test_prometheus_finds_no_fault_with_the_rules_and_the_configuration() -> None:
    promtool = program("promtool")
    config = run(promtool, "check", "config", str(RULES / "prometheus.yml"))
    assert config.returncode == 0, config.stdout + config.stderr


def test_alerts_ring_when_they_should() -> None:
    tested = run(program("promtool"), "test", "rules", str(RULES / "rules.test.yml"))
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_every_kind_rings_at_its_bound_and_says_what_to_do() -> None:
    alerts = [rule for rule in rules() if "alert" in rule]
    for kind in KINDS.values():
        mine = [rule for rule in alerts if f'what="{kind.what}"' in rule["expr"]]
        asked = {rule["expr"].rpartition("=")[2].rpartition(">")[2].strip() for rule in mine}
        assert asked == {f"{bounds.error:g}" for bounds in kind.bounds.values()}, kind.what
    for rule in alerts:
        severity, told = rule["labels"]["severity"], rule["annotations"]
        assert severity in {risk.value.lower() for risk in Risk} | {"{{ $labels.severity | toLower }}"}
        assert told["summary"] and told["action"]
        runbook = Path(told["runbook"])
        drifts = {RUNBOOKS.relative_to(ROOT) / f"{drift.value.lower()}.md" for drift in Drift}
        assert runbook in drifts or (ROOT / runbook).exists(), runbook
        if RUNBOOKS.exists():
            assert (ROOT / runbook).exists(), runbook


def test_rules_ask_only_for_what_is_exposed() -> None:
    known = exposed() | {rule["record"] for rule in rules() if "record" in rule}
    for rule in rules():
        asked = {name for name in names_in(rule["expr"]) if not rule["expr"].startswith("milepost:")}
        assert asked <= known, asked - known
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    for rule in rules():
        for word in rule["expr"].split():
            if word.startswith("milepost:"):
                assert word.partition("{")[0] in recorded


@dashboards
def test_a_dashboard_is_one_for_grafana(board: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator(SCHEMA).validate(board)
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))
    for one, other in combinations([panel["gridPos"] for panel in board["panels"]], 2):
        apart = (
            one["x"] + one["w"] <= other["x"]
            or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"]
            or other["y"] + other["h"] <= one["y"]
        )
        assert apart, (one, other)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in board["panels"])


def test_dashboards_have_names_of_their_own() -> None:
    found = boards().values()
    assert {board["uid"] for board in found} == {
        f"milepost-{name}" for name in ("overview", "sagas", "flow", "recovery")
    }
    assert len({board["title"] for board in found}) == len(found)


def test_panels_ask_only_for_what_is_exposed_and_together_for_all_of_it() -> None:
    known, asked = exposed(), set[str]()
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    for name, board in boards().items():
        for expr in expressions(board):
            if expr.startswith("milepost:"):
                assert expr.partition("{")[0] in recorded, (name, expr)
                continue
            assert names_in(expr) <= known, (name, expr)
            asked |= names_in(expr)
    left = {name for name in known if name.removesuffix("_created") == name} - asked
    assert not {name for name in left if not name.endswith(("_bucket", "_sum", "_count"))}, left


@dashboards
def test_prometheus_understands_every_panel(board: dict[str, Any], tmp_path: Path) -> None:
    promtool, path = program("promtool"), tmp_path / "panels.yml"
    asked = [{"record": f"panel_{n}", "expr": expr} for n, expr in enumerate(expressions(board))]
    path.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": asked}]}))
    checked = run(promtool, "check", "rules", str(path))
    assert checked.returncode == 0, checked.stdout + checked.stderr
