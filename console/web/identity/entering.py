"""Signing in and out: the page, the printed link, a token, and the end of a session."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Query, Request
from starlette.responses import RedirectResponse, Response

from ....recovery.permissions import ActorKind
from ..gate import SIGN_IN, local_path
from ..parts import Parts, parts
from ..problems import Problem
from ..rendering import page
from . import store
from .model import SignedIn, Way
from .recognising import connected
from .signing import digest_of

router = APIRouter(include_in_schema=False)

Next = Annotated[str | None, Query(alias="next", max_length=2000)]


@router.get(SIGN_IN)
async def sign_in_page(request: Request, next_: Next = None) -> Response:
    """Show how one can sign in; whoever has goes on at once."""
    if request.state.caller is not None:
        return RedirectResponse(local_path(next_), 303)
    return _ways(request, local_path(next_), wrong=False)


@router.post(SIGN_IN)
async def sign_in_by_token(
    request: Request,
    token: Annotated[str, Form(max_length=500)] = "",
    next_: Annotated[str | None, Form(alias="next", max_length=2000)] = None,
) -> Response:
    """Open a session for whoever has a token."""
    own = parts(request)
    async with connected(own.database) as connection:
        found = await store.find_token(connection, token.strip())
    if found is None:
        return _ways(request, local_path(next_), wrong=True)
    return await enter(request, own, found[0], local_path(next_))


@router.get(f"{SIGN_IN}/link")
async def sign_in_by_link(
    request: Request, token: Annotated[str, Query(max_length=200)] = "", next_: Next = None
) -> Response:
    """Open a session for the person who started the console here; a link works once."""
    own = parts(request)
    found = own.links.take(token) if own.settings.loopback else None
    if found is None:
        detail = "This link was followed before, or is older than five minutes. Start `milepost console --open` again."
        raise Problem(403, "MP708", detail)
    name, roles = found
    who = SignedIn(name=name, kind=ActorKind.PERSON, way=Way.LINK, groups=roles)
    return await enter(request, own, who, local_path(next_))


@router.post("/sign-out")
async def sign_out(request: Request) -> Response:
    """End the session, here and for every copy of its cookie."""
    own = parts(request)
    caller = request.state.caller
    if caller.session is not None:
        async with connected(own.database) as connection:
            await store.end_session(connection, caller.session)
    response = RedirectResponse(SIGN_IN, 303)
    response.delete_cookie(
        own.recogniser.cookie, path="/", secure=own.settings.secure, httponly=True, samesite="lax"
    )
    return response


def _ways(request: Request, then: str, *, wrong: bool) -> Response:
    """Show how one can sign in."""
    settings = parts(request).settings
    return page(
        request,
        "sign_in.html",
        status=401 if wrong else 200,
        next=then,
        by_provider=settings.oidc_issuer is not None,
        by_proxy=settings.proxy_header is not None,
        wrong=wrong,
    )


async def enter(request: Request, own: Parts, who: SignedIn, then: str) -> Response:
    """Open a new session, end the one before, and go on."""
    before = own.recogniser.session_of(request)
    lasts = own.settings.session
    async with connected(own.database) as connection:
        if before is not None:
            await store.end_session(connection, digest_of(before))
        secret = await store.open_session(connection, who, lasts)
    response = RedirectResponse(then, 303)
    response.set_cookie(
        own.recogniser.cookie,
        own.signing.session(secret),
        max_age=int(lasts.total_seconds()),
        path="/",
        secure=own.settings.secure,
        httponly=True,
        samesite="lax",
    )
    return response
