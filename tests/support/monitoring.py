"""What stands in deploy/prometheus and deploy/grafana, and the programs that judge it."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml
from milepost.streams import measures, metrics
from milepost.streams.metrics import exposition, setup_metrics
from prometheus_client.parser import text_string_to_metric_families

from tests.support.house import ROOT

RULES = ROOT / "deploy" / "prometheus"
BOARDS = ROOT / "deploy" / "grafana"
#: What Grafana fills in.
_FILLED = {"$__rate_interval": "5m", "$service": ".*", "$saga": ".*"}


def program(name: str) -> str:
    """Return where a program is; the test is skipped where it is missing."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(
            f"{name} is not installed: Debian has promtool in its package prometheus, kubectl from Kubernetes"
        )
    return found


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a program in the repository."""
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)


def rules_written() -> dict[str, str]:
    """Return the rules as the tables of the code have them, by file."""
    files: Callable[[], dict[str, str]] = runpy.run_path(str(ROOT / ".ci" / "deploy_rules.py"))["files"]
    return files()


def rules() -> Iterator[dict[str, Any]]:
    """Yield every rule there is."""
    for path in sorted(RULES.glob("*.rules.yml")):
        for group in yaml.safe_load(path.read_text())["groups"]:
            yield from group["rules"]


def boards() -> dict[str, dict[str, Any]]:
    """Return the dashboards by file."""
    return {path.name: json.loads(path.read_text()) for path in sorted(BOARDS.glob("*.json"))}


def expressions(board: dict[str, Any]) -> list[str]:
    """Return what a dashboard's panels ask, as Prometheus is asked."""
    found = []
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            expr = target["expr"]
            for name, value in _FILLED.items():
                expr = expr.replace(name, value)
            found.append(expr)
    return found


def names_in(expr: str) -> set[str]:
    """Return the metrics that an expression asks for; of a choice of names, each."""
    found = set(re.findall(r"\bmilepost_\w+", re.sub(r'"[^"]*"', "", expr)))
    for choice in re.findall(r'__name__=~"([^"]*)"', expr):
        whole = re.fullmatch(r"(\w*)\(([\w|]+)\)(\w*)", choice)
        assert whole is not None, choice
        found |= {whole[1] + one + whole[3] for one in whole[2].split("|")}
    return found


def exposed() -> set[str]:
    """Return the names that the endpoint exposes when each metric has a value: what Prometheus would store."""
    told = setup_metrics("shop", measures.CATALOG, endpoint=True)
    assert told is not None and told.registry is not None
    found = metrics.meters()
    assert found is not None
    try:
        for metric in measures.CATALOG:
            labels = tuple("x" for _ in metric.labels)
            if metric.kind == "counter":
                found.add(metric, labels)
            elif metric.kind == "histogram":
                found.record(metric, labels, 1.0)
            else:
                found.observe(metric, lambda labels=labels: [(1.0, labels)])  # type: ignore[misc]
        text = exposition(told.registry).decode()
    finally:
        told.close()
    return {
        sample.name
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("milepost_")
    }
