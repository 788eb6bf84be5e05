"""The whole of it with stand-ins: odd answers, a kill between model and page, a resume, and the books compared."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from urllib.parse import urlsplit

from milepost.devstack.databases import on_database
from rich.console import Console
from rich.text import Text

from ..stage.processes import DemoFailed, Fleet, ports, until
from ..stage.servers import own_database, stack
from .book import Book
from .contracts import DailyReport
from .verdict import Facts, compare

#: Where everything goes, seen from the folder in which it is started.
FOLDER = Path("build/report")
DAY = date(2026, 3, 14)
#: How the model answers: the third time well.
CHATS = ("incomplete", "invents", "good")
#: How calls for a page go: not at all, lost on the way, and made without an answer, which is when the kill comes.
CALLS = ("503", "lost", "hold")
_PID = re.compile(r"engine: pid (\d+)")


def run(console: Console) -> int:
    """Run it once; returns 0 when the books are as they should be, else 1."""
    folder = FOLDER.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    wanted = DailyReport(repo=str(make_repository(folder / "garden")), day=DAY)
    tag = f"r{secrets.token_hex(2)}"
    with stack(False, console) as servers:
        with own_database(servers.database_url, f"report_{tag}") as url:
            env = _environment(folder, {**servers.env(), "MILEPOST_DATABASE_URL": url}, tag)
            facts = asyncio.run(_rehearse(console, folder, env, wanted))
    wrong = compare(facts, chats=CHATS, calls=CALLS)
    for line in wrong:
        console.print(Text(line, style="bold red"))
    console.print(last_line(facts, wrong))
    return 1 if wrong else 0


def last_line(facts: Facts, wrong: list[str]) -> str:
    """Return the line that sums it up."""
    said = "failed" if wrong else "ok"
    return f"report {said}: model asked {len(facts.chats)} times, 1 kill, {len(facts.pages)} pages"


async def _rehearse(console: Console, folder: Path, env: Mapping[str, str], wanted: DailyReport) -> Facts:
    before = digests(Path(wanted.repo))
    fleet = Fleet(folder, env)
    company = "milepost.examples.report"
    for name, app, path in (("model", "model_server", "/api/version"), ("pages", "page_server", "/calls")):
        port = urlsplit(env[f"REPORT_{name.upper()}_URL"]).port or 0
        ledger = {"COMPANY_LEDGER": str(folder / f"{name}.sqlite")}
        fleet.add_web(name, f"{company}.{app}:api", port, path=path, env=ledger)
    try:
        fleet.start()
        await fleet.watched(fleet.come_up())
        console.print("$ report run")
        await _killed(console, folder, env, wanted)
        console.print("$ report resume")
        code, said = await _program(env, "resume", wanted)
        console.print(Text(said.rstrip()))
        if code:
            raise DemoFailed(f"report resume ended with {code}")
    finally:
        fleet.stop()
    return _facts(folder, env["MILEPOST_DATABASE_URL"], wanted, before)


async def _killed(console: Console, folder: Path, env: Mapping[str, str], wanted: DailyReport) -> None:
    """Begin the report, and kill the service's process when the page is made and nobody has been told so."""
    child = asyncio.create_task(_program(env, "run", wanted))
    log = folder / "run.log"
    book = Book(folder / "pages.sqlite")

    async def made() -> bool:
        if child.done():
            raise DemoFailed(f"report run has ended by itself:\n{log.read_text()}")
        return bool(book.entries("page"))

    try:
        await until(made, "the page")
        pid = int(_PID.findall(log.read_text())[-1])
        os.kill(pid, signal.SIGKILL)
        code, said = await child
    finally:
        book.close()
        if not child.done():
            child.cancel()
    console.print(Text(said.rstrip()))
    console.print(
        f"SIGKILL engine (pid {pid}): the page was made and it had not been told; exit status {code}"
    )
    if code != 4:
        raise DemoFailed(f"report run ended with {code}, not 4")


