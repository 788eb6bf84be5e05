"""The test kit carries webhooks too: posted to the app, their event reaches the saga that waits for it."""

from __future__ import annotations

import httpx
from fastapi import FastAPI
from milepost import RunState, StepState
from milepost.testing import open_kit
from starlette.routing import Route

from tests.support.apps import hook_service
from tests.support.hooks import sent


async def test_a_webhook_in_the_kit() -> None:
    async with open_kit(hook_service.service) as kit:
        run = await kit.start(hook_service.parcel, hook_service.Parcel(id="p-1"))
        await kit.until_step(run, hook_service.arrived, StepState.WAITING)
        api = FastAPI(routes=[Route("/carrier", hook_service.carrier)])
        body = b'{"id": "p-1"}'
        transport = httpx.ASGITransport(api)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            headers = sent("e-1", body, hook_service.service.clock.now())
            for _ in range(2):
                assert (await client.post("/carrier", content=body, headers=headers)).status_code == 200
        await kit.until(run, RunState.SUCCEEDED)
        assert len(await kit.published(hook_service.Arrived)) == 1
