"""Processes that kill themselves (SIGKILL) at a place that the test names. One interpreter starts, and forks them.

Arguments: the database URL and a JSON list of jobs, each {"kind": "once" | "http" | "webhook", "at": ..., ...}. Prints
a line with the ports of the http jobs, and at the end one with the exit code of each (negative for a signal).
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from datetime import timedelta
from typing import Any

import uvicorn
from milepost import IdempotencyMiddleware, Milepost, Repeat, StandardWebhooks
from milepost.consumers.recording import Recording
from milepost.consumers.webhook_work import WebhookWork
from milepost.streams.database import Database

from tests.support.bank import Bank, Receipt, Refund
from tests.support.engine import settings_for
from tests.support.hooks import SECRET, event_id, to_event
from tests.support.keyed import Shop, die_at, tenant_of

LEASE = timedelta(seconds=1)


async def once(url: str, job: dict[str, Any], _: socket.socket | None) -> None:
    """Refund, and die before the bank pays, after it, or after the record."""
    settings = settings_for(url, lease=LEASE)
    service, database = Milepost("once", settings=settings), Database(settings)
    await database.open()
    repeat = Repeat(job["repeat"])
    bank = Bank(database.pool, dedupes=repeat is Repeat.SAFE)

    async def pay(key: str) -> Receipt:
        die_at(job["at"], "before")
        receipt = await bank.pay(key)
        die_at(job["at"], "after")
        return receipt

    await service.once(
        kind="refund",
        key=job["key"],
        request=Refund(order=job["key"]),
        result=Receipt,
        repeat=repeat,
        do=pay,
        probe=bank.ask if repeat is Repeat.ASK_FIRST else None,
    )
    die_at(job["at"], "record")


async def http(url: str, job: dict[str, Any], given: socket.socket | None) -> None:
    """Serve the shop, and die in the app (the test's request says where) or before the stored answer is sent."""
    settings = settings_for(url, lease=LEASE)
    service, database = Milepost("shop", settings=settings), Database(settings)
    await database.open()
    api = Shop(service, Bank(database.pool, dedupes=False), database.pool).app()
    api.add_middleware(IdempotencyMiddleware, service=service, tenant=tenant_of)
    pass_on = Recording.pass_on

    async def dying(recording: Recording) -> None:
        die_at(job["at"], "record")
        await pass_on(recording)

    setattr(Recording, "pass_on", dying)  # noqa: B010 - a method that dies stands in for it
    assert given is not None
    await uvicorn.Server(uvicorn.Config(api, log_level="critical")).serve([given])


async def webhook(url: str, job: dict[str, Any], _: socket.socket | None) -> None:
    """Work on a stored webhook, and die in `to_event`, before the commit, or after it."""

    class Dying(WebhookWork):
        async def _publish(self, *args: Any) -> Any:
            die_at(job["at"], "before")
            published = await super()._publish(*args)
            die_at(job["at"], "after")
            return published

    settings = settings_for(url, lease=LEASE)
    service, database = Milepost("hooks", settings=settings), Database(settings)
    await database.open()
    service.webhook(job["at"], verify=StandardWebhooks(SECRET), event_id=event_id, to_event=to_event)
    taken = await Dying(service, database.pool, lease=LEASE).turn()
    assert taken == 1
    die_at(job["at"], "record")


KINDS = {"once": once, "http": http, "webhook": webhook}


def main(url: str, jobs: list[dict[str, Any]]) -> None:
    """Fork, and wait for all."""
    sockets = [socket.create_server(("127.0.0.1", 0)) if job["kind"] == "http" else None for job in jobs]
    print(json.dumps([None if one is None else one.getsockname()[1] for one in sockets]), flush=True)
    children = []
    for job, given in zip(jobs, sockets, strict=True):
        child = os.fork()
        if child == 0:
            asyncio.run(KINDS[job["kind"]](url, job, given))
            os._exit(0)
        children.append(child)
    ends = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    print(json.dumps(ends), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
