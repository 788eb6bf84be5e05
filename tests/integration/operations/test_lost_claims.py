"""The claim is committed and its answer lost: nothing was begun, so the key serves the same request all the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import asyncpg
import pytest
from milepost import ConnectError, Milepost, OperationInProgress, Repeat
from milepost.inbox.operation_model import Asked, Ending, Operation, OperationState
from milepost.inbox.operations import Operations
from milepost.inbox.withdrawal import may_be_committed, statement
from milepost.schemas.ids import SystemIds
from milepost.streams.database import Database

from tests.support.bank import Receipt, Refund
from tests.support.engine import settings_for
from tests.support.keyed import Shop, keyed
from tests.support.proxy import Proxy, proxied
from tests.support.waiting import until

KEY = '"k-lost"'
NAME, ASKED, DAY = ("", "refund", "k-lost"), Asked(b"f", Repeat.NEVER), timedelta(days=1)


async def served(shop: Shop) -> bool:
    """Whether the same request is handled by now."""
    answer = await shop.post(KEY)
    assert answer.status_code in {201, 409}, answer.text
    assert answer.status_code == 201 or answer.json()["code"] == "MP461", "never unknown"
    return answer.status_code == 201


async def test_a_key_whose_claim_was_answered_by_silence_is_usable_again(database_url: str) -> None:
    async with proxied(database_url) as (proxy, through), keyed(through) as shop:
        assert (await shop.post('"k-0"')).status_code == 201
        proxy.lose(b"k-lost")
        assert (await shop.post(KEY)).status_code == 503
        assert proxy.lost == 1
        await until(lambda: served(shop), within=30, what="the key to be usable again")
        assert await shop.bank.count("effect") == 2
        assert await shop.states() == [("SUCCEEDED", None)] * 2


async def test_a_key_whose_claim_was_answered_too_late_is_usable_again(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("milepost.consumers.idempotency.STORE_WITHIN", 1.0)
    async with proxied(database_url) as (proxy, through), keyed(through) as shop:
        assert (await shop.post('"k-0"')).status_code == 201
        pass_on = proxy.delay(b"k-lost")
        asking = asyncio.create_task(shop.post(KEY))
        await until(lambda: _lost(proxy), within=30, what="the answer to be kept back")
        await asyncio.wait({asking}, timeout=1.5)
        pass_on.set()
        assert (await asking).status_code == 503
        await until(lambda: served(shop), within=30, what="the key to be usable again")
        assert await shop.bank.count("effect") == 2


async def _lost(proxy: Proxy) -> bool:
    return proxy.lost == 1


async def test_a_call_of_once_that_may_not_be_repeated(database_url: str) -> None:
    done: list[str] = []

    async def pay(operation: str) -> Receipt:
        done.append(operation)
        return Receipt(resource_id=str(len(done)), amount=100)

    async with proxied(database_url) as (proxy, through):
        service = Milepost("once", settings=settings_for(through))

        async def once(key: str) -> Receipt:
            return await service.once(
                kind="refund", key=key, request=Refund(order=key), result=Receipt, repeat=Repeat.NEVER, do=pay
            )

        async def again() -> bool:
            try:
                return (await once("k-lost")).amount == 100
            except OperationInProgress:
                return False

        try:
            await once("k-0")
            proxy.lose(b"k-lost")
            with pytest.raises(ConnectError, match=r"MP468.*nothing was begun"):
                await once("k-lost")
            assert (len(done), proxy.lost) == (1, 1)
            await until(again, within=30, what="the key to be usable again")
        finally:
            await service.close()
        assert len(done) == 2


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    database = Database(settings_for(database_url))
    await database.open()
    yield database
    await database.close()


async def record(operations: Operations) -> Operation:
    found = await operations.read(NAME)
    assert found is not None
    return found[0]


async def test_a_lost_claim_of_a_record_gives_it_back_as_it_was(database_url: str) -> None:
    async with proxied(database_url) as (proxy, through):
        database = Database(settings_for(through))
        await database.open()
        try:
            operations = Operations(database.pool, "shop", SystemIds(), timedelta(seconds=30))
            hold = await operations.begin(NAME, ASKED, DAY)
            assert hold is not None
            ending = Ending(state=OperationState.PENDING, keep=DAY, code="HTTP_503")
            assert await operations.finish(hold, ending)
            before = await record(operations)
            assert (
                await operations.claim(NAME, replace(before, fence=99), Repeat.NEVER, DAY, doubt_at=None)
                is None
            )
            proxy.lose(b"k-lost")
            with pytest.raises((asyncpg.PostgresError, OSError)):
                await operations.claim(NAME, before, Repeat.NEVER, DAY, doubt_at=None)

            async def given_back() -> bool:
                return (await record(operations)).state is OperationState.PENDING

            await until(given_back, within=30, what="the record to be given back")
            after = await record(operations)
            assert replace(after, fence=before.fence) == before
            assert after.fence > before.fence
            assert await database.pool.fetchval("SELECT attempts FROM milepost.operation") == 1
            assert await operations.claim(NAME, after, Repeat.NEVER, DAY, doubt_at=None) is not None
        finally:
            await database.close()


async def test_what_somebody_runs_is_never_withdrawn(database: Database) -> None:
    """Each identity is tried against each claim: only its own is taken back."""
    operations = Operations(database.pool, "shop", SystemIds(), timedelta(seconds=30))
    first = await operations.begin(NAME, ASKED, DAY)
    assert first is not None
    await operations.finish(first, Ending(state=OperationState.PENDING, keep=DAY, code="HTTP_503"))
    pending = await record(operations)
    ours, theirs = (Operations(database.pool, "shop", SystemIds(), timedelta(seconds=30)) for _ in range(2))
    held = await theirs.claim(NAME, pending, Repeat.NEVER, DAY, doubt_at=None)
    assert await ours.claim(NAME, pending, Repeat.NEVER, DAY, doubt_at=None) is None, "of two one claims it"
    assert held is not None and held.fence > pending.fence
    others = [(pending.id, pending.fence), (pending.id, pending.fence + 1), (UUID(int=1), held.fence)]
    for identity in others:
        for before in (None, pending):
            query, arguments = statement(NAME, identity, before=before, tried=True)
            assert not await database.pool.fetchval(query, *arguments)
    assert (await record(operations)).state is OperationState.RUNNING
    query, arguments = statement(NAME, (held.id, held.fence), before=None, tried=True)
    assert await theirs.finish(held, Ending(state=OperationState.SUCCEEDED, keep=DAY, result='"x"'))
    assert not await database.pool.fetchval(query, *arguments), "nor what has ended"
    assert (await record(operations)).state is OperationState.SUCCEEDED


def test_what_the_server_says_of_a_statement_is_final() -> None:
    said = [asyncpg.UndefinedTableError("x"), asyncpg.DeadlockDetectedError("x")]
    lost = [
        asyncpg.ConnectionDoesNotExistError("x"),
        asyncpg.AdminShutdownError("x"),
        TimeoutError(),
        OSError(),
    ]
    assert not any(map(may_be_committed, said))
    assert all(map(may_be_committed, lost))
