"""What is answered where a request cannot be: a page for people, problem+json (RFC 9457) for programs."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import asyncpg
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ...schemas.errors import ConnectError, MilepostError, StateError
from .rendering import page

logger = logging.getLogger("milepost")

#: Where codes are explained.
DOCS = "https://milepost.invalid/errors"
#: Errors of a state that say that there is no such thing.
_NOT_THERE = frozenset({"MP440", "MP604", "MP617", "MP647", "MP666", "MP672", "MP776", "MP777"})

#: Errors that say that it was not granted.
_NOT_GRANTED = frozenset({"MP660", "MP664"})


class Problem(Exception):
    """An answer that says why not.

    Args:
        status: Of HTTP.
        code: MPnnn.
        detail: What is in the way, and what to do.
        headers: Such as Retry-After.
        more: Further members of the problem.
    """

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(f"{code} {detail}")
        self.status = status
        self.code = code
        self.detail = detail
        self.headers = dict(headers or {})
        self.more = dict(more or {})


def wants_page(request: Request) -> bool:
    """Say whether a person's browser asks, which is shown a page."""
    return not request.url.path.startswith("/api/") and "text/html" in request.headers.get("accept", "")


def of_error(error: MilepostError) -> Problem:
    """Return an error of ours as a problem: 404 for what is not there, 409 for what the state refuses, else 422."""
    if isinstance(error, ConnectError):
        detail = "The database cannot be reached. Try again in a moment."
        return Problem(503, error.code, detail, headers={"Retry-After": "5"})
    if error.code in _NOT_GRANTED:
        return Problem(403, error.code, error.text)
    if error.code in _NOT_THERE:
        return Problem(404, error.code, error.text)
    return Problem(409 if isinstance(error, StateError) else 422, error.code, error.text)


def answer(request: Request, problem: Problem) -> Response:
    """Return the response that tells a problem."""
    title = HTTPStatus(problem.status).phrase
    if wants_page(request):
        return page(
            request,
            "error.html",
            status=problem.status,
            headers=problem.headers,
            title=title,
            problem=problem,
        )
    item = {
        "type": "about:blank",
        "title": title,
        "status": problem.status,
        "detail": problem.detail,
        "code": problem.code,
        **problem.more,
    }
    return JSONResponse(item, problem.status, problem.headers, media_type="application/problem+json")


def install(app: FastAPI) -> None:
    """Let the application answer problems, errors of ours, and what FastAPI refuses by itself."""

    @app.exception_handler(Problem)
    async def _problem(request: Request, error: Problem) -> Response:
        return answer(request, error)

    @app.exception_handler(MilepostError)
    async def _ours(request: Request, error: MilepostError) -> Response:
        return answer(request, of_error(error))

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> Response:
        return answer(request, _of_http(request, error))

    @app.exception_handler(asyncpg.DataError)
    @app.exception_handler(UnicodeEncodeError)
    async def _unstorable(request: Request, error: Exception) -> Response:
        detail = "The request holds a character or a number that the database cannot hold, such as U+0000."
        return answer(request, Problem(422, "MP709", detail))

    @app.exception_handler(RequestValidationError)
    async def _invalid(request: Request, error: RequestValidationError) -> Response:
        return answer(request, _of_validation(error.errors()))


def unexpected(request: Request, error: Exception, reference: str) -> Response:
    """Return the response to a request that failed in a way that nobody foresaw; the log has the rest."""
    logger.error("MP711 %s %s failed (%s)", request.method, request.url.path, reference, exc_info=error)
    detail = f"Something failed here, and it is not your doing. The console's log has it under {reference}."
    return answer(request, Problem(500, "MP711", detail, more={"reference": reference}))


def _of_http(request: Request, error: HTTPException) -> Problem:
    headers = error.headers or {}
    if error.status_code == 404:
        return Problem(404, "MP710", f"There is nothing at {request.url.path[:200]}.", headers=headers)
    if error.status_code == 405:
        detail = f"{request.method} is not what {request.url.path[:200]} takes."
        return Problem(405, "MP717", detail, headers={**headers, "Allow": _allowed(request)})
    return Problem(error.status_code, "MP709", str(error.detail), headers=headers)


def _allowed(request: Request) -> str:
    """Return the methods that a path takes, whichever of its routes each belongs to."""
    path = request.url.path
    methods = [own for pattern, own in request.app.state.methods if pattern.match(path)]
    return ", ".join(sorted(frozenset[str]().union(*methods)))


def _of_validation(errors: Sequence[Any]) -> Problem:
    found = [
        {
            "at": ".".join(str(part) for part in item["loc"]),
            "problem": str(item["msg"]).removeprefix("Value error, "),
        }
        for item in errors[:20]
    ]
    words = "; ".join(f"{item['at']}: {item['problem']}" for item in found[:3])
    return Problem(422, "MP709", f"The request is not as the API takes it: {words}.", more={"errors": found})
