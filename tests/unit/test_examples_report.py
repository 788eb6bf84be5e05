"""The parts of the report example that need no server: what is read, asked for, checked, kept and compared."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from milepost import Refused
from milepost.examples.report import brief, checks, demo, files, repository
from milepost.examples.report.book import Book, Entry
from milepost.examples.report.clients import blocks
from milepost.examples.report.contracts import Collected, Commit, DailyReport
from milepost.examples.report.model_server import written
from milepost.examples.report.status import standing
from milepost.examples.report.verdict import Facts, compare

WANTED = DailyReport(repo="/srv/garden", day=date(2026, 3, 14))
COMMITS = Collected(
    head="f" * 40,
    commits=[
        Commit(id=f"{n}abcdef{n:033d}", author="Ann", subject=f"Thing {n}", files=1, added=3, removed=1)
        for n in (1, 2)
    ],
)
GOOD = written(brief.build(WANTED, COMMITS).text, "good")


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users may enter too."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def garden(open_folder: Path) -> Iterator[Path]:
    """A repository that nobody may write to; root is not asked."""
    folder = demo.make_repository(open_folder / "garden")
    paths = [folder, *folder.rglob("*")]
    for path in paths:
        path.chmod(
            path.stat().st_mode & ~(stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH) | stat.S_IRGRP | stat.S_IROTH
        )
        if path.is_dir():
            path.chmod(0o555)
    yield folder
    for path in paths:
        path.chmod(0o755)


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch, garden: Path) -> Iterator[None]:
    """Not root, whom no permission stops, but another user; git is told that the folder's owner is trusted."""
    before = os.geteuid()
    if before == 0:
        for name, value in (("COUNT", "1"), ("KEY_0", "safe.directory"), ("VALUE_0", str(garden))):
            monkeypatch.setenv(f"GIT_CONFIG_{name}", value)
        monkeypatch.setenv("HOME", "/nonexistent")
        os.seteuid(65534)
    yield
    os.seteuid(before)


async def test_a_repository_is_read_without_a_byte_written_to_it(garden: Path, nobody: None) -> None:
    with pytest.raises(PermissionError):
        (garden / ".git" / "index.lock").touch()
    before = demo.digests(garden)
    found = await repository.collect(str(garden), demo.DAY)
    assert [commit.subject for commit in found.commits] == [
        "Sow peas",
        "Plant the pear tree",
        "Mend the fence",
    ]
    assert [(one.author, one.files, one.added, one.removed) for one in found.commits] == [
        ("Ann", 1, 3, 0)
    ] * 3
    assert found.head not in {commit.id for commit in found.commits}
    assert demo.digests(garden) == before


async def test_a_stale_index_stays_stale(tmp_path: Path) -> None:
    folder = demo.make_repository(tmp_path / "garden")
    (folder / "diary.txt").touch()  # `git status` would refresh the index now
    before = demo.digests(folder)
    await repository.collect(str(folder), demo.DAY)
    assert demo.digests(folder) == before


async def test_programs_that_a_repository_names_are_not_run(tmp_path: Path) -> None:
    folder = demo.make_repository(tmp_path / "garden")
    trap = f"touch {tmp_path}/ran; false"
    for name in ("core.fsmonitor", "diff.external", "core.pager", "gpg.program", "diff.x.textconv"):
        subprocess.run(["git", "-C", str(folder), "config", name, trap], check=True)
    subprocess.run(["git", "-C", str(folder), "config", "log.showSignature", "true"], check=True)
    (folder / ".gitattributes").write_text("*.txt diff=x\n")
    assert len((await repository.collect(str(folder), demo.DAY)).commits) == 3
    assert not (tmp_path / "ran").exists()


async def test_odd_words_of_a_commit_are_read_as_they_are(tmp_path: Path) -> None:
    folder = demo.make_repository(tmp_path / "garden")
    dated = {**os.environ, "GIT_COMMITTER_DATE": "2026-03-14T23:59:59Z"}
    odd = "An \x1e odd\x1fone\t2\t3 — “x” `0badc0de`"
    for name in ("user.name", "user.email"):
        subprocess.run(["git", "-C", str(folder), "config", name, "Örn"], check=True)
    subprocess.run(
        ["git", "-C", str(folder), "commit", "-q", "--allow-empty", "-m", odd], env=dated, check=True
    )
    last = (await repository.collect(str(folder), demo.DAY)).commits[-1]
    assert (last.subject, last.author, last.files, last.added) == (odd, "Örn", 0, 0)


