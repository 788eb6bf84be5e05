"""The report's saga in the kit: bounded tries of the model, and a page that fails without asking it again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from milepost import RunState, StepState, Transaction
from milepost.examples.report import cli, demo
from milepost.examples.report.clients import Model, Pages
from milepost.examples.report.contracts import DailyReport, Page
from milepost.examples.report.model_server import written
from milepost.examples.report.saga import publish, record, report, save, write, writing
from milepost.examples.report.service import TABLE, service
from milepost.testing import Kit, open_kit


@dataclass
class FakeModel(Model):
    """Answers in the order of its script, then well."""

    script: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    name: str = "fake"

    async def write(self, task: str) -> str:
        how = self.script[len(self.asked)] if len(self.asked) < len(self.script) else "good"
        self.asked.append(task)
        return written(task, how)


@dataclass
class FakePages(Pages):
    """Makes a page for every call; fails as often as it is told to."""

    failing: int = 0
    status: int = 503
    made: list[str] = field(default_factory=list)

    async def make(self, external_id: str, heading: str, markdown: str) -> Page:
        if self.failing:
            self.failing -= 1
            request = httpx.Request("POST", "http://pages.example/v1/pages")
            raise httpx.HTTPStatusError(
                "no", request=request, response=httpx.Response(self.status, request=request)
            )
        self.made.append(markdown)
        return Page(id="p", url=f"https://pages.example/{external_id}")

    async def find(self, external_id: str) -> Page | None:
        return Page(id="p", url=f"https://pages.example/{external_id}") if self.made else None


@dataclass
class World:
    kit: Kit
    model: FakeModel
    pages: FakePages
    wanted: DailyReport


async def make_table(tx: Transaction) -> None:
    await tx.connection.execute(TABLE)


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setenv("REPORT_FOLDER", str(tmp_path / "reports"))
    wanted = DailyReport(repo=str(demo.make_repository(tmp_path / "garden")), day=demo.DAY)
    async with open_kit(service, prepare=make_table) as kit:
        model, pages = FakeModel(), FakePages()
        kit.provide(Model, model)
        kit.provide(Pages, pages)
        yield World(kit, model, pages, wanted)


async def test_a_good_answer_is_asked_for_once_and_kept(world: World, tmp_path: Path) -> None:
    run = await world.kit.start(report, world.wanted)
    await world.kit.until(run, RunState.SUCCEEDED)
    assert len(world.model.asked) == 1
    saved = await world.kit.result(run, save)
    assert world.pages.made == [Path(saved.path).read_text()]
    assert [path.name for path in (tmp_path / "reports").iterdir()] == [f"{world.wanted.key}.md"]


async def test_bad_answers_are_told_what_was_wrong(world: World) -> None:
    world.model.script = ["incomplete", "invents"]
    run = await world.kit.start(report, world.wanted)
    await world.kit.until(run, RunState.SUCCEEDED)
    assert len(world.model.asked) == 3
    assert "`## Numbers` is there 0 times" in world.model.asked[1]
    assert "there is no commit `0badc0de01`" in world.model.asked[2]
    assert (await world.kit.result(run, write)).tries == 3


async def test_after_three_bad_answers_a_person_is_asked_and_nothing_is_published(world: World) -> None:
    world.model.script = ["invents"] * 9
    run = await world.kit.start(report, world.wanted)
    await world.kit.until(run, RunState.MANUAL_REQUIRED)
    await world.kit.until_step(run, writing, StepState.MANUAL_REQUIRED)
    assert len(world.model.asked) == 3
    assert world.pages.made == []


async def test_a_failing_page_never_asks_the_model_again(world: World) -> None:
    world.pages.failing = 5
    run = await world.kit.start(report, world.wanted)
    await world.kit.until(run, RunState.SUCCEEDED)
    assert (len(world.model.asked), len(world.pages.made)) == (1, 1)


async def test_a_page_server_that_says_no_is_a_persons_and_the_model_is_not_asked_again(world: World) -> None:
    world.pages.failing, world.pages.status = 1, 401
    run = await world.kit.start(report, world.wanted)
    await world.kit.until(run, RunState.MANUAL_REQUIRED)
    await world.kit.advance(timedelta(days=2))
    assert (len(world.model.asked), world.pages.made) == (1, [])


async def test_a_lost_answer_is_looked_up_and_the_page_is_made_once(world: World) -> None:
    world.kit.lose_reply(publish)
    run = await world.kit.start(report, world.wanted)
    await world.kit.until_step(run, publish, StepState.UNKNOWN)
    await world.kit.until(run, RunState.SUCCEEDED)
    assert len(world.pages.made) == 1
    assert (await world.kit.result(run, publish)).id == "p"


@pytest.mark.parametrize("step", [write, save, publish, record])
async def test_a_crash_after_a_step_has_acted_repeats_nothing_that_is_done(
    world: World, step: object
) -> None:
    world.kit.crash(step, when="after_record")  # type: ignore[arg-type]
    run = await world.kit.start(report, world.wanted)
    await world.kit.until(run, RunState.SUCCEEDED)
    assert (len(world.model.asked), len(world.pages.made)) == (1, 1)


async def test_a_changed_file_is_not_published(world: World) -> None:
    world.pages.failing = 1
    run = await world.kit.start(report, world.wanted)
    await world.kit.until_step(run, publish, StepState.UNKNOWN)
    saved = await world.kit.result(run, save)
    Path(saved.path).write_text("something else")
    await world.kit.until(run, RunState.MANUAL_REQUIRED)
    assert world.pages.made == []


async def test_the_same_report_again_is_the_same_run(world: World) -> None:
    run = await world.kit.start(report, world.wanted)
    await world.kit.until(run, RunState.SUCCEEDED)
    assert await world.kit.start(report, world.wanted) == run
    assert len(world.model.asked) == 1


def test_status_and_runs_need_only_the_database(
    database_url: str,
    kafka: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in (
        ("MILEPOST_DATABASE_URL", database_url),
        ("MILEPOST_KAFKA", kafka),
        ("REPORT_FOLDER", str(tmp_path / "reports")),
    ):
        monkeypatch.setenv(name, value)
    which = ["--repo", str(tmp_path), "--date", "2026-03-14"]
    assert cli.main(["status", *which]) == 1
    assert cli.main(["resume", *which]) == 1
    said = capsys.readouterr().out
    assert "there is no report" in said
    assert "`report run` begins it" in said
    assert cli.main(["runs"]) == 0
    assert "stands at" in capsys.readouterr().out
