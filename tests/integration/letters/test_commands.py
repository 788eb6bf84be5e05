"""`milepost dead`: what people and programs are shown of letters, and what they may do with them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from milepost.console import main

from tests.support import servers
from tests.support.inbox import Effects, consumer_of, intake_of, opened, record
from tests.support.letters import ONCE, Broken, keyed

Call = Callable[..., tuple[int, str, str]]


async def _fill(url: str) -> None:
    """Letters 1 to 6 of billing (one behind a held key), 7 to 9 of shipping (odd key and headers), 10 of the relay."""
    async with opened(url) as database:
        broken = Broken(Effects(database.pool), {f"o-{n}" for n in range(20)})
        billing = consumer_of("billing", "orders", broken.apply, retry=ONCE, hold_key=True)
        records = [keyed(n, f"k-{n % 5}".encode(), topic="orders") for n in range(6)]
        await intake_of(billing, database).handle(records)
        shipping = consumer_of("shipping", "deliveries", broken.apply, retry=ONCE)
        odd = replace(
            keyed(0, b"\xff\x00", topic="deliveries"),
            headers=[("ce_type", b"\xff"), ("x", b"\xfe"), ("y", None)],
        )
        tombstone = replace(record(2, topic="deliveries"), value=b"\x00\x01[", key=None)
        reused = replace(record(1, topic="deliveries"), key=b"z")
        await intake_of(shipping, database).handle([odd, reused, tombstone])
        await database.pool.execute(RELAYS)


RELAYS = """
    INSERT INTO milepost.dead_letter (id, scope, event_id, topic, seq, key, value, headers, stage, code, message,
                                      attempts, first_failed_at, last_failed_at, recoverable)
    SELECT id, 'relay:key', id, 'bills', 77, 'b-1', 'x', '{"ce_type": "t"}', 'RELAY', 'TOO_LARGE', 'too large', 1,
           milepost.clock(), milepost.clock(), true
    FROM gen_random_uuid() AS id