async def _program(env: Mapping[str, str], command: str, wanted: DailyReport) -> tuple[int, str]:
    """Run one command of the report's command line, as a user does."""
    words = ("-m", "milepost.examples.report", command, "--repo", wanted.repo, "--date", str(wanted.day))
    log = Path(env["REPORT_FOLDER"]).parent / f"{command}.log"
    with log.open("wb") as file:
        child = await asyncio.create_subprocess_exec(
            sys.executable, *words, env={**os.environ, **env}, stdout=file, stderr=asyncio.subprocess.STDOUT
        )
        try:
            code = await child.wait()
        finally:
            if child.returncode is None:
                child.terminate()
                await child.wait()
    return code, log.read_text()


def _environment(folder: Path, servers: Mapping[str, str], tag: str) -> dict[str, str]:
    token, port = secrets.token_hex(8), ports(("model", "pages"))
    return {
        **servers,
        "MILEPOST_LEASE": "2s",
        "MILEPOST_GRACE": "5s",
        "MILEPOST_NUDGE": "2s",
        "PYTHONUNBUFFERED": "1",
        "REPORT_PREFIX": f"{tag}-",
        "REPORT_MODEL_URL": f"http://127.0.0.1:{port['model']}",
        "REPORT_PAGES_URL": f"http://127.0.0.1:{port['pages']}",
        "REPORT_PAGES_TOKEN": token,
        "REPORT_FOLDER": str(folder / "reports"),
        "PAGES_TOKEN": token,
        "MODEL_SCRIPT": ",".join(CHATS),
        "PAGES_SCRIPT": ",".join(CALLS),
    }


def _facts(folder: Path, url: str, wanted: DailyReport, before: Mapping[str, str]) -> Facts:
    found = on_database(
        url, lambda one: one.fetchrow("SELECT * FROM daily_report WHERE key = $1", wanted.key)
    )
    row = None if found is None else dict(found)
    path = Path(str(row["path"])) if row else folder / "nothing"
    model, pages = Book(folder / "model.sqlite"), Book(folder / "pages.sqlite")
    try:
        return Facts(
            key=wanted.key,
            row=row,
            file=path.read_bytes() if path.is_file() else None,
            chats=model.entries("chat"),
            calls=pages.entries("call"),
            pages=[(entry.name, json.loads(entry.content)) for entry in pages.entries("page")],
            before=before,
            after=digests(Path(wanted.repo)),
        )
    finally:
        model.close()
        pages.close()


def digests(folder: Path) -> dict[str, str]:
    """Return the digest of every file in a folder, and of the time at which it was last written."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(
            path.read_bytes() + str(path.stat().st_mtime_ns).encode()
        ).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def make_repository(folder: Path) -> Path:
    """Make a git repository with three commits on DAY, and one before and one after it; returns its folder."""
    folder.mkdir(parents=True)
    _git(folder, DAY, "init", "-q", "-b", "main")
    for n, (day, subject) in enumerate(
        [
            (date(2026, 3, 13), "Dig the beds"),
            (DAY, "Sow peas"),
            (DAY, "Plant the pear tree"),
            (DAY, "Mend the fence"),
            (date(2026, 3, 15), "Water everything"),
        ]
    ):
        (folder / "diary.txt").write_text("".join(f"{line}\n" for line in range(3 * (n + 1))))
        _git(folder, day, "add", "diary.txt")
        _git(folder, day, "commit", "-q", "-m", subject)
    return folder


def _git(folder: Path, day: date, *words: str) -> None:
    person = {"NAME": "Ann", "EMAIL": "ann@example.com", "DATE": f"{day}T12:00:00Z"}
    given = {
        f"GIT_{role}_{name}": value for role in ("AUTHOR", "COMMITTER") for name, value in person.items()
    }
    subprocess.run(["git", "-C", str(folder), *words], env={**os.environ, **given}, check=True)
