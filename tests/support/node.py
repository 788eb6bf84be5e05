"""The participant in Node of examples/trucks, run as its README says; its client is installed once into build/."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.house import ROOT
from tests.support.waiting import until

SOURCE = ROOT / "examples" / "trucks" / "participant"
FOLDER = ROOT / "build" / "truck-participant"


def installed() -> Path:
    """Return a folder with the participant and its client.

    Skips the test where Node, npm or the client cannot be had.
    """
    if not (shutil.which("node") and shutil.which("npm")):
        pytest.skip("node and npm are not installed")
    FOLDER.mkdir(parents=True, exist_ok=True)
    same = (FOLDER / "package.json").exists() and (FOLDER / "package.json").read_bytes() == (
        SOURCE / "package.json"
    ).read_bytes()
    shutil.copy(SOURCE / "participant.mjs", FOLDER)
    if not (same and (FOLDER / "node_modules" / "kafkajs").is_dir()):
        shutil.copy(SOURCE / "package.json", FOLDER)
        command = ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"]
        try:
            subprocess.run(command, cwd=FOLDER, check=True, capture_output=True, text=True, timeout=180)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"npm install of the participant's client failed: {error.stderr!r}"[:300])
        except subprocess.TimeoutExpired:
            pytest.skip("npm install of the participant's client takes longer than three minutes")
    return FOLDER


@dataclass
class Node:
    """A running participant.

    Attributes:
        lines: What it has said.
    """

    process: asyncio.subprocess.Process
    lines: list[str] = field(default_factory=list)

    async def read(self) -> None:
        """Collect what it says until it ends."""
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.lines.append(line.decode(errors="replace").rstrip())


@asynccontextmanager
async def participating(kafka: str, commands: str, group: str) -> AsyncIterator[Node]:
    """Run the participant until the block ends; it is ready when the block begins."""
    folder = installed()
    process = await asyncio.create_subprocess_exec(
        "node",
        "participant.mjs",
        cwd=folder,
        env={**os.environ, "KAFKA": kafka, "COMMANDS": commands, "GROUP": group, "NODE_NO_WARNINGS": "1"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    node = Node(process)
    reading = asyncio.create_task(node.read())
    try:
        await until(
            lambda: "ready" in node.lines or process.returncode is not None,
            within=60,
            what="the participant to be ready",
        )
        assert process.returncode is None, "\n".join(node.lines)
        yield node
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(process.wait(), 20)
            except TimeoutError:
                process.kill()
                await process.wait()
        await reading
