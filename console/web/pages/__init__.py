"""The pages. Each module has a `router`; one that is not listed here is not served."""

from __future__ import annotations

from fastapi import APIRouter

from . import (
    auditing,
    bulk,
    filters,
    flow,
    letter_edit,
    letters,
    live,
    overview,
    recovering,
    run,
    runbooks,
    runs,
    tour,
    waiting,
    worklist,
)

#: What `create_app` serves, in this order.
ROUTERS: tuple[APIRouter, ...] = (
    overview.router,
    worklist.router,
    runs.router,
    run.router,
    filters.router,
    live.router,
    waiting.router,
    letters.router,
    bulk.router,
    letter_edit.router,
    flow.router,
    auditing.router,
    recovering.router,
    runbooks.router,
    tour.router,
)
