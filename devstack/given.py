"""Servers that somebody else runs and environment variables point at."""

from __future__ import annotations

import os
import urllib.error
import urllib.request

from .databases import answers
from .errors import DevstackError
from .ports import listens

DATABASE = "MILEPOST_DATABASE_URL"
KAFKA = "MILEPOST_KAFKA"
JAEGER = "MILEPOST_JAEGER"
OTLP = "OTEL_EXPORTER_OTLP_ENDPOINT"


def database() -> str | None:
    """Return what MILEPOST_DATABASE_URL names, None when it is not set.

    Raises:
        DevstackError: it does not answer.
    """
    url = _named(DATABASE)
    if url and not answers(url):
        raise _silent(DATABASE, url)
    return url


def kafka() -> str | None:
    """Return what MILEPOST_KAFKA names (host:port, several with commas), None when it is not set.

    Raises:
        DevstackError: none of them accepts connections.
    """
    servers = _named(KAFKA)
    if servers and not kafka_answers(servers):
        raise _silent(KAFKA, servers)
    return servers


def jaeger() -> tuple[str | None, str] | None:
    """Return the OTLP endpoint and the query URL from the environment, None when MILEPOST_JAEGER is not set.

    Raises:
        DevstackError: the query URL does not answer.
    """
    query = os.environ.get(JAEGER)
    if not query:
        return None
    if not jaeger_answers(query):
        raise _silent(JAEGER, query)
    return os.environ.get(OTLP) or None, query


def kafka_answers(servers: str) -> bool:
    """Tell whether one of the bootstrap servers accepts connections."""
    for server in servers.split(","):
        host, _, port = server.strip().rpartition(":")
        if host and port.isdigit() and listens(int(port), host):
            return True
    return False


def jaeger_answers(query: str) -> bool:
    """Tell whether Jaeger's query API answers at that URL."""
    try:
        with urllib.request.urlopen(f"{query.rstrip('/')}/api/services", timeout=2) as answer:
            return bool(answer.status == 200)
    except (OSError, ValueError, urllib.error.URLError):
        return False


def _named(variable: str) -> str | None:
    """Return a variable's value. A host under .invalid never exists (RFC 2606): it holds the place for none."""
    value = os.environ.get(variable)
    return value if value and ".invalid" not in value else None


def _silent(variable: str, value: str) -> DevstackError:
    return DevstackError(
        f"{variable} points at {value}, which does not answer.",
        f"start that server, or unset {variable} to have one started here.",
    )
