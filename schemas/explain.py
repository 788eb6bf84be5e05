"""The long form of every code, read from explanations.md."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files

_HEAD = re.compile(r"^## (MP\d{3})$", re.MULTILINE)


def parse_explanations(text: str) -> dict[str, str]:
    """Split the file into its sections.

    Args:
        text: The file's text: what stands before the first `## MPnnn` line is left out.

    Returns:
        Explanation by code: paragraphs of one line each, an empty line between two.

    Raises:
        ImportError: A code occurs twice or has no text.
    """
    pieces = _HEAD.split(text)
    found: dict[str, str] = {}
    for code, body in zip(pieces[1::2], pieces[2::2], strict=True):
        paragraphs = [" ".join(part.split()) for part in body.strip().split("\n\n")]
        if code in found or not paragraphs[0]:
            raise ImportError(f"explanations.md: {code} is there twice, or empty")
        found[code] = "\n\n".join(paragraphs)
    return found


#: Explanation by code, such as "MP101".
EXPLANATIONS: Mapping[str, str] = parse_explanations(
    (files(__package__) / "explanations.md").read_text("utf-8")
)
