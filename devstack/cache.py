"""The cache folder, and entries that are filled once even when two processes want them at the same time."""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

VARIABLE = "MILEPOST_CACHE"


def cache_folder() -> Path:
    """Return the folder for downloads and builds (made when missing).

    Returns:
        What MILEPOST_CACHE names, else the platform's cache folder for milepost.
    """
    named = os.environ.get(VARIABLE)
    if named:
        folder = Path(named).expanduser()
    elif sys.platform == "darwin":
        folder = Path.home() / "Library" / "Caches" / "milepost"
    else:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "milepost"
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock among processes.

    Args:
        path: the lock file; it stays behind, empty.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)


def filled(name: str, fill: Callable[[Path], None]) -> Path:
    """Return a cache entry, filling it when it is missing.

    Args:
        name: the entry's folder name; put the version of what is inside into it.
        fill: fills the empty folder it is given; when it raises, nothing of it is kept.

    Returns:
        The finished folder. A folder of that name is always complete: it gets its name by one rename.
    """
    final = cache_folder() / name
    if final.is_dir():
        return final
    with locked(final.with_name(f"{name}.lock")):
        if final.is_dir():
            return final
        work = final.with_name(f"{name}.unfinished")
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        try:
            fill(work)
            work.rename(final)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return final
