"""Observations made of rows: what each query of the observers has found. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from .model import Drift, Observation


def subject_of(run: object, step: str | None, iteration: str = "") -> str:
    """Name a step of a run, or the run, as `milepost.reconciliation` has it."""
    place = f"{step}#{iteration}" if iteration else step
    return f"{run}:{place}" if place else str(run)


def _of_step(row: Mapping[str, Any], now: datetime, drift: Drift, **more: Any) -> Observation:
    place = f"{row['name']}#{row['iteration']}" if row["iteration"] else str(row["name"])
    values: dict[str, Any] = {
        "subject": subject_of(row["run_id"], row["name"], row["iteration"]),
        "label": f"{row['saga']}/{row['key']} {place}",
        "observed": f"{row['state']}/{row['generation']}/{row['fence']}",
        "state": row["state"],
        "since": row["since"],
        "step": row["name"],
        "iteration": row["iteration"],
        "row": {"fence": row["fence"], "generation": row["generation"]},
    }
    return Observation(drift=drift, now=now, **_run(row), **(values | more))


def _run(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "service": row["service"] or "",
        "tenant": row["tenant"],
        "saga": row["saga"],
        "run": row["run_id"],
        "correlation_id": row["correlation_id"] or "",
    }


def worker_lost(row: Mapping[str, Any], now: datetime) -> Observation:
    evidence = {
        "worker": str(row["worker"]),
        "process": row["process"],
        "lease_ended_at": row["since"].isoformat(),
        "attempt": row["attempt"],
        "queue": row["queue"],
    }
    return _of_step(row, now, Drift.WORKER_LOST, evidence=evidence)


def not_told(row: Mapping[str, Any], now: datetime) -> Observation:
    names = ("queue", "nudges", "workers", "under_way", "overtaken", "limited", "handed_over")
    evidence = {name: row[name] for name in names} | {"wakes_at": row["wake_at"].isoformat()}
    drift = Drift.UNDO_STOPPED if row["undo"] else Drift.NOT_TOLD
    # Each time that it is announced raises the generation: it is announced again once for all the time that it waits.
    observed = f"{row['state']}/{row['since'].isoformat()}/{row['fence']}"
    return _of_step(row, now, drift, evidence=evidence, observed=observed)


def signal_present(row: Mapping[str, Any], now: datetime) -> Observation:
    evidence = {"matched": True, "signal": str(row["signal"]), "type": row["type"]}
    return _of_step(row, now, Drift.SIGNAL_PRESENT, evidence=evidence)


def waits(row: Mapping[str, Any], now: datetime) -> Observation:
    evidence = {"type": row["type"], "overdue": row["overdue"], "until": row["wake_at"].isoformat()}
    if row["signal"] is None:
        return _of_step(row, now, Drift.WAIT_OLD, evidence=evidence, episode=str(row["generation"]))
    evidence |= {"matched": False, "signal": str(row["signal"])}
    return _of_step(row, now, Drift.SIGNAL_PRESENT, evidence=evidence, episode=str(row["signal"]))


def unknown(row: Mapping[str, Any], now: datetime) -> Observation:
    evidence = {"probes": row["probes"], "code": row["code"], "asks_at": row["wake_at"].isoformat()}
    episode = row["since"].isoformat()
    # A probe that has learned nothing raises fence and generation, and is no reason to ask a person anew.
    basis = f"{row['state']}/{episode}/{row['attempt']}"
    return _of_step(row, now, Drift.UNKNOWN, evidence=evidence, episode=episode, basis=basis)


def undo_failed(row: Mapping[str, Any], now: datetime) -> Observation:
    evidence = {"undo_of": row["undo_of"], "code": row["code"], "tries": row["attempt"]}
    episode = row["since"].isoformat()
    return _of_step(row, now, Drift.UNDO_STOPPED, evidence=evidence, episode=episode)


def undo_stopped(row: Mapping[str, Any], now: datetime) -> Observation:
    return Observation(
        drift=Drift.UNDO_STOPPED,
        subject=subject_of(row["run_id"], None),
        label=f"{row['saga']}/{row['key']}",
        observed=str(row["version"]),
        state=row["state"],
        since=row["since"],
        now=now,
        row={"version": row["version"]},
        evidence={"cause": row["cause"], "looks_at": row["wake_at"].isoformat()},
        **_run(row),
    )


def letters(row: Mapping[str, Any], now: datetime) -> Observation:
    parked = row["stage"] == "RELAY"
    return Observation(
        drift=Drift.OUTBOX_PARKED if parked else Drift.LETTER_OPEN,
        subject=f"{row['tenant']}/{row['scope']}/{row['topic']}/{row['code']}",
        label=f"{row['amount']} of {row['scope']}, topic {row['topic']}, {row['code']}, first letter {row['n']}",
        observed=f"{row['n']}/{row['attempts']}",
        state="OPEN",
        since=row["since"],
        now=now,
        tenant=row["tenant"],
        row={"n": row["n"], "id": row["letter"], "attempts": row["attempts"], "code": row["code"]},
        evidence={
            "amount": row["amount"],
            "first": row["n"],
            "code": row["code"],
            "recoverable": row["recoverable"],
        },
    )


def holds(row: Mapping[str, Any], now: datetime) -> Observation:
    key = "" if row["letters"] else f"/{row['key_hex']}"
    return Observation(
        drift=Drift.KEY_HELD,
        subject=f"{row['scope']}/{row['topic']}{key}",
        label=f"{row['amount']} held of {row['scope']}, topic {row['topic']}",
        observed=row["since"].isoformat(),
        state="HELD",
        since=row["since"],
        now=now,
        row={"scope": row["scope"], "topic": row["topic"], "key": row["key_hex"]},
        evidence={"amount": row["amount"], "letters": row["letters"], "reason": row["reason"]},
    )


def lock_left(row: Mapping[str, Any], now: datetime) -> Observation:
    saga = row["saga"]
    return Observation(
        drift=Drift.LOCK_LEFT,
        subject=f"{row['tenant']}/{row['lock']}",
        label=f"lock {row['lock']}" + (f" of {saga}/{row['key']}" if saga else ""),
        observed=f"{row['run_id']}/{row['next'] or ''}",
        state=row["state"] or "GONE",
        since=row["since"],
        now=now,
        row={"lock": row["lock"], "next": None if row["next"] is None else str(row["next"])},
        evidence={"held_by": str(row["run_id"]), "waiting": row["next"] is not None},
        **_run(row),
    )
