"""What operators are told of webhooks, operations and requests. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

from .findings import Check, Group, counted
from .output import span


def judge_records(groups: Sequence[Group]) -> Iterator[Check]:
    """See which webhooks failed or wait too long, and of which operations nobody knows the outcome.

    Args:
        groups: Named "failed", "waiting" and "unknown"; without rows where all is well.
    """
    found = {group.what: group for group in groups if group.amount}
    if (group := found.get("failed")) is not None:
        yield Check(
            "webhooks",
            "warning",
            f"{counted(group.amount, 'webhook')} FAILED (oldest {group.first}, {span(group.oldest)}): what they mean "
            "was not done.",
            "MP458",
            "`milepost webhooks list --state FAILED` says why; mend that, then `milepost webhooks redrive`.",
        )
    if (group := found.get("waiting")) is not None:
        yield Check(
            "webhooks",
            "error",
            f"{counted(group.amount, 'webhook')} should have been worked on, the oldest ({group.first}) "
            f"{span(group.oldest)} ago. No process works on them.",
            "MP457",
            "Start `milepost serve` with the role signals for the application that declares service.webhook(...).",
        )
    if "failed" not in found and "waiting" not in found:
        yield Check("webhooks", "ok", "no webhook waits or has failed")
    if (group := found.get("unknown")) is not None:
        yield Check(
            "operations",
            "warning",
            f"of {counted(group.amount, 'operation')} nobody knows the outcome (oldest {group.first}, "
            f"{span(group.oldest)}).",
            "MP467",
            "`milepost operations list --unknown`; look at the other side, then `milepost operations settle`.",
        )
    else:
        yield Check("operations", "ok", "the outcome of every operation is known")


def judge_requests(old: Group) -> Check:
    """See whether somebody carries out what persons have asked for.

    Args:
        old: Requests that have been open for longer than any orchestrator needs.
    """
    if not old.amount:
        return Check("requests", "ok", "everything that was asked for is answered")
    return Check(
        "requests",
        "error",
        f"{counted(old.amount, 'request')} of persons (oldest for {old.first}, {span(old.oldest)}) have no answer: no "
        "process with their saga's version carries requests out.",
        "MP619",
        "Start `milepost serve` with the role orchestrator, and with that version, for their service.",
    )


#: How long an entry of the audit may wait for its place in the chain.
_UNSEALED = timedelta(minutes=5)


def judge_unsealed(amount: int, oldest: timedelta | None) -> Check:
    """Judge what waits for its place in the audit's chain, where nobody but its permissions protects it yet."""
    if oldest is None or oldest < _UNSEALED:
        return Check("audit", "ok", f"{amount} entries wait for their place in the audit's chain")
    return Check(
        "audit",
        "warning",
        f"{amount} entries of the audit (oldest {span(oldest)}) have no place in its chain yet: no process seals it.",
        "MP675",
        "Start `milepost serve` with the role upkeep for this database.",
    )
