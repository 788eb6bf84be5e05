"""`milepost explain [CODE]`."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from difflib import get_close_matches

from ..schemas.errors import UsageError
from ..schemas.states import RunState, StepState
from .options import Globals

#: How the tool shows codes that a service makes, or that are made from an exception's class name.
_OWN = re.compile(r"[A-Z][A-Z0-9_]+")
_STATES = frozenset([*(state.value for state in RunState), *(state.value for state in StepState)])


def explain(given: Globals, code: str | None) -> None:
    """Print the long form of a code, or every code with its first sentence.

    Raises:
        UsageError: MP610 for a code that does not exist.
    """
    if code is None:
        _list(given)
        return
    wanted, text = find(code)
    if given.out.as_json:
        given.out.item(code=wanted, text=text)
        return
    width = min(shutil.get_terminal_size().columns, 100) if sys.stdout.isatty() else 100
    given.out.line(wanted)
    for paragraph in text.split("\n"):
        given.out.line(textwrap.fill(paragraph, width) if paragraph else "")


def _list(given: Globals) -> None:
    from ..schemas.explain import EXPLANATIONS

    known = [(code, _first(text)) for code, text in EXPLANATIONS.items() if code != "EXCEPTION"]
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    longest = max(len(code) for code, _ in known)
    for code, text in sorted(known, key=lambda one: (not one[0].startswith("MP"), one[0])):
        given.out.item(code=code, text=text)
        if not given.out.as_json:
            line = f"{code:{longest}}  {text}"
            given.out.line(line if room is None or len(line) <= room else f"{line[: room - 1]}\u2026")


def _first(text: str) -> str:
    """Return the first sentence."""
    return re.split(r"(?<=[.?!]) (?=[A-Z`])|\n", text, maxsplit=1)[0]


def find(code: str) -> tuple[str, str]:
    """Return a code as it is written, and its long form.

    Raises:
        UsageError: MP610 for a code that does not exist.
    """
    from ..schemas.explain import EXPLANATIONS, explanation

    wanted = code.strip().upper()
    wanted = f"MP{wanted}" if wanted.isdigit() else wanted
    text = explanation(wanted)
    if text is not None and wanted != "EXCEPTION":
        return wanted, text
    near = get_close_matches(wanted, [known for known in EXPLANATIONS if known != "EXCEPTION"], 3, 0.8)
    if wanted in _STATES:
        raise UsageError(
            "MP610",
            f"{wanted} is a state and no code. `milepost graph --format states` shows how states follow.",
        )
    if _OWN.fullmatch(code.strip()) and not near and not re.fullmatch(r"MP\d*", wanted):
        return wanted, EXPLANATIONS["EXCEPTION"]
    hint = f" Close to it: {', '.join(near)}." if near else ""
    raise UsageError("MP610", f"there is no code {code!r}.{hint}")
