"""Restarting a child process whenever a source file of the application changes. For development only."""

from __future__ import annotations

import importlib.util
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType

#: How often the files' times are looked at, in seconds.
POLL = 0.5


def source_files(module: str) -> list[Path]:
    """Return the Python files of the application's outermost package, or beside its module.

    Args:
        module: Dotted name of the application's module.
    """
    outermost = module.partition(".")[0]
    try:
        spec = importlib.util.find_spec(outermost)
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        return sorted(Path.cwd().glob("*.py"))
    if spec.submodule_search_locations:
        return sorted(path for place in spec.submodule_search_locations for path in Path(place).rglob("*.py"))
    return sorted(Path(spec.origin).parent.glob("*.py")) if spec.origin else []


def times(files: Sequence[Path]) -> Mapping[Path, int]:
    """Return when each file was last changed, in nanoseconds; files that are gone are left out."""
    found = {}
    for path in files:
        try:
            found[path] = path.stat().st_mtime_ns
        except OSError:
            continue
    return found


class Reloader:
    """Keeps one child running and starts it anew when a file has changed.

    Args:
        command: The child's command line.
        look: Returns the files' times.
        note: Receives words about what happens.
        poll: Seconds between two looks.
    """

    def __init__(
        self,
        command: Sequence[str],
        look: Callable[[], Mapping[Path, int]],
        note: Callable[[str], None],
        poll: float = POLL,
    ) -> None:
        self._command = list(command)
        self._look = look
        self._note = note
        self._poll = poll
        self._stop = threading.Event()
        self._child: subprocess.Popen[bytes] | None = None

    def run(self) -> int:
        """Run until SIGTERM or SIGINT.

        Returns:
            The last child's exit status.
        """
        handled = (signal.SIGTERM, signal.SIGINT)
        before = [signal.signal(number, self._asked) for number in handled]
        try:
            return self._watch()
        finally:
            for number, handler in zip(handled, before, strict=True):
                signal.signal(number, handler)

    def _asked(self, number: int, frame: FrameType | None) -> None:
        self._stop.set()
        if self._child is not None and self._child.poll() is None:
            self._child.send_signal(number)

    def _watch(self) -> int:
        seen = self._look()
        child = self._start()
        while not self._stop.is_set():
            if child.poll() is not None and self._child is child:
                self._note(f"ended with status {child.returncode}; waiting for a change")
                self._child = None
            self._stop.wait(self._poll)
            now = self._look()
            if now != seen and not self._stop.is_set():
                changed = sorted(path.name for path, _ in set(now.items()) ^ set(seen.items()))
                self._note(f"{', '.join(dict.fromkeys(changed))} changed; starting anew")
                seen = now
                if child.poll() is None:
                    child.terminate()
                child.wait()
                child = self._start()
        return child.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        # A session of its own: Ctrl-C on the terminal reaches the child once, through us.
        self._child = subprocess.Popen(self._command, start_new_session=True)
        if self._stop.is_set():
            self._child.terminate()
        return self._child


def serve_again(module: str, words: Sequence[str], note: Callable[[str], None]) -> int:
    """Run `milepost WORDS` in a child that starts anew when a source file of `module` changes."""
    sys.path.insert(0, str(Path.cwd()))
    command = [sys.executable, "-m", f"{__package__}.main", *words]
    return Reloader(command, lambda: times(source_files(module)), note).run()
