"""Pages from templates. Whatever stands in a page is escaped, and a name that is not there is an error."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse

from ...sagas.drawing_plan import tone_of
from ..model import minute
from ..output import span
from .navigation import NAVIGATION

HERE = Path(__file__).parent

#: The templates. Pages add what they need to `filters` and `globals`.
TEMPLATES = Environment(
    loader=FileSystemLoader(HERE / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
#: Tones of words that are no states of runs or steps: of requests, and of letters.
_TONES = {"ACCEPTED": "done", "REFUSED": "failed", "HELD": "person", "OPEN": "live", "RESOLVED": "done"}
_TONES |= {"ERROR": "failed", "WARNING": "undone"}
#: What texts for people mark: a command or a name between backticks, and an instant.
_CODE = re.compile(r"`([^`]+)`")
_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)")


def page(
    request: Request,
    template: str,
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    **context: Any,
) -> HTMLResponse:
    """Return a page.

    Args:
        template: Its file in templates/.
        context: What the template names. It is also given `request`, `path`, `actor` (None before the sign-in) and
            `csrf`, which every form holds in a hidden field of that name. `now` is the database's clock, by which the
            page counts ages; `live` what it is told about (live.py); `counts` what the menu shows, by icon.
    """
    caller = getattr(request.state, "caller", None)
    given = {
        "request": request,
        "path": request.url.path,
        "actor": None if caller is None else caller.actor,
        "csrf": "" if caller is None else caller.csrf or "",
        **BASE,
        **context,
    }
    return HTMLResponse(TEMPLATES.get_template(template).render(given), status, dict(headers or {}))


#: What the layout reads, where a page says nothing about it.
BASE: Mapping[str, Any] = {"now": None, "live": None, "q": "", "counts": {}}


@cache
def static(name: str) -> str:
    """Return the path of a static file, which changes when the file does, so that browsers may keep it."""
    digest = hashlib.sha256((HERE / "static" / name).read_bytes()).hexdigest()[:10]
    return f"/static/{name}?v={digest}"


def tone(state: str) -> str:
    """Return the tone of a state: a class of the style sheet."""
    return _TONES.get(state) or tone_of(state)


def instant(at: datetime) -> str:
    """Write an instant for machines: RFC 3339 in UTC, to the millisecond."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def length(given: timedelta | float) -> str:
    """Write a duration; a number is seconds."""
    return span(given if isinstance(given, timedelta) else timedelta(seconds=float(given)))


def pretty(value: Any) -> str:
    """Write JSON to be read; what JSON cannot hold as text."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def counted(amount: int, one: str, many: str = "") -> str:
    """Write an amount with its noun: 1 run, 1,204 runs."""
    return f"{amount:,} {one if amount == 1 else many or one + 's'}"


def said(text: str | None) -> Markup:
    """Write a text for people: what stands between backticks as code, instants in the reader's own time."""
    parts = _CODE.split(text or "")
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if n % 2 else _dated(part) for n, part in enumerate(parts)
    )


def _dated(text: str) -> Markup:
    made, at = Markup(""), 0
    for found in _INSTANT.finditer(text):
        when = datetime.fromisoformat(found[0])
        shown = Markup('<time datetime="{}" data-show="instant">{}</time>').format(
            instant(when), _minute(when)
        )
        made, at = made + escape(text[at : found.start()]) + shown, found.end()
    return made + escape(text[at:])


def _minute(at: datetime) -> str:
    return minute(at.astimezone(UTC))


TEMPLATES.filters |= {"tone": tone, "instant": instant, "minute": _minute, "span": length, "pretty": pretty}
TEMPLATES.filters["said"] = said
TEMPLATES.globals |= {"static": static, "navigation": NAVIGATION, "counted": counted}
