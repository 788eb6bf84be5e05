"""Artifacts and their steps, in the kit: recorded together or not at all, and read by their tenant alone."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from milepost import (
    Absent,
    Artifact,
    Context,
    Found,
    Milepost,
    Probe,
    Refused,
    Repeat,
    Retry,
    RunRef,
    RunState,
    Saga,
    Settings,
    Transaction,
)
from milepost.testing import Kit, open_kit
from pydantic import BaseModel

ONCE = Retry(attempts=1)


class Given(BaseModel):
    name: str
    data: str = "data"
    other: Artifact | None = None


class Made(BaseModel):
    artifact: Artifact


def saga(name: str) -> Saga[Given]:
    """An empty saga."""
    return Saga(name, version=1, input=Given, key=lambda given: given.name)


@asynccontextmanager
async def kept(*sagas: Saga[Given]) -> AsyncIterator[tuple[Kit, Milepost]]:
    """Open a kit on a service; its own store must not be touched."""
    url = os.environ.get("MILEPOST_TEST_DATABASE_URL", "postgresql://nowhere/none")
    settings = Settings(database_url=url, artifacts="file:///proc/nothing-can-be-written-here")  # type: ignore[arg-type]
    service = Milepost("keeper", sagas=sagas, settings=settings)
    async with open_kit(service) as kit:
        yield kit, service


async def rows(service: Milepost, run: RunRef) -> list[asyncpg.Record]:
    """Return what is recorded for a run."""
    async with service.transaction() as tx:
        query = "SELECT * FROM milepost.artifact WHERE run_id = $1 ORDER BY created_at, name"
        found: list[asyncpg.Record] = await tx.connection.fetch(query, run.id)
        return found


def objects(service: Milepost) -> list[str]:
    """Return the files of the kit's store."""
    folder = Path((service.settings.artifacts or "").removeprefix("file://"))
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


async def test_a_try_that_fails_records_nothing_and_the_next_writes_elsewhere() -> None:
    one = saga("one")
    tries: list[int] = []

    @one.step(repeat=Repeat.SAFE)
    async def write(ctx: Context[Given]) -> Made:
        made = Made(artifact=await ctx.artifact("x.txt", ctx.input.data.encode(), type="text/plain"))
        tries.append(ctx.attempt)
        if len(tries) == 1:
            raise ConnectionResetError("after the artifact")
        assert await ctx.read_artifact(made.artifact) == b"data", "before it is recorded"
        return made

    one.flow(write)
    async with kept(one) as (kit, service):
        run = await kit.start(one, Given(name="a"))
        await kit.until(run, RunState.SUCCEEDED)
        made = (await kit.result(run, write)).artifact
        (row,) = await rows(service, run)
        assert objects(service) == [f"one/{run.id}/write/{fence}/x.txt" for fence in (1, 2)]
        assert row["location"] == made.location == f"one/{run.id}/write/2/x.txt"
        assert (row["sha256"].hex(), row["size"], row["type"]) == (made.sha256, 4, "text/plain")


@pytest.mark.parametrize("when", ["before", "after_effect", "after_record"])
async def test_a_process_that_dies_leaves_one_row_or_none(when: Any) -> None:
    one = saga("one")

    @one.step(repeat=Repeat.SAFE)
    async def write(ctx: Context[Given]) -> Made:
        return Made(artifact=await ctx.artifact("x", b"1"))

    one.flow(write)
    async with kept(one) as (kit, service):
        kit.crash(write, when=when)
        run = await kit.start(one, Given(name="a"))
        await kit.until(run, RunState.SUCCEEDED)
        (row,) = await rows(service, run)
        assert (await kit.result(run, write)).artifact.location == row["location"]
        assert len(objects(service)) == (2 if when == "after_effect" else 1)


async def test_undo_probe_and_transactional_step_record_theirs_too() -> None:
    one = saga("one")

    @one.tx_step()
    async def book(ctx: Context[Given], tx: Transaction) -> Made:
        return Made(artifact=await ctx.artifact("booked", b"1"))

    @book.undo
    async def unbook(ctx: Context[Given], done: Made) -> None:
        data = await ctx.read_artifact(done.artifact)
        await ctx.artifact("unbooked", data + b"2")

    @one.step(repeat=Repeat.ASK_FIRST, no_undo="asked only")
    async def ask(ctx: Context[Given]) -> Made:
        raise TimeoutError

    @ask.probe
    async def find(ctx: Context[Given]) -> Probe[Made]:
        made = Made(artifact=await ctx.artifact("found", b"3"))
        return Found(made) if ctx.attempt else Absent()

    @one.step(repeat=Repeat.SAFE, no_undo="fails")
    async def fail(ctx: Context[Given]) -> None:
        await ctx.artifact("failure", b"4")
        raise Refused("NO")

    one.flow(book, ask, fail)
    async with kept(one) as (kit, service):
        run = await kit.start(one, Given(name="a"))
        await kit.until(run, RunState.COMPENSATED)
        found = [(row["step"], row["name"], row["size"]) for row in await rows(service, run)]
        assert found == [("book", "booked", 1), ("ask", "found", 1), ("unbook", "unbooked", 2)]


