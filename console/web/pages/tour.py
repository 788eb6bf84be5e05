"""A guided tour: a Markdown file that MILEPOST_CONSOLE_TOUR names, as the demo writes one about itself."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request
from starlette.responses import Response

from ....recovery.permissions import Act
from ..markdown import html_of
from ..parts import parts
from ..permitting import needs
from ..problems import Problem
from ..rendering import page

router = APIRouter(dependencies=[needs(Act.READ_RUNS)])

#: Longest tour, in bytes.
MOST = 200_000


@router.get("/tour")
async def show(request: Request) -> Response:
    """Show the tour."""
    path = parts(request).settings.tour
    try:
        raw = b"" if path is None else await asyncio.to_thread(path.read_bytes)
    except OSError:
        raw = b""
    if not raw:
        raise Problem(404, "MP757", "There is no tour here. MILEPOST_CONSOLE_TOUR names a file to show.")
    title, _, text = raw[:MOST].decode("utf-8", "replace").lstrip().removeprefix("# ").partition("\n")
    return page(request, "tour.html", title=title.strip(), body=html_of(text))
