"""The pages that the menu lists, in order. A page that is not built is not here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Item:
    """A page in the menu.

    Attributes:
        icon: Its name in static/icons.svg, under which its count is looked up, too.
        key: After g, the key that goes there; "" for none.
    """

    path: str
    label: str
    icon: str
    key: str = ""

    def current(self, path: str) -> bool:
        """Say whether a page of that path is under this entry."""
        return path == self.path or (self.path != "/" and path.startswith(f"{self.path}/"))


@dataclass(frozen=True, slots=True)
class Section:
    """Pages that belong together."""

    title: str
    pages: tuple[Item, ...]


NAVIGATION: tuple[Section, ...] = (
    Section(
        "Runs",
        (
            Item("/", "Overview", "overview", "o"),
            Item("/worklist", "Worklist", "worklist", "w"),
            Item("/runs", "All runs", "runs", "r"),
            Item("/bulk", "Acts on many", "bulk", "b"),
        ),
    ),
    Section(
        "What waits",
        (
            Item("/unknown", "Unknown outcomes", "unknown", "u"),
            Item("/letters", "Dead letters", "letters", "d"),
            Item("/holds", "Held keys", "holds", "h"),
            Item("/signals", "Signals", "signals", "s"),
            Item("/resources", "Locks and queues", "resources", "l"),
            Item("/recovery", "Recovery", "runbooks", "y"),
        ),
    ),
    Section("Events", (Item("/outbox", "Outbox", "outbox", "x"), Item("/replay", "Replay", "replay", "p"))),
    Section("Kept", (Item("/audit", "Audit", "audit", "a"), Item("/settings", "Settings", "settings", "e"))),
)
