"""The console's templates: what every page has, and that nothing said by a user is taken for markup."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from milepost.console.web import rendering
from milepost.console.web.navigation import NAVIGATION, Item
from milepost.console.web.rendering import HERE, TEMPLATES, length, static
from milepost.recovery.permissions import Actor, ActorKind
from milepost.schemas.states import RunState, StepState

NOW = datetime(2026, 12, 2, 18, 13, 5, 120_000, tzinfo=UTC)
BASE = {
    **rendering.BASE,
    "now": NOW,
    "path": "/worklist",
    "actor": Actor("ann", ActorKind.PERSON, ()),
    "csrf": "proof",
    "counts": {"worklist": 3},
}


def rendered(source: str, **context: object) -> str:
    made = TEMPLATES.from_string('{% import "macros.html" as ui with context %}' + source)
    return made.render({**BASE, **context})


def test_a_page_has_its_landmarks_and_says_where_it_is() -> None:
    text = TEMPLATES.get_template("base.html").render(BASE)
    assert '<html lang="en" data-now="2026-12-02T18:13:05.120Z">' in text
    assert text.index('class="skip" href="#main"') < text.index("<header") and '<main id="main"' in text
    (here,) = re.findall(r'<a href="([^"]+)"[^>]* aria-current="page"', text)
    assert here == "/worklist" and '<span class="count person">3</span>' in text
    assert re.findall(r"<script(?![^>]* src=)|<style|\son\w+=|\sstyle=", text) == []


def test_no_template_has_what_the_pages_policy_refuses() -> None:
    for file in (HERE / "templates").glob("*.html"):
        source = re.sub(r"\{#.*?#\}", "", file.read_text(), flags=re.DOTALL)
        assert re.findall(r"<script(?![^>]* src=)|<style|\son\w+=|\sstyle=|javascript:", source) == [], file


def test_what_somebody_else_wrote_is_text() -> None:
    bad = '"><script>alert(1)</script>'
    for source in (
        "{{ ui.copy(bad) }}",
        "{{ ui.run_link(bad, bad, bad) }}",
        "{{ ui.state(bad) }}",
        "{{ ui.json({bad: bad}) }}",
        "{{ ui.field('q', 'Find', bad) }}",
        "{{ ui.empty(bad, bad) }}",
    ):
        assert "<script" not in rendered(source, bad=bad), source


def test_states_have_the_tones_that_drawings_have() -> None:
    assert '<span class="state person">Manual required</span>' in rendered(
        "{{ ui.state('MANUAL_REQUIRED') }}"
    )
    for state in (*RunState, *StepState):
        tone = rendering.tone(state)
        assert f".state.{tone}" in (HERE / "static" / "console.css").read_text() or tone == "over"


def test_times_are_told_in_utc_and_can_be_read_by_programs() -> None:
    text = rendered("{{ ui.time(now, 'ago') }}")
    assert text == '<time datetime="2026-12-02T18:13:05.120Z" data-show="ago">2026-12-02 18:13Z</time>'
    assert (length(0.25), length(timedelta(days=3, hours=4))) == ("250ms", "3d 4h")


def test_files_of_pages_change_their_address_with_their_content() -> None:
    assert re.fullmatch(r"/static/console\.css\?v=[0-9a-f]{10}", static("console.css"))
    icons = (HERE / "static" / "icons.svg").read_text()
    for section in NAVIGATION:
        for item in section.pages:
            assert f'<symbol id="{item.icon}"' in icons
    assert Item("/runs", "All runs", "runs").current("/runs/0190") and not Item("/", "", "").current("/runs")
