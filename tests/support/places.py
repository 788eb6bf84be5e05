"""What documents may point at."""

from __future__ import annotations

import re

from milepost.console.main import app
from typer.main import get_command

from tests.support.house import ROOT


def targets() -> set[str]:
    """Return the Makefile's targets."""
    return set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))


def commands() -> set[str]:
    """Return the command line's commands, such as "migrate" and "runs show"."""
    root = get_command(app)
    found = set()
    for name, command in getattr(root, "commands", {}).items():
        found |= {f"{name} {inner}" for inner in getattr(command, "commands", {})} | {name}
    return found
