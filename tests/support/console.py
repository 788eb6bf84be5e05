"""The command line in a process of its own, as an operator runs it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.support.process import ROOT


@dataclass(frozen=True)
class Said:
    """What a command answered.

    Attributes:
        code: Its exit status.
        lines: What it wrote on stdout, one JSON object per line.
        errors: What it wrote on stderr.
    """

    code: int
    lines: list[dict[str, Any]]
    errors: str


async def say(url: str, *words: str, env: Mapping[str, str] | None = None, by: str = "ann") -> Said:
    """Run a command of `milepost --json` against a database."""
    code, out, errors = await _run(url, "--json", "--as", by, *words, env=env)
    return Said(code, [json.loads(line) for line in out.splitlines()], errors)


async def spoken(url: str, *words: str) -> str:
    """Return what a command says to people."""
    code, out, errors = await _run(url, *words)
    assert code == 0, errors
    return out


async def _run(url: str, *words: str, env: Mapping[str, str] | None = None) -> tuple[int, str, str]:
    path = os.pathsep.join(part for part in [os.environ.get("PYTHONPATH", ""), str(ROOT)] if part)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "milepost.console.main", "--database", url, *words),
        env={**os.environ, "PYTHONPATH": path, **(env or {})},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )
    async with asyncio.timeout(60):
        out, errors = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), errors.decode()


async def items(url: str, *words: str) -> list[dict[str, Any]]:
    """Run a command that must succeed, and return what it wrote."""
    said = await say(url, *words)
    assert said.code == 0, said
    return said.lines
