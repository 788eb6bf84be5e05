"""Compares the jobs with what the provider really sent. Pure: facts in, verdict out."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from .ledger import Hook, Message
from .status import Job

Kind: TypeAlias = Literal["lost", "doubled", "wrong"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that should not be.

    Attributes:
        kind: "lost" (should have been sent and was not), "doubled" (sent once too often) or "wrong" (the two books
            disagree otherwise).
    """

    kind: Kind
    notification: str
    text: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """How many jobs ended how, how many calls and reports it took, and everything that is wrong.

    Attributes:
        ended: Jobs by the word that they ended with.
        messages: What the provider has sent.
        reports: Its genuine webhooks that were answered with 2xx, repeated ones included.
        forged: Webhooks of strangers that were refused.
    """

    jobs: int
    ended: Counter[str]
    messages: int
    reports: int
    forged: int
    findings: Sequence[Finding] = ()

    def count(self, kind: Kind) -> int:
        """Return the number of findings of a kind."""
        return sum(finding.kind == kind for finding in self.findings)


def compare(
    asked: Iterable[str], jobs: Iterable[Job], messages: Sequence[Message], hooks: Sequence[Hook]
) -> Verdict:
    """Compare jobs with the provider's ledger.

    Args:
        asked: The ids of all jobs that the service has accepted.
        jobs: How they ended.
        messages: Everything the provider has sent.
        hooks: Everything it, or a stranger, has reported.

    Returns:
        The verdict. It has no findings only if every job has come to an end, every one that ended as DELIVERED or
        BOUNCED was sent exactly once, under the id that the service has noted and with that outcome, nothing was sent
        of a failed one, and no forged webhook was taken.
    """
    wanted = dict.fromkeys(asked)
    sent: dict[str, list[Message]] = defaultdict(list)
    for message in messages:
        sent[message.tag].append(message)
    by_id = {job.id: job for job in jobs}
    findings = [finding for id in wanted for finding in _one(id, by_id.get(id), sent.pop(id, []))]
    findings += [
        Finding("doubled", message.tag, f"{message.id}: nobody asked for it")
        for left in sent.values()
        for message in left
    ]
    findings += [
        Finding("wrong", f"m-{hook.message}", f"a forged webhook was answered with {hook.answer}")
        for hook in hooks
        if hook.forged and hook.answer not in (0, 401)
    ]
    return Verdict(
        jobs=len(wanted),
        ended=Counter(job.word for id, job in by_id.items() if id in wanted),
        messages=len(messages),
        reports=sum(not hook.forged and 200 <= hook.answer < 300 for hook in hooks),
        forged=sum(hook.forged and hook.answer == 401 for hook in hooks),
        findings=tuple(findings),
    )


def _one(id: str, job: Job | None, sent: Sequence[Message]) -> list[Finding]:
    findings = [
        Finding("doubled", id, f"{message.id}: sent again, after {sent[0].id}") for message in sent[1:]
    ]
    if job is None or job.word not in ("DELIVERED", "BOUNCED", "FAILED"):
        word = "without a run" if job is None else job.word
        return [*findings, Finding("lost", id, f"not brought to an end: {word}, {len(sent)} messages sent")]
    if job.word == "FAILED":
        told = f"{job.reason}, yet the provider has sent it"
        return [*findings, *(Finding("wrong", id, f"{one.id}: {told}") for one in sent[:1])]
    if not sent:
        return [Finding("lost", id, f"{job.word}, and the provider has never sent it")]
    if job.message_id not in {message.id for message in sent}:
        findings.append(Finding("wrong", id, f"noted as {job.message_id}, sent as {sent[0].id}"))
    if sent[0].state.upper() != job.word:
        findings.append(Finding("wrong", id, f"{job.word}, and the provider says {sent[0].state}"))
    return findings
