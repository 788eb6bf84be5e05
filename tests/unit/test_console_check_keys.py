"""`milepost check` looks at the keys that consumers read encrypted events by."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.console_here import Captured, milepost

__all__ = ["milepost"]

APP = """
from milepost import AesGcm, Event, Milepost, Transaction


class Paid(Event, type="shop.paid", topic="paid", key="order", codec=AesGcm()):
    order: str


service = Milepost("shop")
books = service.consumer("books")


@books.on(Paid)
async def book(event: Paid, tx: Transaction) -> None: ...
"""
KEY = "a:" + "A" * 43 + "="


def test_missing_and_wrong_keys_are_findings(
    milepost: Captured, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MILEPOST_DATABASE_URL", raising=False)
    Path("app_sealed.py").write_text(APP)
    for keys, status in (("", 1), ("a:short", 1), (KEY, 0)):
        monkeypatch.setenv("MILEPOST_ENCRYPTION_KEYS", keys)
        found, out, _ = milepost("check", "--app", "app_sealed:service")
        assert (found, "MP346" in out) == (status, status == 1), out
        assert "short" not in out
