"""Who the readers are and what goes wrong with whom: by number, so that each run meets the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..notify.faults import SendFault
from .contracts import PlaceCampaign, Reader

#: The two lists: everybody, and those who pay.
EVERYBODY, CLUB = "everybody", "club"
#: So many recipients are the first batch of a campaign.
TRIAL = 50
#: What the provider says no to: for good, and until somebody has talked to it.
GONE, BLOCKED = "gone.example", "blocked.example"

#: Numbers within a hundred.
_GONE = frozenset({11, 47, 83})
_FAULTS = {5: SendFault.LATE, 23: SendFault.SILENT, 38: SendFault.LOST, 71: SendFault.SILENT}
#: Of the club every so many readers are at a host that the provider does not deliver to at first.
_BLOCKED_EVERY = 4


@dataclass(frozen=True, slots=True)
class Campaigns:
    """The campaigns of one run.

    Attributes:
        partial: One that reaches most of its recipients, and ends so.
        person: One whose first batch stays below its threshold, so that a person looks.
        again: One for those whom the first could not reach.
    """

    partial: PlaceCampaign
    person: PlaceCampaign
    again: PlaceCampaign

    @property
    def ends(self) -> Mapping[str, str]:
        """The state in which each is to end, by id."""
        return {
            self.partial.campaign_id: "PARTIALLY_SUCCEEDED",
            self.person.campaign_id: "SUCCEEDED",
            self.again.campaign_id: "SUCCEEDED",
        }


def readers(count: int) -> list[Reader]:
    """Return all readers: so many on the list of everybody, and those of the club after them."""
    return [_of_everybody(n) for n in range(count)] + [_of_club(count + n) for n in range(club_size(count))]


def club_size(count: int) -> int:
    """Return how many readers the club has: more than the first batch, and a tenth of the others."""
    return max(80, count // 10)


def corrected(found: Iterable[Reader]) -> list[Reader]:
    """Return the readers that have moved, with their new addresses."""
    return [
        reader.model_copy(update={"address": _at("home.example", reader.id)})
        for reader in found
        if is_gone(reader)
    ]


def is_gone(reader: Reader) -> bool:
    """Tell whether nobody has the address any more."""
    return reader.address.endswith(GONE)


def is_blocked(reader: Reader) -> bool:
    """Tell whether the provider does not deliver to the address at first."""
    return reader.address.endswith(BLOCKED)


def campaigns(tag: str) -> Campaigns:
    """Return the three campaigns.

    Args:
        tag: Begins each id.
    """
    spring = f"{tag}-spring"
    return Campaigns(
        partial=PlaceCampaign(campaign_id=spring, issue="spring", audience=EVERYBODY),
        person=PlaceCampaign(campaign_id=f"{tag}-club", issue="club", audience=CLUB),
        again=PlaceCampaign(campaign_id=f"{spring}-again", issue="spring", failed_of=spring),
    )


def letter_tag(issue: str, reader: int) -> str:
    """Return what a letter is about, whatever campaign it comes with."""
    return f"{issue}-{reader:05d}"


def send_fault(reader: int) -> SendFault:
    """Return how the provider treats the first call about a reader."""
    return _FAULTS.get(reader % 100, SendFault.NONE)


def _of_everybody(n: int) -> Reader:
    host = GONE if n % 100 in _GONE else "example.com"
    return Reader(id=n, address=_at(host, n), audience=EVERYBODY)


def _of_club(n: int) -> Reader:
    host = BLOCKED if n % _BLOCKED_EVERY == 0 else "example.com"
    return Reader(id=n, address=_at(host, n), audience=CLUB)


def _at(host: str, n: int) -> str:
    return f"reader-{n:05d}@{host}"
