"""Secrets out of what people see: a URL without its passwords."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

#: What stands for a secret, as pydantic writes it.
MASK = "**********"
_SECRET_PARAMETER = re.compile(r"(?i)([?&](?:password|sslpassword|passfile)=)[^&#]*")


def mask_url(url: str) -> str:
    """Return a URL with its password, and every parameter that holds one, replaced by asterisks.

    What is no URL at all is replaced as a whole: nobody can tell which part of it is secret.
    """
    scheme, found, rest = url.partition("://")
    if not found:
        return MASK
    authority, slash, path = rest.partition("/")
    user, at, place = authority.rpartition("@")
    if not at and not _is_place(authority):
        return f"{scheme}://{MASK}"
    name, colon, _ = user.partition(":")
    shown = f"{name}:{MASK}" if colon else name
    path = _SECRET_PARAMETER.sub(lambda found: found[1] + MASK, path)
    return f"{scheme}://{shown}{at}{place}{slash}{path}"


def is_url(url: str) -> bool:
    """Tell whether a database's URL has an authority that can be read as user:password@host:port, each optional."""
    place = url.partition("://")[2]
    place = re.split(r"[/?#]", place, maxsplit=1)[0]
    user, at, hosts = place.rpartition("@")
    return _is_place(hosts) and "@" not in user and (not at or user.count(":") <= 1)


def place_of(url: str) -> str:
    """Return host and port of a URL for an error; never what may be a password that was not escaped."""
    try:
        place = urlsplit(url).netloc
    except ValueError:
        return "an address that cannot be read"
    _, at, place = place.rpartition("@")
    if not place:
        return "the local socket"
    return place if at or _is_place(place) else "an address that cannot be read"


def _is_place(text: str) -> bool:
    """Whether this is host:port, or several with commas; "user:pass" of an unescaped URL is none."""
    return all(
        re.fullmatch(r"(\[[0-9a-fA-F:.%]*\]|[^:\[\]@]*)(:\d*)?", part) is not None for part in text.split(",")
    )
