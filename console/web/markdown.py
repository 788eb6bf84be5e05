"""Markdown as a page shows it: text of files that belong to the deployment. HTML in it stays text."""

from __future__ import annotations

from markdown_it import MarkdownIt
from markupsafe import Markup

_READER = MarkdownIt("commonmark", {"html": False}).enable("table")


def html_of(text: str) -> Markup:
    """Return Markdown as HTML; links that run something are no links."""
    return Markup(_READER.render(text))
