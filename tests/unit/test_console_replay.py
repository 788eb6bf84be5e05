"""How a slice is said on the command line of `milepost replay`, and what is refused before anything is read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from milepost.console.main import run
from milepost.console.replay import read_edge
from milepost.schemas.errors import UsageError
from milepost.schemas.ids import SystemClock


def test_offsets_times_and_durations() -> None:
    assert read_edge("--since", "0:120,1:90") == {0: 120, 1: 90}
    assert read_edge("--since", "2026-12-02T18:00:00Z") == datetime(2026, 12, 2, 18, tzinfo=UTC)
    ago = read_edge("--since", "2h")
    assert isinstance(ago, datetime)
    assert timedelta(0) <= SystemClock().now() - timedelta(hours=2) - ago < timedelta(seconds=30)


@pytest.mark.parametrize(
    ("text", "code"), [("0:1,0:2", "MP491"), ("yesterday", "MP601"), ("0:-1", "MP601"), ("", "MP601")]
)
def test_what_is_no_edge(text: str, code: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_edge("--since", text)
    assert refused.value.code == code and "--since" in refused.value.text


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--topic", "t"],
        ["--topic", "t", "--since", "2h", "--apply"],
        ["--topic", "t", "--since", "2h", "--apply", "--reason", " "],
        ["--resume", "7"],
        ["--resume", "01000000-0000-7000-8000-000000000000", "--topic", "t"],
    ],
)
def test_words_that_do_not_fit_together(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["replay", "books", *words]) == 2
    assert capsys.readouterr().err.startswith("MP601 ")