async def test_what_is_no_repository_and_a_day_without_commits_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="NO_REPOSITORY"):
        await repository.collect(str(tmp_path), demo.DAY)
    folder = demo.make_repository(tmp_path / "garden")
    with pytest.raises(Refused, match="NO_COMMITS"):
        await repository.collect(str(folder), date(2026, 3, 16))


def test_the_key_is_repository_and_day() -> None:
    assert WANTED.key.startswith("garden-")
    assert WANTED.key.endswith("@2026-03-14")
    others = [
        DailyReport(repo="/srv/other/garden", day=WANTED.day),
        DailyReport(repo=WANTED.repo, day=date(2026, 3, 15)),
    ]
    assert len({WANTED.key, *(other.key for other in others)}) == 3
    assert "/" not in DailyReport(repo="/srv/ä b:c", day=WANTED.day).key


def test_the_hash_of_a_brief_covers_what_the_answer_rests_on() -> None:
    same = brief.build(WANTED, COMMITS)
    assert same == brief.build(WANTED, COMMITS)
    assert same.sha256 != brief.build(WANTED, COMMITS.model_copy(update={"head": "e" * 40})).sha256
    assert (
        same.sha256 != brief.build(WANTED, COMMITS.model_copy(update={"commits": COMMITS.commits[:1]})).sha256
    )
    assert (
        "2 more commits are left out" in brief.build(WANTED, COMMITS.model_copy(update={"left_out": 2})).text
    )


def test_a_good_report_has_no_problems() -> None:
    assert checks.problems(GOOD, WANTED, COMMITS) == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("# garden", "# Garden"), "its first line is not `# garden, 2026-03-14`"),
        (("## Numbers", "Numbers"), "the section `## Numbers` is there 0 times, not once"),
        (("## Changes", "## Summary"), "the section `## Summary` is there 2 times, not once"),
        (("1abcdef000", "0badc0de01"), "there is no commit `0badc0de01` on that day"),
        (("`1abcdef000`", "`deadbeef`"), "there is no commit `deadbeef` on that day"),
        (("Thing 1", "like 0badc0de01"), "there is no commit `0badc0de01` on that day"),
        (("`2abcdef000`", "the other"), "commit `2abcdef000` is not named"),
        (("Thing 2", "x" * 40_000), "characters, not 120 to 30000"),
        (("Thing 2", "\n".join("x" * 101)), "lines, more than 100"),
    ],
)
def test_a_bad_report_has_the_problem_in_words(change: tuple[str, str], problem: str) -> None:
    found = checks.problems(GOOD.replace(*change), WANTED, COMMITS)
    assert any(problem in one for one in found), found


def test_other_orders_and_nothing_are_problems_and_words_are_not() -> None:
    swapped = (
        GOOD.replace("## Summary", "##").replace("## Numbers", "## Summary").replace("##\n", "## Numbers\n")
    )
    assert "its sections are in another order" in checks.problems(swapped, WANTED, COMMITS)
    assert checks.problems("", WANTED, COMMITS)
    assert checks.problems(GOOD.replace("Thing 1", "a facade was defaced in 2026031"), WANTED, COMMITS) == []


def test_a_task_given_anew_tells_what_was_wrong() -> None:
    told = brief.again(brief.build(WANTED, COMMITS), "it is too short")
    assert "- it is too short" in told
    assert checks.problems(written(told, "good"), WANTED, COMMITS) == []


def test_a_file_is_whole_and_what_was_saved_is_what_is_read(tmp_path: Path) -> None:
    saved = files.save(tmp_path / "a" / "b.md", "ä\n")
    assert (saved.size, saved.sha256) == (3, hashlib.sha256("ä\n".encode()).hexdigest())
    assert files.load(saved) == "ä\n"
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b.md"]
    Path(saved.path).write_text("b\n")
    with pytest.raises(Refused, match="REPORT_CHANGED"):
        files.load(saved)
    Path(saved.path).unlink()
    with pytest.raises(Refused, match="REPORT_CHANGED"):
        files.load(saved)


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "b.md"
    files.save(place, "old")

    def full(_descriptor: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        files.save(place, "new")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("b.md", "old")]


