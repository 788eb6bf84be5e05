"""One saga per way in which a step or wait can behave, and every kind of fact."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import Any

from milepost.sagas import questions
from milepost.sagas.definition import Definition
from milepost.sagas.facts import (
    Act,
    ChildSeen,
    Claim,
    Fact,
    HandedBack,
    Limited,
    ProbeAbsent,
    Probed,
    ProbeError,
    ProbeFailed,
    ProbeFound,
    ProbeInProgress,
    Replied,
    Signalled,
    Stale,
    Start,
    Succeeded,
    TryFailed,
    Verdict,
    Wake,
)
from milepost.sagas.model import Step
from milepost.sagas.shapes import all_of
from milepost.schemas.options import Found, OnFailure, OnReject, OnTimeout, Probe, Repeat, Retry, Then
from milepost.schemas.states import Risk, StepKind

from tests.support.sagas import (
    HOUR,
    NOW,
    OTHER,
    Delivered,
    add_step,
    add_tx,
    flow,
    new_saga,
)


def definitions() -> Iterator[tuple[str, Definition]]:
    """One saga per way in which a step or wait can behave, each with something before and after it."""
    for repeat, undo, then in itertools.product(
        Repeat, ("none", "plain", "blind"), (Then.COMPENSATE, Then.FAIL, Then.PERSON)
    ):
        saga = new_saga()
        add_step(saga, "before", undo=True, undo_retry=Retry(attempts=2), retry=Retry(attempts=1))
        add_step(
            saga,
            "it",
            repeat,
            undo=undo == "plain",
            blind=undo == "blind",
            probe=repeat is Repeat.ASK_FIRST,
            on_failure=then,  # type: ignore[arg-type]
            no_undo="nothing to undo" if undo == "none" else None,
            retry=Retry(attempts=2, within=None),
            undo_retry=Retry(attempts=2),
        )
        add_step(saga, "after", retry=Retry(attempts=1))
        yield f"{repeat.name}-{undo}-{then.name}", flow(saga)
    yield from _special()
    for policy in (Then.RECONCILE, Then.RETRY, Then.CANCEL, Then.COMPENSATE, Then.CONTINUE, Then.PERSON):
        for last in (False, True):
            yield f"wait-{policy.name}-{last}", _wait(policy, last)


def _special() -> Iterator[tuple[str, Definition]]:
    saga = new_saga()
    add_step(saga, "it", irreversible=True, retry=Retry(attempts=2))
    yield "irreversible", flow(saga)
    saga = new_saga()
    add_step(saga, "it", probe=True, undo=True, retry=Retry(attempts=2))
    yield "safe-probe", flow(saga)
    saga = new_saga()
    add_step(saga, "before", undo=True)
    add_tx(saga, "it", retry=Retry(attempts=2))
    yield "tx", flow(saga)
    saga = new_saga()
    add_step(saga, "before", irreversible=True)
    add_step(saga, "it", on_failure=Then.RETRY, retry=Retry(attempts=1))
    yield "forward", flow(saga)
    for risk, detached in ((Risk.HIGH, False), (Risk.CRITICAL, True)):
        saga = new_saga()
        add_step(saga, "before", undo=True, undo_retry=Retry(attempts=1))
        add_step(saga, "it", undo=True, undo_retry=Retry(attempts=2), risk=risk, detached=detached)
        add_step(saga, "after", retry=Retry(attempts=1))
        yield f"undo-{risk}", flow(saga)
    policies: tuple[tuple[OnReject, OnTimeout], ...] = (
        (Then.COMPENSATE, Then.PERSON),
        (Then.FAIL, Then.RETRY),
        (Then.CONTINUE, Then.CANCEL),
        (Then.COMPENSATE, Then.CONTINUE),
        (Then.FAIL, Then.COMPENSATE),
    )
    for reject, expiry in policies:
        saga = new_saga()
        add_step(saga, "before", undo=True)
        add_approval(saga, "it", on_reject=reject, on_expiry=expiry, quorum=2 if expiry is Then.PERSON else 1)
        add_step(saga, "after", retry=Retry(attempts=1), on_failure=Then.PERSON)
        yield f"approval-{reject.name}-{expiry.name}", flow(saga)


def add_approval(
    saga: Any,
    name: str,
    *,
    on_reject: OnReject = Then.COMPENSATE,
    on_expiry: OnTimeout = Then.PERSON,
    quorum: int = 1,
    risk: Risk = Risk.HIGH,
    params: Any = None,
) -> Any:
    """Add an approval by the role "boss" that stands for an hour."""
    return saga.approval(
        name,
        roles=frozenset({"boss"}),
        expires=HOUR,
        on_reject=on_reject,
        on_expiry=on_expiry,
        quorum=quorum,
        risk=risk,
        params=params,
    )


def answers(step: Step) -> list[Fact]:
    """What persons may say to the question of a row: two who approve, one who rejects, and who saw something else."""
    question = questions.read(step)
    if question is None:
        return [Act("approve", "ann", "because", step.name, iteration=step.iteration)]
    seen: dict[str, Any] = {
        "generation": question.generation,
        "hash": question.hash,
        "iteration": step.iteration,
    }
    say = partial(Act, reason="because", step=step.name, roles=frozenset({"boss"}))
    return [
        say("approve", "ann", **seen),
        say("approve", "bob", **seen),
        say("reject", "cid", **seen),
        say("approve", "dora", **{**seen, "generation": question.generation - 1}),
        say("approve", "eve", **{**seen, "hash": "00"}),
    ]


def _wait(policy: OnTimeout, last: bool) -> Definition:
    saga = new_saga()
    add_step(saga, "before", undo=True)
    wait = saga.wait("it", Delivered, match=lambda v: v.input.id, timeout=HOUR, on_timeout=policy)
    if policy is Then.RECONCILE:

        @wait.probe
        async def ask(ctx: Any) -> Probe[Delivered]:
            return Found(Delivered(id="x"))

    saga.wait("again", Delivered, match=lambda v: v.input.id, timeout=HOUR, on_timeout=Then.PERSON)
    if not last:
        add_step(saga, "after", on_failure=Then.PERSON)
    return flow(saga)


DEFINITIONS = dict(definitions())


def acted_on() -> Iterator[Definition]:
    """Small sagas, one per way in which a row comes to stand in front of a person, or is cancelled."""
    once = Retry(attempts=1)
    stops: tuple[tuple[Repeat, bool, OnFailure], ...] = (
        (Repeat.SAFE, False, Then.PERSON),
        (Repeat.ASK_FIRST, False, Then.COMPENSATE),
        (Repeat.NEVER, False, Then.COMPENSATE),
        (Repeat.NEVER, True, Then.COMPENSATE),
    )
    for repeat, blind, then in stops:
        saga = new_saga()
        values: dict[str, Any] = {"undo": not blind, "blind": blind, "probe": repeat is Repeat.ASK_FIRST}
        add_step(
            saga,
            "it",
            repeat,
            retry=Retry(attempts=2, within=None),
            undo_retry=once,
            on_failure=then,
            **values,
        )
        if then is Then.PERSON:
            saga.wait("bad", Delivered, match=lambda v: "", timeout=HOUR, on_timeout=Then.PERSON)
        yield flow(saga)
    saga = new_saga()
    add_step(saga, "it", irreversible=True, retry=once)
    yield flow(saga)
    ends: tuple[tuple[OnTimeout, str], ...] = ((Then.RECONCILE, "k"), (Then.PERSON, "k"), (Then.PERSON, ""))
    for policy, key in ends:
        saga = new_saga()
        add_tx(saga, "before", retry=once, no_undo="none needed")
        wait = saga.wait("it", Delivered, match=lambda v, key=key: key, timeout=HOUR, on_timeout=policy)  # type: ignore[misc]
        if policy is Then.RECONCILE:
            wait.probe(_ask)
        yield flow(saga)


def approved() -> Iterator[Definition]:
    """Small sagas, one per way in which persons are asked, and in which undos beside them go on."""
    once = Retry(attempts=1)
    for policy in (
        (Then.COMPENSATE, Then.RETRY),
        (Then.FAIL, Then.COMPENSATE),
        (Then.CONTINUE, Then.CONTINUE),
    ):
        saga = new_saga()
        reject, expiry = policy
        add_approval(saga, "it", on_reject=reject, on_expiry=expiry)  # type: ignore[arg-type]
        add_step(saga, "other", retry=once, no_undo="none needed")
        yield flow(saga)
    saga = new_saga()
    add_approval(saga, "it", risk=Risk.CRITICAL, params=lambda v: None)
    yield flow(saga)
    saga = new_saga()
    last = add_approval(saga, "it", risk=Risk.CRITICAL, on_expiry=Then.CANCEL)
    wait = saga.wait("w", Delivered, match=lambda v: "k", timeout=HOUR, on_timeout=Then.PERSON)
    saga.flow(all_of(last, wait))
    yield saga.definition
    for risk, detached in ((Risk.HIGH, False), (Risk.HIGH, True)):
        saga = new_saga()
        add_step(saga, "it", undo=True, undo_retry=once, retry=once)
        add_step(saga, "other", undo=True, undo_retry=once, retry=once, risk=risk, detached=detached)
        add_step(saga, "after", retry=once)
        yield flow(saga)


async def _ask(ctx: Any) -> Probe[Delivered]:
    return Found(Delivered(id="x"))


def acts(step: str) -> list[Fact]:
    """Everything that a person may say, with and without that it did not happen."""
    found: list[Fact] = []
    for sure in (False, True):
        say = partial(Act, by="ann", reason="because", did_not_happen=sure)
        found += [
            say("retry", step=step),
            say("skip", step=step),
            say("compensate"),
            say("cancel", undo=True),
        ]
        found += [
            say("mark_succeeded", step=step, result=result) for result in ({"id": "x"}, {"wrong": 1}, None)
        ]
    return [*found, say("resume"), say("cancel"), say("retry"), say("skip", step="nobody")]


def replies(step: Step) -> list[Fact]:
    """Every answer of a participant."""
    name = step.undo_of or step.name
    return [
        Replied(name, direction, attempt, outcome, body, code=code, iteration=step.iteration)
        for direction in ("do", "undo")
        for attempt in {step.attempt, step.attempt - 1}
        for outcome, body, code in (
            ("done", {"truck": "t"}, ""),
            ("done", {"wrong": 1}, ""),
            ("refused", None, "NO"),
            ("nothing-to-undo", None, ""),
        )
    ]


def facts(step: Step, ages: tuple[int, ...] = (0, 1)) -> list[Fact]:
    """Every kind of fact, with the right and with an older fence or generation."""
    found: list[Fact] = [
        Start(),
        Claim(step.name, OTHER, step.iteration),
        Wake(None, 0),
        Claim("nobody", OTHER),
    ]
    for fence in (step.fence - age for age in ages):
        found += [
            Succeeded(step.name, fence, {"id": "x"}, step.iteration),
            HandedBack(step.name, fence, step.iteration),
            Limited(step.name, NOW + timedelta(seconds=fence), "bank", step.iteration),
            Stale(step.name, fence, NOW - timedelta(seconds=5), step.iteration),
        ]
        verdicts: tuple[tuple[Verdict, timedelta | None], ...] = (
            ("retry", None),
            ("fatal", None),
            ("unknown", None),
            ("not_sent", timedelta.max),
            ("quality", None),
            ("policy", None),
        )
        found += [
            TryFailed(step.name, fence, verdict, "CODE", "words", pause, iteration=step.iteration)
            for verdict, pause in verdicts
        ]
        answers = (
            ProbeFound({"id": "x"}),
            ProbeAbsent(),
            ProbeInProgress(timedelta(seconds=30)),
            ProbeFailed("NO"),
            ProbeError("X", "words"),
        )
        found += [Probed(step.name, fence, answer, step.iteration) for answer in answers]
    if step.kind is StepKind.COMMAND or (step.kind is StepKind.UNDO and step.undo_of == "sent"):
        found += replies(step)
        found += [Succeeded(step.name, step.fence, None, step.iteration, awaits_reply=True)]
    found += [ChildSeen(step.name, step.iteration)]
    if step.kind is StepKind.EACH:
        found += [Succeeded(step.name, step.fence, None, step.iteration, items=2)]
    for generation in (step.generation - age for age in ages):
        found += [
            Wake(step.name, generation, step.iteration),
            Signalled(step.name, generation, {"id": "x"}, step.iteration),
            Signalled(step.name, generation, {"wrong": "body"}, step.iteration),
        ]
    return found
