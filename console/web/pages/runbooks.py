"""Runbooks: what to do about each drift, with the safe steps on what is there now."""

from __future__ import annotations

from fastapi import APIRouter, Request
from markdown_it import MarkdownIt
from markupsafe import Markup
from starlette.responses import Response

from ....recovery.permissions import Act
from ....recovery.runbooks import Runbook, runbook, runbooks
from ..drifts import drift_named
from ..identity import Connected, Signed
from ..parts import parts
from ..permitting import needs
from ..rendering import page
from ..rights import seen
from .runbook_steps import steps_of

router = APIRouter(dependencies=[needs(Act.READ_RUNBOOKS)])
#: Runbooks say what is in files of ours; nothing in them is HTML.
_MARKDOWN = MarkdownIt("commonmark", {"html": False})
#: Where what a runbook says to look at is shown.
_PLACES = {
    Act.RETRY: ("Worklist", "/worklist"),
    Act.REDRIVE: ("Dead letters", "/letters"),
    Act.READ_LETTERS: ("Dead letters", "/letters"),
    Act.READ_OUTBOX: ("Outbox", "/outbox"),
    Act.READ_SIGNALS: ("Signals", "/signals"),
    Act.READ_RESOURCES: ("Locks and queues", "/resources"),
    Act.READ_RUNS: ("All runs", "/runs"),
}


@router.get("/runbooks")
async def show_runbooks(request: Request, actor: Signed) -> Response:
    """List the runbooks."""
    seen(actor, Act.READ_RUNBOOKS)
    return page(request, "runbooks.html", books=runbooks())


@router.get("/runbooks/{drift}")
async def show_runbook(request: Request, drift: str, actor: Signed, connection: Connected) -> Response:
    """Show what to do about a drift, with its safe steps."""
    seen(actor, Act.READ_RUNBOOKS)
    book = runbook(drift_named(drift))
    return page(
        request,
        "runbook.html",
        book=book,
        line=_line,
        body=Markup(_MARKDOWN.render(book.body)),
        places=_places(book),
        steps=await steps_of(parts(request), connection, actor, book),
    )


def _line(text: str) -> Markup:
    return Markup(_MARKDOWN.renderInline(text))


def _places(book: Runbook) -> list[tuple[str, str]]:
    return list(dict.fromkeys(_PLACES[act] for act in book.safe if act in _PLACES))
