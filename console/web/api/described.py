"""What the API says of itself: problems, and the key that every write has."""

from __future__ import annotations

import re
from typing import Annotated, Any

from fastapi import Header
from pydantic import AwareDatetime, BaseModel, BeforeValidator


class ProblemDetails(BaseModel):
    """Why a request was not carried out (RFC 9457).

    Attributes:
        code: MPnnn; `milepost explain MPnnn` says more.
    """

    type: str
    title: str
    status: int
    detail: str
    code: str


_WORDS = {
    400: "The Idempotency-Key is missing, or none.",
    401: "Nothing says who asks.",
    403: "What was granted does not reach so far, or the request comes from another site's page.",
    404: "There is no such thing, or none that you may see.",
    409: "The present state refuses it; or the same Idempotency-Key is at work.",
    413: "The body is too long.",
    422: "The request is not as the API takes it.",
    429: "Too often; Retry-After says when.",
    503: "The database does not answer; Retry-After says when to try again.",
}
_SCHEMA = {"$ref": "#/components/schemas/ProblemDetails"}


def _responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {
        status: {"description": _WORDS[status], "content": {"application/problem+json": {"schema": _SCHEMA}}}
        for status in statuses
    }


#: Of every route that reads, and of every route that writes.
READS = _responses(401, 403, 404, 422, 429, 503)
WRITES = _responses(400, 401, 403, 404, 409, 413, 422, 429, 503)


def _written(value: object) -> object:
    """Take an instant as RFC 3339 writes it, and not as a number, which says no unit."""
    if isinstance(value, str) and not _INSTANT.match(value):
        raise ValueError("write it as RFC 3339 does: 2026-12-02T18:00:00Z")
    return value


_INSTANT = re.compile(r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}")
#: An instant in a query.
Instant = Annotated[AwareDatetime, BeforeValidator(_written)]

#: The header of every write. The middleware in front of the routes keeps the answer and gives it again.
IdempotencyKey = Annotated[
    str,
    Header(
        alias="Idempotency-Key",
        description="A string of RFC 9651, new for each intent; the same request with it again gets the same answer.",
        pattern=r'^"[!#-\[\]-~]{1,255}"$',
        examples=['"8e03978e-40d5-43dd-bc93-6894a57f9324"'],
    ),
]


def describe(schema: dict[str, Any]) -> dict[str, Any]:
    """Complete what FastAPI wrote: the schema of problems, and how one says who asks."""
    components = schema.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    schemas["ProblemDetails"] = ProblemDetails.model_json_schema()
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    components["securitySchemes"] = {
        "token": {"type": "http", "scheme": "bearer", "description": "As `milepost tokens add` made it."},
        "session": {"type": "apiKey", "in": "cookie", "name": "milepost"},
    }
    schema["security"] = [{"token": []}, {"session": []}]
    return schema
