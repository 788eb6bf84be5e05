"""A small process that ends a server when the one who started it disappears.

Started as a script: ``guard.py PID CREATED SIGNAL FOLDER``. It waits on its standard input, a pipe that only
the starter holds open. A line means the starter has cleaned up itself. End of file without a line means the
starter died, even by SIGKILL: the server gets the signal, 10 seconds later SIGKILL, and its folder is removed
if one is named.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import sys
import time

import psutil


def same(pid: int, created: float) -> bool:
    """Tell whether a process runs and is the one that was started at that time."""
    try:
        process = psutil.Process(pid)
        return abs(process.create_time() - created) < 0.5 and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def finish(pid: int, created: float, sign: int, seconds: float = 10.0) -> bool:
    """End a process, if it still is the one that was started.

    Args:
        pid: its process id.
        created: its create time, seconds since the epoch as psutil gives it.
        sign: the signal that asks it to end; SIGKILL follows when it does not.
        seconds: how long to wait between the two.

    Returns:
        Whether such a process was running.
    """
    if not same(pid, created):
        return False
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        process.send_signal(sign)
        process.send_signal(signal.SIGCONT)
        if not ended(pid, created, seconds):
            process.kill()
            ended(pid, created, seconds)
    return True


def ended(pid: int, created: float, seconds: float) -> bool:
    """Wait for a process to end; one that only waits to be collected by its parent counts as ended."""
    end = time.monotonic() + seconds
    while same(pid, created):
        if time.monotonic() >= end:
            return False
        time.sleep(0.02)
    return True


def main() -> None:
    """Wait for the starter's word or its end."""
    if sys.stdin.readline():
        return
    pid, created, sign, folder = sys.argv[1:5]
    with contextlib.suppress(psutil.Error):
        finish(int(pid), float(created), int(sign))
    if folder:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
