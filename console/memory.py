"""What `check` and `doctor` say of how long things are kept: the inbox and its topics, runs and what tells of them."""

from __future__ import annotations

from collections.abc import Sequence

from ..consumers.app import Milepost
from ..consumers.memory import shorter_than_runs, too_short
from ..schemas.errors import ConnectError, StartError
from ..streams.topics import keeps
from .application import event_topics
from .findings import Check, counted

#: How long Kafka may take to answer, in seconds.
_WITHIN = 10.0


async def judge_memory(service: Milepost) -> Sequence[Check]:
    """See whether what is told of runs outlasts them, and the inbox its topics."""
    return [*_of_runs(service), *await _of_inbox(service)]


def _of_runs(service: Milepost) -> Sequence[Check]:
    try:
        refusals = shorter_than_runs(service.settings) if service.sagas else []
    except StartError:
        return []  # said where the database is looked at
    return [Check("retention", "error", refusal.text, refusal.code) for refusal in refusals]


async def _of_inbox(service: Milepost) -> Sequence[Check]:
    """See whether the inbox outlasts every topic that the service reads; nothing for a service that reads none.

    Returns:
        A warning where Kafka or the settings cannot be looked at.
    """
    topics = event_topics(service)
    if not topics:
        return []
    try:
        settings = service.settings
        kept = await keeps(settings, topics, within=_WITHIN)
    except (ConnectError, StartError) as error:
        text = f"how long topics keep their records was not looked at: {error.text}"
        return [Check("retention", "warning", text, error.code)]
    refusals = too_short(settings, kept)
    if refusals:
        return [Check("retention", "error", refusal.text, refusal.code) for refusal in refusals]
    unseen = len(topics) - len(kept)
    words = f"the inbox outlasts {counted(len(kept), 'topic')}"
    return [Check("retention", "ok", words + (f"; {unseen} not there yet or not visible" if unseen else ""))]
