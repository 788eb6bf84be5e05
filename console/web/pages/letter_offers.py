"""What may be done about a letter, and why what may not be."""

from __future__ import annotations

from ....recovery.letters import LetterAct
from ....recovery.permissions import Act, Actor
from ....schemas.states import LetterStatus
from ...views.letter_rows import LetterDetail
from ..rights import Offer, may, offer

#: The permission for an act: on a consumer's letter, on the relay's.
OF: dict[LetterAct, tuple[Act, Act]] = {
    "redrive": (Act.REDRIVE, Act.UNPARK),
    "ignore": (Act.IGNORE, Act.IGNORE_PARKED),
}


def offers(actor: Actor, detail: LetterDetail) -> list[Offer]:
    """Return what may be done about a letter, and why what may not be."""
    letter = detail.letter
    redrive, ignore = OF["redrive"][letter.relay], OF["ignore"][letter.relay]
    says = "the relay sends it again" if letter.relay else "its handler runs once more"
    return [
        offer(
            actor,
            redrive,
            label="Redrive",
            says=says,
            why_not=_why_not_redriven(detail),
            tenant=letter.tenant,
        ),
        offer(
            actor,
            ignore,
            label="Ignore",
            says="its event is left unapplied for good; its key goes on",
            why_not="" if letter.live else f"It is {letter.status.value.lower()} already.",
            tenant=letter.tenant,
            danger=True,
        ),
    ]


def _why_not_redriven(detail: LetterDetail) -> str:
    letter = detail.letter
    if letter.status is LetterStatus.RETRY_PENDING:
        return f"It is asked for already, by {letter.asked_by}; the service's own process carries it out."
    if not letter.live:
        return f"It is {letter.status.value.lower()} already."
    if not letter.recoverable:
        return "It cannot be handled as it is. Edit it, or have the event published anew and ignore this one."
    before = (
        [one.n for one in detail.line[: [one.n for one in detail.line].index(letter.n)]]
        if detail.line
        else []
    )
    if before:
        return (
            f"Letter {before[0]} of its key comes first; this one then goes on by itself or can be redriven."
        )
    return ""


def edit_offer(actor: Actor, detail: LetterDetail) -> Offer:
    letter = detail.letter
    why_not = ""
    if letter.relay:
        why_not = "The relay sends an event as it was published, or not at all."
    elif not letter.live:
        why_not = f"It is {letter.status.value.lower()} already."
    elif detail.coded:
        why_not = "A codec wrote it and binds it to its id. Have the sender publish it anew."
    elif not may(actor, Act.READ_PAYLOAD, letter.tenant):
        why_not = "Whoever edits an event has to see what it says, and your roles do not allow that."
    return offer(
        actor,
        Act.EDIT_LETTER,
        label="Edit",
        says="makes a new letter of it; this one stays as it is",
        why_not=why_not,
        tenant=letter.tenant,
    )
