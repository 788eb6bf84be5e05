"""Every code that the package raises is explained, and nothing else is."""

from __future__ import annotations

import re
from pathlib import Path

import milepost
import pytest
from milepost.schemas.explain import EXPLANATIONS, parse_explanations

ROOT = Path(milepost.__file__).parent
ROOMS = (
    "schemas",
    "streams",
    "outbox",
    "inbox",
    "sagas",
    "consumers",
    "recovery",
    "console",
    "testing",
    "devstack",
    "examples",
)
_RAISED = re.compile(r'"(MP\d{3})\b')


def raised() -> dict[str, list[str]]:
    """Return where each code begins a text, by code."""
    found: dict[str, list[str]] = {}
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            for code in _RAISED.findall(path.read_text()):
                found.setdefault(code, []).append(str(path.relative_to(ROOT)))
    return found


def test_every_raised_code_is_explained() -> None:
    codes = raised()
    assert len(codes) > 50
    assert {code: places for code, places in codes.items() if code not in EXPLANATIONS} == {}


def test_every_explained_code_is_raised() -> None:
    explained = {code for code in EXPLANATIONS if code.startswith("MP")}
    assert sorted(explained - raised().keys()) == []


#: Where codes that are words are given, and what in these files looks like one but is none.
_READING = ("schemas/codecs.py", "schemas/aesgcm.py", "schemas/reading.py")
_WORDS = (
    *(
        "sagas/words.py",
        "consumers/*.py",
        "inbox/*.py",
        "outbox/*.py",
        "schemas/envelope.py",
        "schemas/finding.py",
    ),
    *_READING,
)
#: States of a letter, and names of Kafka's errors.
_STATES = {"RETRY_PENDING", "INVALID_RECORD"}
_WORD = re.compile(
    r'"([A-Z]+(?:_[A-Z]+)+|TIMEOUT|DEADLINE|CANCELLED|DEADLOCK|UNNAMED|UNPROVEN|REFUSED|EDITED)"'
)


def test_every_code_that_is_a_word_is_explained() -> None:
    given = {
        code
        for pattern in _WORDS
        for path in ROOT.glob(pattern)
        for code in _WORD.findall(path.read_text())
        if not code.startswith("MILEPOST_") and code not in _STATES
    }
    words = {code for code in EXPLANATIONS if not code.startswith("MP")}
    assert len(given) > 25
    assert given - words == set()
    assert words - given == {"SHUTDOWN", "HTTP_nnn", "EXCEPTION", "CHILD_FAILED"} - given


def test_a_file_with_a_code_twice_or_empty_is_refused() -> None:
    assert parse_explanations("intro\n## MP999\n\na\nb\n\nc\n") == {"MP999": "a b\n\nc"}
    assert parse_explanations("## A, B\n\na") == {"A": "a", "B": "a"}
    for wrong in ("## MP999\n\na\n\n## MP999\n\nb", "## MP999\n\n## MP998\n\nb"):
        with pytest.raises(ImportError, match="MP999"):
            parse_explanations(wrong)


def test_an_explanation_is_more_than_a_title() -> None:
    assert {code: text for code, text in EXPLANATIONS.items() if len(text) < 80} == {}
