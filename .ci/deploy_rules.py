"""Writes deploy/prometheus from the tables of the code: what is told at which age, and how fast a budget may burn.

    build/venv/bin/python .ci/deploy_rules.py          # writes what has changed
    build/venv/bin/python .ci/deploy_rules.py --check  # says what differs, exit status 1

A test runs the second, and promtool over what is there.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml
from milepost.recovery.age_kinds import KINDS, Kind
from milepost.schemas.states import Risk

FOLDER = Path(__file__).resolve().parent.parent / "deploy" / "prometheus"
#: What routes an alert is how severe the workflow is: critical wakes somebody, low can wait for days.
LABEL = {severity: severity.value.lower() for severity in Risk}
#: Of the runs of a workflow, how many may end badly or stand in front of a person.
BUDGET = {Risk.CRITICAL: 0.001, Risk.HIGH: 0.005, Risk.MEDIUM: 0.01, Risk.LOW: 0.05}
#: Windows and burn rates: two per cent of a month's budget in an hour, five in six hours, ten in three days.
#: https://sre.google/workbook/alerting-on-slos/
BURNS = (("1h", "5m", 14.4, "fast"), ("6h", "30m", 6.0, "fast"), ("3d", "6h", 1.0, "slow"))
WINDOWS = ("5m", "30m", "1h", "6h", "3d")
BAD = "FAILED|EXPIRED|MANUAL_REQUIRED|COMPENSATION_FAILED"
BY = "service, saga, severity"
HEAD = "# Written by .ci/deploy_rules.py from the tables of the code; docs/metrics.md explains it.\n"

Rule = dict[str, Any]


def camel(what: str) -> str:
    """Write a name as alerts have it: "StepUnknown"."""
    return "".join(part.capitalize() for part in what.split("_"))


def alert(name: str, expr: str, severity: str, summary: str, action: str, **more: Any) -> Rule:
    """Return a rule; `wait` is for how long it must hold, `runbook` names a drift."""
    rule: Rule = {"alert": f"Milepost{name}", "expr": expr}
    if more.get("wait"):
        rule["for"] = more["wait"]
    runbook = more.get("runbook") or "docs/metrics.md"
    rule["labels"] = {"severity": severity, **more.get("labels", {})}
    rule["annotations"] = {"summary": summary, "action": action, "runbook": runbook}
    return rule


def of_age(kind: Kind) -> list[Rule]:
    """Return the alerts of one kind of row: one for each bound that differs."""
    runbook = "" if kind.runbook is None else f"recovery/runbooks/{kind.runbook.value.lower()}.md"
    whose = "{{ $labels.service }} {{ $labels.saga }}"
    summary = f"{kind.words[0].upper()}{kind.words[1:]}: the oldest for {{{{ $value | humanizeDuration }}}} ({whose})"
    found = []
    same = len(set(kind.bounds.values())) == 1
    for severity in [None] if same else list(reversed(Risk)):
        least = kind.bounds[severity or kind.severity].error
        bound = f"> {least:g}" if least == 0 else f">= {least:g}"
        chosen = f'what="{kind.what}"' + (f', severity="{severity}"' if severity else "")
        expr = f"max by (what, {BY}) (milepost_live_age_seconds{{{chosen}}}) {bound}"
        found.append(
            alert(
                camel(kind.what),
                expr,
                LABEL[severity] if severity else "{{ $labels.severity | toLower }}",
                summary,
                kind.fix,
                runbook=runbook,
                labels={"workflow": "{{ $labels.saga }}"},
            )
        )
    return found


def recorded() -> list[Rule]:
    """Return how many of the runs that ended, or came to a person, did so badly, over each window."""
    both = '{__name__=~"milepost_runs_(ended|manual)_total"'
    rules: list[Rule] = []
    for window in WINDOWS:
        bad = f'sum by ({BY}) (rate({both}, state=~"{BAD}"}}[{window}]))'
        all_of_them = f"sum by ({BY}) (rate({both}}}[{window}]))"
        rules.append({"record": f"milepost:runs_bad:ratio_rate{window}", "expr": f"{bad} / {all_of_them}"})
    return rules


def burning(severity: Risk) -> list[Rule]:
    """Return the alerts of an error budget that burns."""
    found = []
    for long, short, rate, pace in BURNS:
        limit = f"{rate * BUDGET[severity]:.6g}"
        parts = [f'milepost:runs_bad:ratio_rate{w}{{severity="{severity}"}} > {limit}' for w in (long, short)]
        found.append(
            alert(
                f"BudgetBurns{pace.capitalize()}",
                f"{parts[0]} and {parts[1]}",
                LABEL[severity],
                "{{ $labels.saga }}: {{ $value | humanizePercentage }} of its runs ended badly or came to a person "
                f"in {long}, of which {BUDGET[severity]:.1%} are allowed",
                "`milepost runs list --state FAILED --saga SAGA --since 1h`; one code again and again is one cause.",
                wait="2m" if pace == "fast" else "15m",
                labels={"pace": pace, "window": long},
            )
        )
    return found


def processes() -> list[Rule]:
    """Return the alerts about processes, consumers and rates."""
    look = "Look at its log and at /health/ready."
    return [
        alert(
            "NobodyTells",
            "absent(milepost_database_up)",
            "critical",
            "no process of Milepost tells anything",
            "See that `milepost serve` runs with MILEPOST_METRICS, and that Prometheus reaches it.",
            wait="2m",
        ),
        alert(
            "DatabaseNotSeen",
            "max by (job) (milepost_database_up) == 0",
            "critical",
            "no process sees the database",
            "See whether PostgreSQL answers; nothing is lost meanwhile.",
            wait="1m",
        ),
        alert(
            "NoWorker",
            'max by (service) (milepost_runs_live{state=~"PENDING|RUNNING"}) > 0 '
            "unless on (service) max by (service) (milepost_workers) > 0",
            "critical",
            "runs of {{ $labels.service }} are open, and no worker process holds a lease",
            "Start `milepost serve` with the role worker.",
            wait="1m",
        ),
        alert(
            "PartNotWell",
            "min by (service, part, instance) (milepost_part_well) == 0",
            "medium",
            "{{ $labels.part }} of {{ $labels.service }} on {{ $labels.instance }} makes no progress",
            look,
            wait="1m",
        ),
        alert(
            "PartGone",
            "count by (service, part) (last_over_time(milepost_part_well[1h])) "
            "unless count by (service, part) (milepost_part_well)",
            "high",
            "no process of {{ $labels.service }} runs {{ $labels.part }} any more",
            "Start one: `milepost serve` with its role. What was taken out on purpose is forgotten after an hour.",
            wait="2m",
        ),
        alert(
            "PartStuck",
            "max by (service, part, instance) (milepost_part_stuck_seconds) > 300",
            "critical",
            "{{ $labels.part }} of {{ $labels.service }} on {{ $labels.instance }} has been without progress for "
            "{{ $value | humanizeDuration }}",
            look,
        ),
        alert(
            "PartitionsRunOut",
            "min by (table) (milepost_partitions_days) < 3",
            "critical",
            "table {{ $labels.table }} has partitions for {{ $value }} days more; after that writing to it fails",
            "Run `milepost migrate` as the schema's owner; a process with the role upkeep does it daily.",
        ),
        alert(
            "ConsumerBehind",
            "sum by (service, part) (milepost_consumer_lag) > 10000",
            "medium",
            "{{ $labels.part }} of {{ $labels.service }} is {{ $value }} records behind",
            "See whether its handlers are slow or fail; more processes share its partitions.",
            wait="10m",
        ),
        alert(
            "LettersComing",
            "sum by (consumer, code) (increase(milepost_dead_letters_total[10m])) > 10",
            "high",
            "{{ $labels.consumer }} parks event after event with {{ $labels.code }}",
            "`milepost dead groups`; mend the cause, then redrive the group.",
            runbook="recovery/runbooks/letter_open.md",
        ),
        alert(
            "SameErrorAgain",
            "sum by (service, saga, step, code) (increase(milepost_step_errors_total[10m])) > 50",
            "medium",
            "{{ $labels.saga }} {{ $labels.step }} failed {{ $value }} times in ten minutes with {{ $labels.code }}",
            "See whether the other side answers; a new version of the service may have brought it.",
        ),
        alert(
            "UndoneOften",
            "sum by (service, saga) (rate(milepost_runs_compensating_total[1h])) > "
            "0.2 * sum by (service, saga) (rate(milepost_runs_started_total[1h]))",
            "medium",
            "more than a fifth of the runs of {{ $labels.saga }} are undone",
            "`milepost runs list --state COMPENSATED --saga SAGA --since 1h` says why.",
            wait="15m",
        ),
    ]


def files() -> dict[str, str]:
    """Return the text of every file by name."""
    ages = [rule for kind in KINDS.values() for rule in of_age(kind)]
    budgets = [rule for severity in reversed(Risk) for rule in burning(severity)]
    groups = {
        "ages.rules.yml": [{"name": "milepost-ages", "rules": ages}],
        "slo.rules.yml": [
            {"name": "milepost-ratios", "interval": "30s", "rules": recorded()},
            {"name": "milepost-budgets", "rules": budgets},
        ],
        "processes.rules.yml": [{"name": "milepost-processes", "rules": processes()}],
    }
    return {
        name: HEAD + yaml.safe_dump({"groups": found}, sort_keys=False, width=110)
        for name, found in groups.items()
    }


def main() -> int:
    """Write or compare."""
    found = 0
    for name, text in files().items():
        path = FOLDER / name
        if path.exists() and path.read_text() == text:
            continue
        found = 1
        if "--check" in sys.argv:
            print(f"{path} is not what the tables say; run {Path(__file__).name}")
        else:
            path.write_text(text)
    return found if "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
