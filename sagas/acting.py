"""Acts by a person: what no machine may decide, somebody decides, by name and with a reason."""

from __future__ import annotations

from .draft import Draft
from .facts import Act
from .model import Decision


def act(draft: Draft, fact: Act) -> Decision:
    """Answer an act; what does not fit the state is refused with words that say what is in the way."""
    return draft.refused(f"{fact.what} is not possible while the run is {draft.run.state}")
