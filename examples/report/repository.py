"""Reads a git repository and writes nothing to it: no lock, no refreshed index, no program that it names."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from datetime import date

from milepost import Refused

from .contracts import MOST_COMMITS, Collected, Commit

#: Git takes no lock to be quick next time, fetches nothing that is missing, and asks nobody.
_ENV = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_PAGER": "cat",
    "LC_ALL": "C.UTF-8",
}
#: What a repository's own configuration may not make of it: programs that it names are not run.
_CONFIG = ("-c", "core.fsmonitor=false", "-c", "log.showSignature=false", "-c", "core.hooksPath=/dev/null")
#: Fields are ended by NUL, which no field can hold: id, author, subject, and what --numstat says.
_FORMAT = "--pretty=format:%x00%H%x00%an%x00%s%x00"
#: Longest wait for git, in seconds.
_TIMEOUT = 60.0


async def collect(repo: str, day: date) -> Collected:
    """Read the commits of a day, by committer date in UTC, that HEAD leads to.

    Args:
        repo: Path of the repository.

    Raises:
        Refused: NO_REPOSITORY, with git's words; NO_COMMITS on a day without any.
    """
    head = (await _git(repo, "rev-parse", "--verify", "HEAD^{commit}")).strip()
    since, until = f"{day.isoformat()}T00:00:00Z", f"{day.isoformat()}T23:59:59Z"
    span = (f"--since-as-filter={since}", f"--until={until}")
    log = ("log", "--no-ext-diff", "--no-textconv", "--no-renames", "--numstat", "--topo-order", "--reverse")
    commits = list(_commits(await _git(repo, *log, *span, _FORMAT, head)))
    if not commits:
        raise Refused("NO_COMMITS", f"no commits on {day.isoformat()} (UTC)")
    return Collected(head=head, commits=commits[:MOST_COMMITS], left_out=max(0, len(commits) - MOST_COMMITS))


def _commits(text: str) -> Iterator[Commit]:
    fields = text.split("\0")[1:]
    for id, author, subject, numbers in zip(*(fields[n::4] for n in range(4)), strict=True):
        lines = [line.split("\t") for line in numbers.splitlines() if line.count("\t") >= 2]
        yield Commit(
            id=id,
            author=author[:80],
            subject=subject[:200],
            files=len(lines),
            added=sum(int(line[0]) for line in lines if line[0].isdecimal()),  # "-" of a binary file
            removed=sum(int(line[1]) for line in lines if line[1].isdecimal()),
        )


async def _git(repo: str, *words: str) -> str:
    child = await asyncio.create_subprocess_exec(
        *("git", "--no-optional-locks", "--no-pager", *_CONFIG, "-C", repo, *words),
        env={**os.environ, **_ENV},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, errors = await asyncio.wait_for(child.communicate(), _TIMEOUT)
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode:
        raise Refused("NO_REPOSITORY", errors.decode("utf-8", "replace").strip()[:500])
    return out.decode("utf-8", "replace")
