"""The long form of every code, read from explanations.md."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files

_HEAD = re.compile(r"^## (.+)$", re.MULTILINE)
_STATUS = re.compile(r"HTTP_\d{3}")


def parse_explanations(text: str) -> dict[str, str]:
    """Split the file into its sections.

    Args:
        text: The file's text: what stands before the first `##` line is left out. A heading is a code, or several
            with commas between them.

    Returns:
        Explanation by code: paragraphs of one line each, an empty line between two.

    Raises:
        ImportError: A code occurs twice or has no text.
    """
    pieces = _HEAD.split(text)
    found: dict[str, str] = {}
    for head, body in zip(pieces[1::2], pieces[2::2], strict=True):
        paragraphs = [" ".join(part.split()) for part in body.strip().split("\n\n")]
        for code in head.split(", "):
            if code in found or not paragraphs[0]:
                raise ImportError(f"explanations.md: {code} is there twice, or empty")
            found[code] = "\n\n".join(paragraphs)
    return found


def explanation(code: str) -> str | None:
    """Return the long form of a code, in whatever case; None for one that Milepost does not have.

    Args:
        code: "MP101", "mp101", "101", "WAIT_TIMEOUT", or "HTTP_503", whose statuses share one text.
    """
    wanted = code.strip().upper()
    if _STATUS.fullmatch(wanted):
        return EXPLANATIONS["HTTP_nnn"]
    return EXPLANATIONS.get(f"MP{wanted}" if wanted.isdigit() else wanted)


#: Explanation by code, such as "MP101" or "WAIT_TIMEOUT"; HTTP_nnn stands for every status, EXCEPTION for other codes.
EXPLANATIONS: Mapping[str, str] = parse_explanations(
    (files(__package__) / "explanations.md").read_text("utf-8")
)