def test_blocks_of_a_page() -> None:
    made = blocks("# T\n\n## S\n- one\nrest\n" + "y" * 2001)
    kinds = [block["type"] for block in made]
    assert kinds == ["heading_1", "heading_2", "bulleted_list_item", "paragraph", "paragraph"]
    assert [piece["text"]["content"] for piece in made[4]["paragraph"]["rich_text"]] == ["y" * 2000, "y"]
    assert made[2]["bulleted_list_item"]["rich_text"][0]["text"]["content"] == "one"


@pytest.mark.parametrize(
    ("state", "step", "step_state", "word"),
    [
        ("PENDING", None, None, "QUEUED"),
        ("RUNNING", "collect", "RUNNING", "COLLECTING"),
        ("RUNNING", "check", "RUNNING", "WRITING"),
        ("RUNNING", "save", "PENDING", "SAVING"),
        ("RUNNING", "publish", "RETRY_PENDING", "PUBLISHING"),
        ("RUNNING", "publish", "UNKNOWN", "CHECKING"),
        ("SUCCEEDED", None, None, "PUBLISHED"),
        ("FAILED", "collect", "FAILED", "FAILED"),
        ("MANUAL_REQUIRED", "writing", "MANUAL_REQUIRED", "NEEDS A PERSON"),
    ],
)
def test_states_in_the_words_of_the_house(
    state: str, step: str | None, step_state: str | None, word: str
) -> None:
    run = {
        "run": "report/k@d",
        "state": state,
        "step": step,
        "step_state": step_state,
        "code": "C",
        "cause": None,
    }
    assert (standing(run).key, standing(run).word) == ("k@d", word)
    assert standing(run).ended == (state in ("SUCCEEDED", "FAILED", "MANUAL_REQUIRED"))


FACTS = Facts(
    key="k",
    row={"sha256": hashlib.sha256(GOOD.encode()).hexdigest()},
    file=GOOD.encode(),
    chats=[Entry(1, "chat", "good", "")],
    calls=[Entry(1, "call", "503", ""), Entry(2, "call", "ok", "")],
    pages=[("k", json.loads(json.dumps(blocks(GOOD))))],
    before={"a": "1"},
    after={"a": "1"},
)


def wrong(facts: Facts) -> list[str]:
    return compare(facts, chats=["good"], calls=["503", "ok"])


def test_books_that_are_as_they_should_be() -> None:
    assert wrong(FACTS) == []
    assert demo.last_line(FACTS, []) == "report ok: model asked 1 times, 1 kill, 1 pages"


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (replace(FACTS, chats=[*FACTS.chats, Entry(2, "chat", "good", "")]), "the model was asked 2 times"),
        (replace(FACTS, chats=[]), "the model was asked 0 times"),
        (replace(FACTS, pages=[*FACTS.pages, *FACTS.pages]), "2 pages exist (k, k)"),
        (replace(FACTS, pages=[]), "0 pages exist"),
        (replace(FACTS, calls=FACTS.calls[:1]), "a page was asked for 1 times (503), not 2"),
        (replace(FACTS, pages=[("k", [])]), "the page is not what is in the file"),
        (replace(FACTS, row=None), "the report is not on record"),
        (replace(FACTS, file=None), "the report's file is gone"),
        (replace(FACTS, after={"a": "2"}), "a of the repository has changed"),
        (replace(FACTS, after={"a": "1", "b": "1"}), "b of the repository has changed"),
    ],
)
def test_what_is_wrong_is_found(facts: Facts, words: str) -> None:
    found = wrong(facts)
    assert any(line.startswith(words) for line in found), found
    assert demo.last_line(facts, found).startswith("report failed:")


def test_a_changed_file_is_found() -> None:
    assert "the file is not what is on record" in wrong(replace(FACTS, file=b"x"))


def test_a_book_counts_within_a_kind(tmp_path: Path) -> None:
    book = Book(tmp_path / "book.sqlite")
    assert [book.write("call", "ok"), book.write("page", "k", "[]"), book.write("call", "503")] == [1, 1, 2]
    assert [entry.name for entry in book.entries("call")] == ["ok", "503"]
    assert book.entries("page", "other") == []
    book.close()
