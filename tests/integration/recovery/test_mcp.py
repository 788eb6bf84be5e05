"""An AI agent over MCP on standard input and output, by the SDK's own client: it reads and proposes, nothing more."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from milepost.console.mcp_tools import Tools
from milepost.console.mcp_tools import agent as agent_of
from milepost.recovery.accepting import accept
from milepost.recovery.audit import Entry, write
from milepost.recovery.permissions import EVERYTHING
from milepost.recovery.proposals import proposals
from milepost.schemas.errors import MilepostError
from milepost.schemas.ids import SystemIds

from tests.support.console_here import Captured, milepost
from tests.support.process import ROOT
from tests.support.two_sagas import ANN, BOB, ORDER, PAYMENT, Order, entries, opened, turn

__all__ = ["milepost"]
READS = {
    *("list_runs", "show_run", "show_worklist", "list_dead_letters", "show_dead_letter", "list_audit"),
    *("list_runbooks", "read_runbook", "list_proposals"),
}
SECRET = "4111-1111"


@asynccontextmanager
async def agent(url: str, *words: str) -> AsyncIterator[Client]:
    """A client that has started `milepost mcp` as a process."""
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "milepost.console.main", "--database", url, "mcp", "--agent", "helper", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
    )
    async with Client(stdio_client(server)) as client:
        yield client


async def call(client: Client, tool: str, **arguments: Any) -> Any:
    """Call a tool that must succeed."""
    result: Any = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    return json.loads(result.content[0].text)


async def refused(client: Client, tool: str, **arguments: Any) -> str:
    result: Any = await client.call_tool(tool, arguments)
    assert result.is_error, result
    return str(result.content[0].text)


def idea(**more: Any) -> dict[str, Any]:
    return {
        "act": "cancel",
        "run": "order/o-1",
        "reason": "nobody waits for it",
        "drift": "the customer has gone",
        "observed": {"run": "PENDING"},
        "expected": {"run": "CANCELLED"},
        "idempotent": True,
        "rollback": "start it anew",
        "arguments": {"undo": False},
    } | more


async def test_an_agent_reads_masked_and_proposes_and_a_person_decides(database_url: str) -> None:
    async with opened(database_url) as (it, connection):
        run = await it.start(ORDER, Order(id="o-1"))
        await connection.execute(
            "UPDATE milepost.run SET input = jsonb_build_object('id', 'o-1', 'note', $2::text) WHERE id = $1",
            run.id,
            SECRET,
        )
        told = Entry(
            act="operation.settle", reason="r", after={"state": "SUCCEEDED", "result": {"card": SECRET}}
        )
        await write(connection, ANN, told, SystemIds())
        async with agent(database_url) as client:
            listed: Any = await client.list_tools()
            tools = {tool.name: tool for tool in listed.tools}
            assert set(tools) == READS | {"propose_act"}
            assert all(tools[name].annotations.read_only_hint for name in READS)
            assert "never" in str(client.instructions)

            runs = await call(client, "list_runs", saga="order", states=["PENDING"])
            assert [(one["key"], one["state"]) for one in runs["runs"]] == [("o-1", "PENDING")]
            shown = await call(client, "show_run", run="order/o-1")
            assert "PENDING" in json.dumps(shown) and SECRET not in json.dumps(shown)
            audit = await call(client, "list_audit")
            assert audit["entries"][0]["act"] == "operation.settle" and SECRET not in json.dumps(audit)
            for tool in ("show_worklist", "list_dead_letters", "list_runbooks", "list_proposals"):
                await call(client, tool)
            assert "symptom: " in (await call(client, "read_runbook", drift="UNKNOWN"))["text"]
            assert "MP604 " in await refused(client, "show_run", run="order/nothing")
            assert "MP440 " in await refused(client, "show_dead_letter", letter=99)

            made = await call(client, "propose_act", **idea())
            assert made["state"] == "OPEN" == (await call(client, "list_proposals"))["proposals"][0]["state"]
            assert (await call(client, "propose_act", **idea()))["proposal"] == made["proposal"]
            assert "MP670" in await refused(
                client, "propose_act", **idea(arguments={"undo": True, "force": True})
            )
            for act in ("approve", "accept_proposal", "confirm"):
                text = await refused(client, "propose_act", **idea(act=act))
                assert text.startswith("MP676 propose_act: act: input should be 'retry', "), text
            wrong = idea(idempotent="perhaps", note=SECRET) | {"observed": SECRET}
            del wrong["reason"]
            text = await refused(client, "propose_act", **wrong)
            assert "reason: is missing" in text and "idempotent: input should be a valid boolean" in text
            assert "observed: " in text and SECRET not in text and "pydantic" not in text
            assert "MP676 read_runbook: drift: " in await refused(client, "read_runbook", drift="FROB")
        assert await it.value("SELECT count(*) FROM milepost.request") == 0
        (one,) = await proposals(connection, EVERYTHING)
        assert (one.by, one.kind, str(one.id)) == ("helper", "AGENT", made["proposal"])
        assert ("helper", "AGENT", "proposal.open", "DONE") in await entries(it)
        await accept(connection, BOB, UUID(made["proposal"]), reason="true")
        assert await turn(it) == 1 and (await it.states(run.id))[""] == "CANCELLED"


async def test_an_agent_for_one_saga_sees_no_other(database_url: str) -> None:
    async with opened(database_url) as (it, connection):
        await it.start(ORDER, Order(id="o-1"))
        await it.start(PAYMENT, Order(id="p-1"))
        async with agent(database_url, "--saga", "payment") as client:
            runs = await call(client, "list_runs")
            assert [one["key"] for one in runs["runs"]] == ["p-1"]
            assert "MP604 " in await refused(client, "show_run", run="order/o-1")
            assert "MP604 " in await refused(client, "propose_act", **idea())
            assert (await call(client, "list_dead_letters"))["letters"] == []
        row = await connection.fetchrow("SELECT actor, kind, act, outcome FROM milepost.audit")
        assert row is not None and tuple(row) == ("helper", "AGENT", "proposal.open", "REFUSED")


async def test_without_a_name_it_does_not_begin(milepost: Captured) -> None:
    status, _, err = await asyncio.to_thread(milepost, "mcp")
    assert status == 2 and "--agent" in err


async def test_what_is_of_another_tenant_is_not_there_for_an_agent_and_the_audit_knows_who_tried(
    database_url: str,
) -> None:
    async with opened(database_url) as (it, connection):
        for tenant in ("other", "third"):
            async with it.database.pool.acquire() as one, one.transaction():
                await it.service.start(one, ORDER, Order(id="o-1"), tenant=tenant)
        n = await connection.fetchval(
            "INSERT INTO milepost.dead_letter (id, scope, tenant, event_id, topic, headers, stage, code, message,"
            " attempts, first_failed_at, last_failed_at, recoverable) VALUES (gen_random_uuid(), 'consumer:c', 'other',"
            " gen_random_uuid(), 't', '', 'HANDLE', 'HANDLER_FAILED', 'no', 1, now(), now(), true) RETURNING n"
        )
        tools = Tools(database_url, agent_of("helper", sagas=[], tenants=["acme"]))
        told = []
        for letter in (n, n + 1):
            with pytest.raises(MilepostError) as raised:
                await tools.propose_act(**idea(act="redrive", run=None, letter=letter, arguments={}))
            told.append(str(raised.value).replace(str(letter), "N"))
        assert told[0] == told[1], told
        assert await entries(it) == [("helper", "AGENT", "proposal.open", "REFUSED")]
        for name in ("order/o-1", str(await it.value("SELECT min(id::text) FROM milepost.run"))[:6]):
            for asking in (
                tools.show_run(name),
                tools.propose_act(**idea(run=name)),
                tools.list_audit(run=name),
            ):
                with pytest.raises(MilepostError) as raised:
                    await asking
                assert str(raised.value) == f"MP604 {name}: there is no such run."
