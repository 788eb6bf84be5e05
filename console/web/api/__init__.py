"""The API, version 1. Each module has a `router`; one that is not listed here is not served."""

from __future__ import annotations

from fastapi import APIRouter

from . import acts, audit, bulk, flow, letters, me, proposals, requests, ruled, runs, waiting

#: What `create_app` serves under /api/v1.
ROUTERS: tuple[APIRouter, ...] = (
    me.router,
    runs.router,
    acts.router,
    requests.router,
    letters.router,
    waiting.router,
    flow.router,
    audit.router,
    proposals.router,
    ruled.router,
    bulk.router,
)