"""


@pytest.fixture(scope="module")
def filled(postgres_server: servers.DatabaseServer, database_template: str) -> Iterator[str]:
    with servers.fresh_database(postgres_server, database_template) as url:
        asyncio.run(_fill(url))
        yield url


@pytest.fixture
def milepost(filled: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    """Run a command line against the filled database; returns status, stdout and stderr."""
    monkeypatch.setenv("MILEPOST_DATABASE_URL", filled)
    monkeypatch.delenv("MILEPOST_APP", raising=False)

    def call(*words: str) -> tuple[int, str, str]:
        status = main.run(["--as", "ann", *words])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


def value(url: str, sql: str) -> Any:
    async def inner() -> Any:
        connection = await asyncpg.connect(url)
        try:
            return await connection.fetchval(sql)
        finally:
            await connection.close()

    return asyncio.run(inner())


@pytest.mark.parametrize(
    ("filters", "numbers"),
    [
        ([], list(range(1, 11))),
        (["--limit", "2"], [1, 2]),
        (["--consumer", "billing", "--code", "key_held"], [6]),
        (["--consumer", "shipping"], [7, 8, 9]),
        (["--consumer", "relay"], [10]),
        (["--topic", "deliveries", "--code", "BAD_HEADER"], [7]),
        (["--key", "k-0"], [1, 6]),
        (["--key", "0xff00"], [7]),
        (["--since", "1h", "--status", "open", "--topic", "bills"], [10]),
        (["--since", "2120-01-01"], []),
        (["--status", "ignored"], []),
    ],
)
def test_letters_are_listed_oldest_first(milepost: Call, filters: list[str], numbers: list[int]) -> None:
    status, out, _ = milepost("dead", "list", "--json", *filters)
    assert (status, [json.loads(line)["id"] for line in out.splitlines()]) == (0, numbers)


def test_a_list_for_people(milepost: Call) -> None:
    status, out, err = milepost("dead", "list", "--consumer", "billing", "--limit", "1")
    assert (status, err) == (0, "the first 1; --limit shows more\n")
    heads, letter, message = out.splitlines()
    assert heads.split() == ["id", "consumer", "topic", "key", "code", "tries", "failed"]
    assert letter.split()[:6] == ["1", "billing", "orders", "k-0", "HANDLER_FAILED", "1"]
    assert message.strip() == "ValueError: o-0 is broken"
    assert milepost("dead", "list", "--key", "nobody")[1] == "no such dead letters\n"


def test_letters_in_a_row_with_one_code_are_one_group(milepost: Call) -> None:
    status, out, _ = milepost("dead", "list", "--group", "--json", "--consumer", "billing")
    groups = [json.loads(line) for line in out.splitlines()]
    found = [
        (group["code"], group["amount"], group["first"], group["last"], group["one_cause"])
        for group in groups
    ]
    assert (status, found) == (0, [("HANDLER_FAILED", 5, 1, 5, True), ("KEY_HELD", 1, 6, 6, False)])
    assert "one cause, most likely" in milepost("dead", "list", "--group")[1]


def test_letters_of_one_cause_are_one_group_and_are_chosen_by_its_name(milepost: Call) -> None:
    status, out, _ = milepost("dead", "groups", "--json", "--consumer", "billing")
    groups = {group["code"]: group for group in map(json.loads, out.splitlines())}
    failed = groups["HANDLER_FAILED"]
    assert (status, failed["amount"], failed["cause"]) == (0, 5, "ValueError: o-<n> is broken")
    assert (failed["first"], failed["last"], failed["recoverable"]) == (1, 5, True)
    _, out, _ = milepost("dead", "list", "--json", "--cause", failed["name"])
    assert [json.loads(line)["id"] for line in out.splitlines()] == [1, 2, 3, 4, 5]
    assert "o-<n> is broken" in milepost("dead", "groups")[1]
    assert milepost("dead", "list", "--cause", "nothing")[1] == "no such dead letters\n"


def test_a_letter_is_shown_with_all_that_is_known(milepost: Call, tmp_path: Path) -> None:
    _, out, _ = milepost("dead", "show", "7", "--json")
    letter = json.loads(out)
    assert (letter["code"], letter["topic"], letter["offset"], letter["recoverable"]) == (
        *("BAD_HEADER", "deliveries", 0),
        False,
    )
    assert [(h["name"], h["text"], h["base64"]) for h in letter["headers"]] == [
        ("ce_type", None, "/w=="),
        ("x", None, "/g=="),
        ("y", None, None),
    ]
    assert (letter["key_bytes"], letter["value"]["text"]) == ("/wA=", '{"order": "o-0"}')
    _, out, _ = milepost("dead", "show", "7")
    assert "cannot be redriven" in out and "header    x: 0xfe" in out and "header    y: null" in out
    assert "letter 6 waits" in milepost("dead", "show", "1")[1]
    assert "outbox row 77 for topic bills" in milepost("dead", "show", "10")[1]
    raw = tmp_path / "raw"
    status, out, err = milepost("dead", "show", "9", "--payload", str(raw))
    assert (status, out, raw.read_bytes()) == (0, "", b"\x00\x01[")
    assert err.startswith("3 bytes written to ")
    status, _, err = milepost("dead", "show", "99")
    assert (status, err[:6]) == (3, "MP440 ")


@pytest.mark.parametrize(
    ("words", "status", "code"),
    [
        (["redrive", "1"], 2, "MP601"),
        (["redrive", "--reason", "x"], 2, "MP601"),
        (["redrive", "1", "--topic", "orders", "--reason", "x"], 2, "MP601"),
        (["redrive", "1", "--reason", " "], 2, "MP601"),
        (["redrive", "--topic", "orders", "--reason", "x"], 2, "MP426"),
        (["redrive", "--topic", "orders", "--status", "NOPE", "--reason", "x"], 2, "MP601"),
        (["redrive", "99", "--reason", "x"], 3, "MP440"),
        (["redrive", "7", "--reason", "x"], 3, "MP441"),
        (["redrive", "6", "--reason", "x"], 3, "MP442"),
        (["edit", "1", "--reason", " ", "--key", "x"], 2, "MP601"),
        (["edit", "1", "--reason", "x", "--header", "x"], 2, "MP601"),
        (["edit", "1", "--reason", "x", "--value", "/nowhere"], 2, "MP601"),
        (["edit", "1", "--reason", "x"], 2, "MP772"),
        (["edit", "1", "--reason", "x", "--drop-header", "ce_type"], 2, "MP770"),
        (["edit", "10", "--reason", "x", "--key", "x"], 3, "MP775"),
    ],
)
def test_what_cannot_be_done_is_refused_and_changes_nothing(
    milepost: Call, filled: str, words: list[str], status: int, code: str
) -> None:
    found, out, err = milepost("dead", *words)
    assert (found, out, code in err) == (status, "", True)
    assert value(filled, "SELECT count(*) FROM milepost.dead_letter WHERE status <> 'OPEN'") == 0
    assert value(filled, "SELECT count(*) FROM milepost.audit WHERE outcome <> 'REFUSED'") == 0


def test_many_at_once_are_counted_shown_and_answered_one_by_one(
    database_url: str, monkeypatch: Any, capsys: Any
) -> None:
    asyncio.run(_fill(database_url))
    monkeypatch.setenv("MILEPOST_DATABASE_URL", database_url)
    words = [
        "--as",
        "ann",
        "dead",
        "redrive",
        "--status",
        "open",
        "--yes",
        "--reason",
        "mended",
        "--wait",
        "0.5",
    ]
    status = main.run([*words, "--json"])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert status == 1
    outcomes = {line["id"]: (line["outcome"], line["code"]) for line in lines}
    assert outcomes == dict.fromkeys((*range(1, 7), 8, 9, 10), ("WAITING", None)) | {7: ("REFUSED", "MP441")}
    assert main.run(words) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("1 letter:\n  7 deliveries BAD_HEADER ")
    assert captured.out.splitlines()[-1] == "1 refused"
    assert main.run([*words[:3], "ignore", "--status", "all", "--yes", "--reason", "old"]) == 0
    captured = capsys.readouterr()
    assert captured.err.splitlines()[0] == "10 letters:" and "… and 5 more" in captured.err
    assert captured.out.splitlines()[-1] == "10 ignored"
    assert value(database_url, "SELECT count(*) FROM milepost.hold") == 0
    acts = (
        "SELECT string_agg(DISTINCT actor || ' ' || act, ', ' ORDER BY actor || ' ' || act) FROM milepost.audit"
        " WHERE act NOT LIKE 'bulk.%'"
    )
    assert (
        value(database_url, acts)
        == "ann letter.ignore, ann letter.redrive, ann outbox.ignore, ann outbox.unpark"
    )


def test_a_choice_that_fits_no_letter_says_so(milepost: Call) -> None:
    status, out, _ = milepost("dead", "redrive", "--consumer", "biling", "--reason", "x")
    assert (status, out) == (0, "no letter that waits fits; `milepost dead list` shows those there are\n")


def test_doctor_says_when_letters_grow_old_and_when_nobody_carries_out_a_redrive(
    database_url: str, monkeypatch: Any, capsys: Any
) -> None:
    asyncio.run(_fill(database_url))
    monkeypatch.setenv("MILEPOST_DATABASE_URL", database_url)
    monkeypatch.setenv("MILEPOST_KAFKA", "127.0.0.1:1")

    def codes() -> dict[str, list[str]]:
        main.run(["doctor", "--json"])
        found: dict[str, list[str]] = {"dead_letters": [], "redrives": []}
        for line in capsys.readouterr().out.splitlines():
            check = json.loads(line)
            if check["check"] in found:
                found[check["check"]].append(check["code"])
        return found

    assert codes() == {"dead_letters": ["MP629", "MP629"], "redrives": []}
    monkeypatch.setenv("MILEPOST_DEAD_LETTER_ALARM", "PT0.001S")
    value(
        database_url,
        "UPDATE milepost.dead_letter SET status = 'RETRY_PENDING', asked_by = 'ann',"
        " asked_at = milepost.clock() - interval '2 minutes' WHERE n IN (1, 6)",
    )
    assert codes() == {"dead_letters": ["MP444", "MP444"], "redrives": ["MP445"]}
