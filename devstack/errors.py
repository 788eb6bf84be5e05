"""What can go wrong when local servers are started.

RuntimeError
└── DevstackError        always says what was tried and what to do next
"""

from __future__ import annotations

import subprocess
from pathlib import Path


class DevstackError(RuntimeError):
    """A local server could not be found, started or reached.

    Args:
        problem: what happened, one sentence.
        advice: what the reader can do next.
        log: the last lines of the server's log, when there is one.
    """

    def __init__(self, problem: str, advice: str, log: str = "") -> None:
        self.problem = problem
        self.advice = advice
        self.log = log
        parts = [problem, f"What to do: {advice}"]
        if log:
            parts.append(f"The last lines of its log:\n{log}")
        super().__init__("\n".join(parts))


def last_lines(path: Path, count: int = 20) -> str:
    """Return the last lines of a log file.

    Args:
        path: the file; it may be missing.
        count: how many lines at most.

    Returns:
        The lines, indented by four spaces; empty when there is no file or nothing in it.
    """
    try:
        text = path.read_bytes()[-64_000:].decode("utf-8", "replace")
    except OSError:
        return ""
    return indented(text, count)


def output_lines(done: subprocess.CompletedProcess[str], count: int = 20) -> str:
    """Return the last lines a finished program wrote, indented by four spaces."""
    return indented(f"{done.stdout}\n{done.stderr}".strip(), count)


def indented(text: str, count: int = 20) -> str:
    """Return the last lines of a text, indented by four spaces."""
    return "\n".join(f"    {line}" for line in text.rstrip().splitlines()[-count:])
