"""A hash over files, as a part of a run's fingerprint."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

_PIECE = 1024 * 1024


def context_hash(*paths: Path | str, root: Path | str) -> str:
    """Hash what a run is told to rest on: a task, files, rules.

    It reads the files, so compute it before the run is started and put it into the input; the saga's `fingerprint=` is
    a pure function.

    Args:
        paths: Files and folders below `root`; of a folder all files in it, links to folders not followed.
        root: What names are counted from, so that the hash is the same in every checkout.

    Returns:
        SHA-256 as 64 hexadecimal digits, over the sorted names with the size and the SHA-256 of each file. It does not
        depend on the order of the arguments, on times or on permissions.

    Raises:
        OSError: A file cannot be read, or is not there.
        ValueError: A path is not below `root`.
    """
    base = Path(root).resolve()
    files = {file for path in paths for file in _files(base / path)}
    whole = hashlib.sha256()
    for name, file in sorted((file.resolve().relative_to(base).as_posix(), file) for file in files):
        inner, size = hashlib.sha256(), 0
        with file.open("rb") as opened:
            while piece := opened.read(_PIECE):
                inner.update(piece)
                size += len(piece)
        whole.update(f"{len(name.encode())}:{name}\n{size}\n{inner.hexdigest()}\n".encode())
    return whole.hexdigest()


def _files(path: Path) -> Iterator[Path]:
    if path.is_dir():
        for found in sorted(path.iterdir()):
            if not (found.is_dir() and found.is_symlink()):
                yield from _files(found)
    else:
        path.stat()
        yield path