async def test_what_somebody_changed_or_removed_is_not_read(tmp_path: Path) -> None:
    one, folders = saga("one"), list[Path]()

    @one.step(repeat=Repeat.SAFE)
    async def write(ctx: Context[Given]) -> Made:
        return Made(artifact=await ctx.artifact("x", ctx.input.data.encode()))

    @one.step(repeat=Repeat.SAFE)
    async def meddle(ctx: Context[Given]) -> None:
        file = folders[0] / ctx.result(write).artifact.location
        if ctx.input.name == "changed":
            file.write_bytes(b"DATA")
        if ctx.input.name == "gone":
            file.unlink()

    @one.step(repeat=Repeat.SAFE, retry=ONCE)
    async def read(ctx: Context[Given]) -> None:
        await ctx.save_artifact(ctx.result(write).artifact, tmp_path / ctx.input.name)

    one.flow(write, meddle, read)
    async with kept(one) as (kit, service):
        folders.append(Path((service.settings.artifacts or "").removeprefix("file://")))
        for name, code in (("kept", None), ("changed", "ARTIFACT_CHANGED"), ("gone", "ARTIFACT_MISSING")):
            run = await kit.start(one, Given(name=name))
            await kit.until(run, RunState.FAILED if code else RunState.SUCCEEDED)
            async with service.transaction() as tx:
                query = "SELECT code FROM milepost.step WHERE run_id = $1 AND name = 'read'"
                assert await tx.connection.fetchval(query, run.id) == code
        assert [path.name for path in tmp_path.iterdir()] == ["kept"], "nothing half copied is left"


async def test_a_reference_is_worth_nothing_to_another_tenant_or_when_made_up() -> None:
    maker, reader = saga("maker"), saga("reader")
    seen: dict[str, str] = {}

    @maker.step(repeat=Repeat.SAFE)
    async def write(ctx: Context[Given]) -> Made:
        return Made(artifact=await ctx.artifact("x", b"secret"))

    maker.flow(write)

    @reader.step(repeat=Repeat.SAFE, retry=ONCE)
    async def read(ctx: Context[Given]) -> None:
        assert ctx.input.other is not None
        try:
            seen[ctx.input.name] = (await ctx.read_artifact(ctx.input.other)).decode()
        except Exception as error:
            seen[ctx.input.name] = getattr(error, "code", repr(error))

    reader.flow(read)
    async with kept(maker, reader) as (kit, service):
        async with service.transaction() as tx:
            run = await service.start(tx, maker, Given(name="a"), tenant="red")
        await kit.until(run, RunState.SUCCEEDED)
        made = (await kit.result(run, write)).artifact
        forged = made.model_copy(update={"location": "../../../etc/passwd"})
        cases = (("same", made, "red"), ("other", made, "blue"), ("forged", forged, "red"))
        for name, reference, tenant in cases:
            async with service.transaction() as tx:
                run = await service.start(tx, reader, Given(name=name, other=reference), tenant=tenant)
            await kit.until(run, RunState.SUCCEEDED)
        assert seen == {"same": "secret", "other": "MP365", "forged": "MP366"}


async def test_calls_that_do_not_fit_are_refused() -> None:
    one = saga("one")
    seen: list[str] = []

    @one.step(repeat=Repeat.SAFE)
    async def write(ctx: Context[Given]) -> None:
        made = await ctx.artifact("x", b"12345")
        wrong: list[Any] = [("x", b"", "a/b"), ("../x", b"", "a/b"), ("y", "text", "a/b"), ("y", b"", "")]
        for name, data, kind in wrong:
            try:
                await ctx.artifact(name, data, type=kind)
            except Exception as error:
                seen.append(getattr(error, "code", repr(error)))
        try:
            await ctx.read_artifact(made, max_bytes=4)
        except Exception as error:
            seen.append(getattr(error, "code", repr(error)))

    one.flow(write)
    async with kept(one) as (kit, service):
        run = await kit.start(one, Given(name="a"))
        await kit.until(run, RunState.SUCCEEDED)
        assert seen == ["MP364"] * 4 + ["MP369"]
        assert [row["name"] for row in await rows(service, run)] == ["x"]
