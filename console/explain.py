"""`milepost explain CODE`."""

from __future__ import annotations

import shutil
import sys
import textwrap

from ..schemas.errors import UsageError
from .options import Globals


def explain(given: Globals, code: str) -> None:
    """Print the long form of a code.

    Raises:
        UsageError: MP610 for a code that does not exist.
    """
    from ..schemas.explain import EXPLANATIONS

    wanted = code.strip().upper()
    wanted = wanted if wanted.startswith("MP") else f"MP{wanted}"
    text = EXPLANATIONS.get(wanted)
    if text is None:
        near = ", ".join(sorted(known for known in EXPLANATIONS if known[:3] == wanted[:3])) or "MP101"
        raise UsageError("MP610", f"there is no code {code!r}. Codes like it: {near}.")
    if given.out.as_json:
        given.out.item(code=wanted, text=text)
        return
    width = min(shutil.get_terminal_size().columns, 100) if sys.stdout.isatty() else 100
    given.out.line(wanted)
    for paragraph in text.split("\n"):
        given.out.line(textwrap.fill(paragraph, width) if paragraph else "")
