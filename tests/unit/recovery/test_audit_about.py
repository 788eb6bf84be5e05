"""What an entry of the audit is about, by what it has kept."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from milepost.recovery.auditing import AuditEntry

RUN = UUID(int=1)


def entry(run: str | None = None, run_id: UUID | None = None, **parts: Any) -> AuditEntry:
    empty: dict[str, Any] = {"before": {}, "after": {}, "evidence": {}}
    return AuditEntry(
        id=UUID(int=2),
        at=datetime(2026, 12, 1, tzinfo=UTC),
        tenant="",
        actor="ann",
        kind="PERSON",
        act="x",
        outcome="DONE",
        run=run,
        run_id=run_id,
        step=None,
        reason="r",
        place=None,
        **(empty | parts),
    )


@pytest.mark.parametrize(
    ("given", "about"),
    [
        (entry("order/o-1", RUN, evidence={"letter": 9}), "order/o-1"),
        (entry(None, RUN), str(RUN)),
        (
            entry(after={"name": "robot", "grants": [{"role": "OPERATOR", "tenants": ["acme"], "sagas": None}]}),
            "robot, operator of acme",
        ),
        (entry(before={"token": "t", "name": "robot"}), "robot"),
        (
            entry(before={"id": "g", "name": "ann@example", "role": "APPROVER", "tenants": None, "sagas": ["order"]}),
            "ann@example, approver, for order",
        ),
        (entry(evidence={"letter": 9, "scope": "consumer:billing", "refused": "no"}), "letter 9"),
        (entry(evidence={"proposal": "p", "subject": "order/o-1 charge"}), "order/o-1 charge"),
        (entry(evidence={"drift": "OUTBOX_BEHIND", "what": "outbox main", "subject": "main"}), "outbox main"),
        (entry(evidence={"operation": "o", "kind": "receipt", "key": "o-1"}), "receipt/o-1"),
        (entry(after={"replay": "r", "consumer": "books", "topic": "orders"}), "books, orders"),
        (entry(evidence={"bulk": "b", "items": 3}), "bulk b"),
        (entry(evidence={"path": "/outbox", "refused": "no"}), "/outbox"),
        (entry(evidence={"refused": "{name}"}), ""),
    ],
)  # fmt: skip
def test_an_entry_says_whom_or_what_it_is_about(given: AuditEntry, about: str) -> None:
    assert given.about == about
