"""`service.once` on a real database: what is stored, what is raised, and how often the bank pays."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import httpx
import pytest
from milepost import (
    Absent,
    ConnectError,
    Failed,
    IdempotencyKeyReused,
    InProgress,
    Milepost,
    OperationInProgress,
    OutcomeUnknown,
    Probe,
    Refused,
    Repeat,
    StateError,
    UsageError,
)
from milepost.inbox.operation_model import Act, Asked, decide, operation_key
from milepost.inbox.operations import Operations
from milepost.schemas.ids import SystemIds
from milepost.streams.database import Database
from pydantic import BaseModel, SecretStr

from tests.support.bank import Bank, Receipt, Refund
from tests.support.engine import settings_for
from tests.support.waiting import until


@dataclass
class House:
    """A service, its bank, and a shorthand for once."""

    service: Milepost
    bank: Bank
    database: Database
    seen: list[str] = field(default_factory=list)

    async def once(
        self,
        key: str = "o-1",
        *,
        repeat: Repeat = Repeat.SAFE,
        do: Callable[[str], Awaitable[Receipt]] | None = None,
        amount: int = 100,
        **more: Any,
    ) -> Receipt:
        """Refund an order."""

        async def pay(operation: str) -> Receipt:
            self.seen.append(operation)
            return await (do or self.bank.pay)(operation)

        given: dict[str, Any] = {
            "kind": "refund",
            "key": key,
            "request": Refund(order=key, amount=amount),
            "result": Receipt,
            "repeat": repeat,
            "do": pay,
            "probe": self.bank.ask if repeat is Repeat.ASK_FIRST else None,
            "settle": timedelta(0),
        }
        receipt: Receipt = await self.service.once(**{**given, **more})
        return receipt

    async def row(self, query: str = "SELECT * FROM milepost.operation") -> dict[str, Any]:
        """Return the one record."""
        (found,) = await self.database.pool.fetch(query)
        return dict(found)

    async def clock(self, later: str) -> None:
        """Move milepost.clock()."""
        await self.database.pool.execute(
            "CREATE OR REPLACE FUNCTION milepost.clock() RETURNS timestamptz LANGUAGE sql STABLE AS "
            f"$$ SELECT clock_timestamp() + interval '{later}' $$"
        )


@pytest.fixture
async def house(database_url: str) -> AsyncIterator[House]:
    settings = settings_for(database_url, lease=timedelta(seconds=30), max_result_bytes=1000)
    service, database = Milepost("once", settings=settings), Database(settings)
    await database.open()
    bank = Bank(database.pool, dedupes=True)
    await bank.open()
    try:
        yield House(service, bank, database)
    finally:
        await service.close()
        await database.close()


async def lost(key: str) -> Receipt:
    """An answer that never comes."""
    raise httpx.ReadTimeout("nothing came")


def loses_the_answer(bank: Bank) -> Callable[[str], Awaitable[Receipt]]:
    async def pay(key: str) -> Receipt:
        await bank.pay(key)
        raise httpx.ReadTimeout("nothing came")

    return pay


async def test_the_first_call_does_it_and_others_get_the_stored_answer(house: House) -> None:
    first = await house.once()
    assert [await house.once() for _ in range(3)] == [first] * 3
    assert await house.bank.counts() == (1, 1, 0)
    row = await house.row()
    assert (row["state"], row["fence"], row["attempts"], row["wake_at"]) == ("SUCCEEDED", 1, 1, None)
    assert (row["resource_type"], row["resource_id"]) == ("refund", first.resource_id)
    assert abs(row["expires_at"] - row["updated_at"] - timedelta(days=30)) < timedelta(seconds=1)


async def test_twenty_at_once_cause_one_effect(house: House) -> None:
    async def one() -> Receipt | str:
        try:
            return await house.once(repeat=Repeat.NEVER)
        except OperationInProgress as busy:
            assert busy.retry_after is not None and busy.retriable
            return busy.code

    answers = await asyncio.gather(*(one() for _ in range(20)))
    assert await house.bank.counts() == (1, 1, 0)
    receipts = [answer for answer in answers if isinstance(answer, Receipt)]
    assert receipts and len(receipts) + answers.count("MP461") == 20
    assert await house.once(repeat=Repeat.NEVER) == receipts[0]


async def test_another_request_is_refused_whatever_became_of_the_first(house: House) -> None:
    await house.once()
    with pytest.raises(IdempotencyKeyReused, match="MP460"):
        await house.once(amount=7)
    for state in ("'RUNNING', wake_at = now() + '1 h'", "'UNKNOWN', wake_at = now(), doubt_at = now()"):
        await house.database.pool.execute(f"UPDATE milepost.operation SET expires_at = NULL, state = {state}")
        with pytest.raises(IdempotencyKeyReused):
            await house.once(amount=7)
    assert await house.bank.counts() == (1, 1, 0)


async def test_kinds_keys_and_tenants_are_independent(house: House) -> None:
    for more in ({}, {"kind": "gift"}, {"key": "o-2"}, {"tenant": "acme"}, {"tenant": "umbrella"}):
        await house.once(**more)  # type: ignore[arg-type]
    assert len(set(house.seen)) == 5
    assert await house.bank.counts() == (5, 5, 0)
    assert house.seen[0] == operation_key(("", "refund", "o-1"))


async def test_only_a_hash_of_the_request_is_kept(house: House) -> None:
    request = Refund(order="o-1", note="Jane Doe, 1 Main Street")
    await house.once(request=request)
    assert "Jane" not in json.dumps(await house.row(), default=str)
    assert len((await house.row())["fingerprint"]) == 32


async def test_the_same_meaning_has_the_same_fingerprint(house: House) -> None:
    class Wider(Refund):
        added_later: str = "default"

    tags = [f"t-{n}" for n in range(20)]
    await house.once(request=Refund(order="o-1", tags=set(tags)))
    await house.once(request=Refund(order="o-1", amount=100, tags={*tags[10:], *tags[:10]}))
    await house.once(request=Wider(order="o-1", tags=set(tags)))
    with pytest.raises(IdempotencyKeyReused):
        await house.once(request=Wider(order="o-1", tags=set(tags), added_later="x"))


async def test_a_definite_no_is_stored_and_said_again_the_same(house: House) -> None:
    async def no(key: str) -> Receipt:
        raise Refused("CARD_EXPIRED", "since May")

    async def missing(key: str) -> Receipt:
        response = httpx.Response(404, request=httpx.Request("POST", "http://bank"))
        raise httpx.HTTPStatusError("not found", request=response.request, response=response)

    for key, do, code in (("o-1", no, "CARD_EXPIRED"), ("o-2", missing, "HTTP_404")):
        for _ in range(3):
            with pytest.raises(Refused) as refused:
                await house.once(key, do=do, repeat=Repeat.NEVER)
            assert refused.value.code == code
    assert len(house.seen) == 2, "it is asked once each"
    assert refused.value.message
    states = await house.database.pool.fetch("SELECT state FROM milepost.operation")
    assert [row["state"] for row in states] == ["FAILED_FINAL"] * 2


@pytest.mark.parametrize("repeat", list(Repeat))
async def test_what_was_not_sent_may_be_called_again(house: House, repeat: Repeat) -> None:
    async def away(key: str) -> Receipt:
        raise httpx.ConnectError("refused")

    with pytest.raises(httpx.ConnectError):
        await house.once(do=away, repeat=repeat)
    row = await house.row()
    assert (row["state"], row["code"], row["doubt_at"]) == ("PENDING", "CONNECT_FAILED", None)
    await house.once(repeat=repeat)
    assert await house.bank.counts() == (1, 1, 0)
    assert house.seen[0] == house.seen[1], "the key never changes with the attempt"
    assert (await house.row())["attempts"] == 2


async def test_safe_repeats_a_lost_answer(house: House) -> None:
    with pytest.raises(httpx.ReadTimeout):
        await house.once(do=loses_the_answer(house.bank))
    assert ((await house.row())["state"], (await house.row())["doubt_at"] is None) == ("PENDING", False)
    await house.once()
    assert await house.bank.counts() == (2, 1, 0)


async def test_a_doubt_of_earlier_code_is_not_forgotten_when_the_declaration_changes(house: House) -> None:
    with pytest.raises(httpx.ReadTimeout):
        await house.once(do=loses_the_answer(house.bank), repeat=Repeat.SAFE)
    with pytest.raises(OutcomeUnknown):
        await house.once(repeat=Repeat.NEVER)
    receipt = await house.once(repeat=Repeat.ASK_FIRST)
    assert (receipt.amount, await house.bank.counts()) == (100, (1, 1, 1))


async def test_ask_first_asks_and_finds(house: House) -> None:
    with pytest.raises(OutcomeUnknown, match="MP462") as unknown:
        await house.once(do=loses_the_answer(house.bank), repeat=Repeat.ASK_FIRST)
    assert isinstance(unknown.value.__cause__, httpx.ReadTimeout)
    assert (await house.row())["state"] == "UNKNOWN"
    receipt = await house.once(repeat=Repeat.ASK_FIRST)
    assert (receipt.amount, await house.bank.counts()) == (100, (1, 1, 1))
    await house.once(repeat=Repeat.ASK_FIRST)
    assert await house.bank.counts() == (1, 1, 1)


async def test_absent_counts_only_when_it_has_settled(house: House) -> None:
    with pytest.raises(OutcomeUnknown):
        await house.once(do=lost, repeat=Repeat.ASK_FIRST)
    doubt = (await house.row())["doubt_at"]
    minute = timedelta(minutes=1)
    with pytest.raises(OutcomeUnknown) as unknown:
        await house.once(repeat=Repeat.ASK_FIRST, settle=minute)
    assert unknown.value.retry_after is not None and timedelta(0) < unknown.value.retry_after <= minute
    row = await house.row()
    assert (row["state"], row["code"], row["doubt_at"]) == ("UNKNOWN", "NOT_SETTLED", doubt)
    assert await house.bank.counts() == (0, 0, 1)
    with pytest.raises(OutcomeUnknown):
        await house.once(repeat=Repeat.ASK_FIRST, settle=minute)
    assert await house.bank.counts() == (0, 0, 1), "it is not asked before asking makes sense"
    await house.clock("61 seconds")
    await house.once(repeat=Repeat.ASK_FIRST, settle=minute)
    assert await house.bank.counts() == (1, 1, 2)


async def answers(answer: Probe[Receipt] | Exception, key: str) -> Probe[Receipt]:
    """A probe that says something."""
    if isinstance(answer, Exception):
        raise answer
    return answer


async def test_the_other_answers_of_a_probe(house: House) -> None:
    with pytest.raises(OutcomeUnknown):
        await house.once(do=lost, repeat=Repeat.ASK_FIRST)

    async def asked(answer: Any) -> None:
        await house.once(repeat=Repeat.ASK_FIRST, probe=lambda key: answers(answer, key))

    with pytest.raises(OutcomeUnknown, match="CONNECT_FAILED"):
        await asked(httpx.ConnectError("away"))
    assert (await house.row())["state"] == "UNKNOWN"
    with pytest.raises(
        OutcomeUnknown, match=r"BAD_ANSWER: the probe returned None; .*Absent\(\), InProgress\(\)"
    ):
        await asked(None)
    with pytest.raises(OutcomeUnknown, match=r"the probe returned the class Absent, without \(\)"):
        await asked(Absent)
    with pytest.raises(OutcomeUnknown) as unknown:
        await asked(InProgress(timedelta(hours=1)))
    assert unknown.value.retry_after == timedelta(hours=1)
    await house.clock("2 hours")
    with pytest.raises(Refused, match="NO_MONEY"):
        await asked(Failed("NO_MONEY"))
    with pytest.raises(Refused, match="NO_MONEY"):
        await asked(Absent())
    assert await house.bank.counts() == (0, 0, 0)


async def test_two_who_ask_at_once_ask_once(house: House) -> None:
    with pytest.raises(OutcomeUnknown):
        await house.once(do=loses_the_answer(house.bank), repeat=Repeat.ASK_FIRST)
    results = await asyncio.gather(
        *(house.once(repeat=Repeat.ASK_FIRST) for _ in range(10)), return_exceptions=True
    )
    assert {type(result) for result in results} <= {Receipt, OperationInProgress}
    assert await house.bank.counts() == (1, 1, 1)


async def test_never_goes_to_a_person(house: House) -> None:
    for _ in range(3):
        with pytest.raises(OutcomeUnknown) as unknown:
            await house.once(do=loses_the_answer(house.bank), repeat=Repeat.NEVER)
    assert unknown.value.retry_after is None
    assert await house.bank.counts() == (1, 1, 0)
    row = await house.row()
    assert (row["state"], row["expires_at"]) == ("UNKNOWN", None)
    await house.clock("1000 days")
    with pytest.raises(OutcomeUnknown):
        await house.once(repeat=Repeat.NEVER)


async def test_an_expired_record_is_a_new_operation_under_the_same_key(house: House) -> None:
    await house.once(keep=timedelta(hours=1))
    first = await house.row()
    await house.clock("59 minutes")
    with pytest.raises(IdempotencyKeyReused):
        await house.once(amount=7)
    await house.clock("61 minutes")
    assert (await house.once(amount=7, do=lambda key: house.bank.pay(key, 7))).amount == 7
    second = await house.row()
    assert (second["fence"], second["id"] != first["id"], second["attempts"]) == (2, True, 1)
    assert len(set(house.seen)) == 1


async def test_a_caller_that_is_cancelled(house: House) -> None:
    for repeat, state in ((Repeat.SAFE, "PENDING"), (Repeat.NEVER, "UNKNOWN")):
        begun = asyncio.Event()

        async def slow(key: str, begun: asyncio.Event = begun) -> Receipt:
            begun.set()
            await asyncio.sleep(3600)
            raise AssertionError

        call = asyncio.create_task(house.once(repeat.value, do=slow, repeat=repeat))
        await begun.wait()
        with pytest.raises(OperationInProgress):
            await house.once(repeat.value, repeat=repeat)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        row = await house.row(f"SELECT * FROM milepost.operation WHERE key = '{repeat.value}'")
        assert (row["state"], row["code"]) == (state, "CALLER_CANCELLED")


async def test_a_slow_one_keeps_its_lease(house: House) -> None:
    house.service._settings = house.service.settings.model_copy(update={"lease": timedelta(seconds=0.6)})
    go_on = asyncio.Event()

    async def slow(key: str) -> Receipt:
        await go_on.wait()
        return await house.bank.pay(key)

    call = asyncio.create_task(house.once(do=slow, repeat=Repeat.NEVER))
    await until(lambda: _renewed(house), within=30, what="a renewal")
    with pytest.raises(OperationInProgress):
        await house.once(repeat=Repeat.NEVER)
    go_on.set()
    await call
    assert (await house.bank.counts(), (await house.row())["state"]) == ((1, 1, 0), "SUCCEEDED")


async def _renewed(house: House) -> bool:
    """Whether the lease has outlived its first length."""
    query = "SELECT wake_at > created_at + interval '2 s' FROM milepost.operation"
    return bool(await house.database.pool.fetchval(query))


@pytest.mark.parametrize("repeat", [Repeat.SAFE, Repeat.NEVER])
async def test_a_lost_lease_cancels_what_runs(house: House, repeat: Repeat) -> None:
    house.service._settings = house.service.settings.model_copy(update={"lease": timedelta(seconds=0.6)})
    cancelled: list[bool] = []

    async def slow(key: str) -> Receipt:
        await house.database.pool.execute("UPDATE milepost.operation SET wake_at = now() - interval '1 s'")
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise
        raise AssertionError

    with pytest.raises(OperationInProgress if repeat is Repeat.SAFE else OutcomeUnknown):
        await asyncio.wait_for(house.once(do=slow, repeat=repeat), 30)
    assert cancelled == [True]
    row = await house.row()
    assert (row["state"], row["code"]) == ("PENDING" if repeat is Repeat.SAFE else "UNKNOWN", "WORKER_LOST")


async def test_a_zombie_is_fenced_out_and_its_late_success_is_taken_where_nobody_went_on(
    house: House,
) -> None:
    for takes_over, state in ((True, "SUCCEEDED"), (False, "SUCCEEDED")):
        key = str(takes_over)
        end = f"UPDATE milepost.operation SET wake_at = now() - interval '1 s' WHERE key = '{key}'"

        async def frozen(operation: str, key: str = key, end: str = end, over: bool = takes_over) -> Receipt:
            await house.bank.pay(operation)
            await house.database.pool.execute(end)
            if over:
                await house.once(key, repeat=Repeat.SAFE)
            else:
                with pytest.raises(OutcomeUnknown):
                    await house.once(key, repeat=Repeat.NEVER)
                row = await house.row(f"SELECT state FROM milepost.operation WHERE key = '{key}'")
                assert row["state"] == "UNKNOWN"
            return Receipt(resource_id="late", amount=1)

        if takes_over:
            with pytest.raises(OutcomeUnknown):
                await house.once(key, do=frozen, repeat=Repeat.SAFE)
        else:
            await house.once(key, do=frozen, repeat=Repeat.NEVER)
        row = await house.row(f"SELECT * FROM milepost.operation WHERE key = '{key}'")
        assert (row["state"], row["resource_id"] == "late") == (state, not takes_over)


async def test_results_that_cannot_be_kept(house: House) -> None:
    async def large(key: str) -> Receipt:
        return Receipt(resource_id="x" * 1000, amount=1)

    async def wrong(key: str) -> Receipt:
        return Refund(order="o")  # type: ignore[return-value]

    async def nul(key: str) -> Receipt:
        return Receipt(resource_id="\x00", amount=1)

    for number, do in enumerate((large, wrong, nul)):
        with pytest.raises(UsageError, match="MP464"):
            await house.once(f"k-{number}", do=do, repeat=Repeat.NEVER)
    states = await house.database.pool.fetch("SELECT state, code FROM milepost.operation")
    assert [tuple(row) for row in states] == [("UNKNOWN", "MP464")] * 3


async def test_no_result(house: House) -> None:
    async def nothing(key: str) -> None:
        await house.bank.pay(key)

    given: dict[str, Any] = {
        "kind": "note",
        "key": "o-1",
        "request": Refund(order="o"),
        "repeat": Repeat.SAFE,
    }
    for _ in range(2):
        assert await house.service.once(**given, result=type(None), do=nothing) is None
    assert await house.bank.counts() == (1, 1, 0)


async def test_a_stored_result_of_another_form_is_named(house: House) -> None:
    class Other(BaseModel):
        number: int

    await house.once()
    with pytest.raises(StateError, match="MP459"):
        await house.once(result=Other)


async def test_wrong_calls(house: House) -> None:
    class Card(BaseModel):
        number: SecretStr

    wrong: list[dict[str, Any]] = [
        {"kind": ""},
        {"kind": "http"},
        {"key": ""},
        {"key": "a\x00"},
        {"key": "x" * 1001},
        {"tenant": "\ud800"},
        {"repeat": Repeat.ASK_FIRST, "probe": None},
        {"keep": timedelta(0)},
        {"settle": timedelta(seconds=-1)},
        {"request": Card(number=SecretStr("1"))},
        {"request": Refund(order="\ud800")},
    ]
    for more in wrong:
        with pytest.raises(UsageError, match="MP463"):
            await house.once(**more)
    assert (house.seen, await house.bank.counts()) == ([], (0, 0, 0))


async def test_without_the_store_nothing_is_done(house: House) -> None:
    service = Milepost("once", settings=settings_for("postgresql://nobody@127.0.0.1:1/nowhere"))
    away = House(service, house.bank, house.database)
    with pytest.raises(ConnectError, match="MP501"):
        await away.once()
    await house.database.pool.execute("ALTER TABLE milepost.operation RENAME TO gone")
    with pytest.raises(ConnectError, match=r"MP468.*nothing was begun"):
        await house.once()
    await house.database.pool.execute("ALTER TABLE milepost.gone RENAME TO operation")
    assert (away.seen, house.seen) == ([], [])


async def test_a_store_that_goes_away_after_the_effect(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("milepost.consumers.held.STORE_WITHIN", 0.3)
    house.service._settings = house.service.settings.model_copy(update={"lease": timedelta(seconds=0.5)})
    rename = "ALTER TABLE milepost.operation RENAME TO gone"

    async def pay(key: str) -> Receipt:
        receipt = await house.bank.pay(key)
        await house.database.pool.execute(rename)
        return receipt

    with pytest.raises(ConnectError, match=r"MP468.*did not store"):
        await house.once(do=pay, repeat=Repeat.ASK_FIRST)
    await house.database.pool.execute("ALTER TABLE milepost.gone RENAME TO operation")

    async def settled() -> Receipt | None:
        try:
            return await house.once(repeat=Repeat.ASK_FIRST)
        except OperationInProgress:
            return None

    assert (await until(settled, within=30, what="the end of the lease")).amount == 100
    assert await house.bank.counts() == (1, 1, 1)


async def test_a_lease_that_was_renewed_after_it_was_read_is_not_taken_over(house: House) -> None:
    operations = Operations(house.database.pool, "once", SystemIds(), timedelta(seconds=30))
    name, asked, day = ("", "refund", "o-1"), Asked(b"f", Repeat.SAFE), timedelta(days=1)
    hold = await operations.begin(name, asked, day)
    assert hold is not None
    await house.database.pool.execute("UPDATE milepost.operation SET wake_at = now() - interval '1 s'")
    found = await operations.read(name)
    assert found is not None and decide(found[0], asked, found[1]).act is Act.TRY
    await house.database.pool.execute("UPDATE milepost.operation SET wake_at = now() + interval '1 s'")
    assert await operations.claim(name, found[0], Repeat.SAFE, day, doubt_at=None) is None
    assert await operations.renew(hold), "whoever holds it goes on"
