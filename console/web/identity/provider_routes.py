"""Signing in with the provider: on the way there, and back."""

from __future__ import annotations

import logging
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import RedirectResponse, Response

from ..gate import SIGN_IN, local_path
from ..parts import Parts, parts
from ..problems import Problem
from .entering import enter
from .oidc import Provider, ProviderRefused

logger = logging.getLogger("milepost")
router = APIRouter(include_in_schema=False)

BEGIN, BACK = f"{SIGN_IN}/oidc", f"{SIGN_IN}/oidc/back"
#: What stays in the browser on its way to the provider, and how long, in seconds.
COOKIE, KEPT = "milepost_oidc", 600


@router.get(BEGIN)
async def begin(
    request: Request, next_: Annotated[str | None, Query(alias="next", max_length=2000)] = None
) -> Response:
    """Send the browser to the provider."""
    own, provider = _provider(request)
    try:
        begun = await provider.begin(_redirect(request, own), local_path(next_))
    except ProviderRefused as error:
        raise _refused(error) from error
    response = RedirectResponse(begun.url, 303)
    sealed = own.signing.seal(begun.kept, "oidc")
    secure = own.settings.secure
    response.set_cookie(
        COOKIE, sealed, max_age=KEPT, path=SIGN_IN, secure=secure, httponly=True, samesite="lax"
    )
    return response


@router.get(BACK)
async def back(request: Request) -> Response:
    """Sign in whoever comes back from the provider."""
    own, provider = _provider(request)
    kept = own.signing.unseal(request.cookies.get(COOKIE, ""), "oidc", seconds=KEPT)
    if kept is None:
        raise _refused(ProviderRefused("this browser has begun no sign-in in the last ten minutes"))
    try:
        who = await provider.finish(kept, dict(request.query_params), _redirect(request, own))
    except ProviderRefused as error:
        raise _refused(error) from error
    response = await enter(request, own, who, local_path(kept["then"]))
    response.delete_cookie(COOKIE, path=SIGN_IN, secure=own.settings.secure, httponly=True, samesite="lax")
    return response


def _provider(request: Request) -> tuple[Parts, Provider]:
    own = parts(request)
    if own.provider is None:
        raise Problem(404, "MP710", "No provider is configured here. Sign in with a token.")
    return own, own.provider


def _redirect(request: Request, own: Parts) -> str:
    """Where the provider sends the browser back to; on loopback the address it came to, which the guard has checked."""
    return (own.settings.public_url or f"http://{request.headers['host']}") + BACK


def _refused(error: ProviderRefused) -> Problem:
    logger.warning("MP708 a sign-in failed: %s", error)
    return Problem(403, "MP708", "The provider's answer signs nobody in. Begin again at /sign-in.")
