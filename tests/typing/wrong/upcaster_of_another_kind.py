"""An upcaster takes a dict and returns one."""

from typing import Any

from base import Delivered


@Delivered.upcast(from_version=1)
def right(body: dict[str, Any]) -> dict[str, Any]:
    return {**body, "number": "p"}


@Delivered.upcast(from_version=1)  # expect: type-var
def returns_text(body: dict[str, Any]) -> str:
    return ""


@Delivered.upcast  # expect: arg-type, call-arg
def without_a_version(body: dict[str, Any]) -> dict[str, Any]:
    return body
