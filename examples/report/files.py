"""Keeps reports as files: whole or not at all."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from milepost import Refused

from .contracts import Saved


def save(path: Path, text: str) -> Saved:
    """Write a file so that a crash leaves the old one or the new one: aside, synced, renamed, folder synced."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = text.encode()
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with aside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return Saved(path=str(path), sha256=hashlib.sha256(content).hexdigest(), size=len(content))


def load(saved: Saved) -> str:
    """Read a report that was saved.

    Raises:
        Refused: REPORT_CHANGED when the file is gone or is not what was saved.
    """
    try:
        content = Path(saved.path).read_bytes()
    except OSError as error:
        raise Refused("REPORT_CHANGED", f"{saved.path}: {error}") from error
    if hashlib.sha256(content).hexdigest() != saved.sha256:
        raise Refused("REPORT_CHANGED", f"{saved.path} is not what was saved: its sha256 differs")
    return content.decode()
