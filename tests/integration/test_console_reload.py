"""`serve --reload`: the child starts anew when a source file changes, and ends with its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from milepost.console.reload import source_files, times

from tests.support.waiting import until

CHILD = "import os, signal, sys; open(sys.argv[1], 'a').write(f'{os.getpid()}\\n'); signal.pause()"
PARENT = """
import sys
from milepost.console.reload import Reloader, source_files, times
sys.path.insert(0, ".")
look = lambda: times(source_files("shop.service"))
reloader = Reloader(sys.argv[1:], look, lambda text: print(text, flush=True), 0.05)
sys.exit(reloader.run() % 256)
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a package `shop`."""
    (tmp_path / "shop" / "sagas").mkdir(parents=True)
    for name in ("__init__.py", "service.py", "sagas/order.py"):
        (tmp_path / "shop" / name).write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.fixture
def parent(package: Path) -> Iterator[subprocess.Popen[str]]:
    """A reloading parent whose children write their process ids to the file `pids`."""
    child = [sys.executable, "-c", CHILD, str(package / "pids")]
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, *child], cwd=package, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()


def pids(package: Path) -> list[int]:
    path = package / "pids"
    return [int(line) for line in path.read_text().splitlines()] if path.exists() else []


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_change_starts_a_new_child_and_ends_the_old_one(
    package: Path, parent: subprocess.Popen[str]
) -> None:
    await until(lambda: len(pids(package)) == 1, what="the first child")
    (package / "shop" / "sagas" / "order.py").write_text("x = 1\n")
    await until(lambda: len(pids(package)) == 2, what="the second child")
    old, new = pids(package)
    assert not alive(old)
    assert alive(new)
    parent.send_signal(signal.SIGTERM)
    assert parent.wait(10) == -signal.SIGTERM % 256
    assert not alive(new)


async def test_a_child_that_ended_by_itself_is_started_by_the_next_change(
    package: Path, parent: subprocess.Popen[str]
) -> None:
    await until(lambda: len(pids(package)) == 1, what="the first child")
    os.kill(pids(package)[0], signal.SIGKILL)
    assert parent.stdout is not None
    assert "waiting for a change" in parent.stdout.readline()
    (package / "shop" / "new.py").write_text("")
    await until(lambda: len(pids(package)) == 2, what="the second child")
    parent.send_signal(signal.SIGINT)
    parent.wait(10)
    assert not alive(pids(package)[1])


def test_the_whole_outermost_package_is_watched(package: Path) -> None:
    assert [path.relative_to(package).as_posix() for path in source_files("shop.service")] == [
        *("shop/__init__.py", "shop/sagas/order.py", "shop/service.py"),
    ]
    (package / "alone.py").write_text("")
    assert [path.name for path in source_files("alone")] == ["alone.py"]
    assert [path.name for path in source_files("not_there_yet")] == ["alone.py"]
    assert times([package / "gone.py"]) == {}
