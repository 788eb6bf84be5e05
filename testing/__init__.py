"""The test kit for users: `open_kit` runs a service on a throwaway PostgreSQL, a recording Kafka and a stopped clock.

Names are imported when they are first asked for: the pytest plugin beside them is loaded in every test run.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .kit import Kit
    from .opening import open_kit

__all__ = ["Kit", "open_kit"]

#: Where each public name lives.
_HOMES = {"Kit": "kit", "open_kit": "opening"}

if not TYPE_CHECKING:  # a type checker that saw this function would accept every name

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = getattr(import_module(f".{_HOMES[name]}", __name__), name)
        globals()[name] = found
        return found

    def __dir__() -> list[str]:
        return sorted(__all__)
