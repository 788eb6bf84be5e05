"""The file that says which detached servers run."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import psutil

from . import docker, given, guard
from .databases import answers
from .machine import Record


@dataclass(frozen=True)
class Entry:
    """One server.

    Args:
        address: what clients need.
        record: what ends it.
    """

    address: str
    record: Record

    def running(self) -> bool:
        """Tell whether it still is the server that was started."""
        if self.record.container:
            return docker.runs(self.record.container)
        return guard.same(self.record.pid, self.record.created)

    def healthy(self, part: str) -> bool:
        """Tell whether it runs and answers.

        Args:
            part: "postgres", "kafka" or "jaeger".
        """
        if not self.running():
            return False
        if part == "postgres":
            return answers(self.address)
        if part == "kafka":
            return given.kafka_answers(self.address)
        return given.jaeger_answers(self.address.split(" ")[1])


class State:
    """The entries in one file; the caller holds the lock.

    Args:
        path: the file; may be missing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._entries: dict[str, Entry] = {}
        if path.exists():
            for part, fields in json.loads(path.read_text()).items():
                self._entries[part] = Entry(fields["address"], Record(**fields["record"]))

    def get(self, part: str) -> Entry | None:
        """Return the entry of a part."""
        return self._entries.get(part)

    def put(self, part: str, entry: Entry) -> None:
        """Note a server and write the file."""
        self._entries[part] = entry
        self._write()

    def end(self, part: str) -> bool:
        """End a noted server, remove its data and forget it.

        Returns:
            Whether it was running.
        """
        record = self._entries[part].record
        if record.container:
            ran = docker.remove(record.container)
        else:
            try:
                ran = guard.finish(record.pid, record.created, record.sign)
            except psutil.AccessDenied:
                ran = False
        if record.folder:
            shutil.rmtree(record.folder, ignore_errors=True)
        del self._entries[part]
        self._write()
        return ran

    def _write(self) -> None:
        if not self._entries:
            self.path.unlink(missing_ok=True)
            return
        plain = {
            part: {"address": entry.address, "record": entry.record.as_json()}
            for part, entry in self._entries.items()
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = self.path.with_name(f"{self.path.name}.new")
        new.write_text(json.dumps(plain, indent=2))
        new.replace(self.path)
