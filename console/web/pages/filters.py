"""Saving and forgetting filters of lists."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form
from starlette.responses import RedirectResponse, Response

from ....recovery.permissions import Act
from ...views.saved import Saved, forget, save
from ..gate import local_path
from ..identity import Connected, Signed
from ..permitting import needs

router = APIRouter(dependencies=[needs(Act.SAVE_FILTER)])
Text = Annotated[str, Form(max_length=2000)]


@router.post("/filters")
async def keep(actor: Signed, connection: Connected, page: Text, name: Text, query: Text) -> Response:
    """Save a filter, and show what it shows."""
    await save(connection, actor.name, page, Saved(name=name, query=query))
    return RedirectResponse(local_path(f"{page}?{query}"), 303)


@router.post("/filters/forget")
async def drop(actor: Signed, connection: Connected, page: Text, name: Text) -> Response:
    """Forget a filter."""
    await forget(connection, actor.name, page, name)
    return RedirectResponse(local_path(page), 303)
