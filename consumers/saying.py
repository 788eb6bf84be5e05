"""What a person is told who has approved or rejected something."""

from __future__ import annotations

from collections.abc import Mapping

import asyncpg

from ..sagas import questions
from ..sagas.model import Decision


def said(
    row: asyncpg.Record, decision: Decision, before: Mapping[str, str], after: Mapping[str, str]
) -> tuple[str, Mapping[str, object], Mapping[str, object]]:
    """Return what is told about an accepted request, and the states before and after it.

    Args:
        row: The request.
        decision: What followed.
        before: States of run and step.
        after: The same, afterwards.
    """
    step = decision.run.step(row["step"], row["iteration"])
    question = None if step is None else questions.read(step)
    assert step is not None and question is not None, "what was answered was asked"
    state = f"{step.name} {step.state}, run {decision.run.state}"
    if row["what"] == "reject":
        return f"rejected by {row['by']}: {state}", before, after
    given = len(question.given)
    counts = {"approved": given, "needed": question.needed}
    left = question.needed - given
    rest = f"{left} more needed" if left else state
    return f"approved by {row['by']}; {rest}", before, {**after, **counts}
