"""A run's page links to where its trace is looked at, where the settings say."""

from __future__ import annotations

import pytest
from milepost import Context, Repeat, Saga
from milepost.console.web.settings import ConsoleSettings
from milepost.recovery.permissions import Role
from milepost.schemas.settings import Settings
from pydantic import BaseModel

from tests.support.consoleweb import console
from tests.support.engine import rig

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


class Order(BaseModel):
    id: str


def shop() -> Saga[Order]:
    saga = Saga("traced", version=1, input=Order, key=lambda order: order.id)

    @saga.step(repeat=Repeat.SAFE)
    async def only(ctx: Context[Order]) -> None: ...

    saga.flow(only)
    return saga


async def test_the_link_has_the_runs_trace(database_url: str) -> None:
    saga = shop()
    async with rig(database_url, saga) as it:
        run = await it.start(saga, Order(id="o-1"))
        await it.database.pool.execute(
            "UPDATE milepost.run SET traceparent = $1 WHERE id = $2",
            f"00-{TRACE}-00f067aa0ba902b7-01",
            run.id,
        )
    async with console(database_url, traces="http://127.0.0.1:16686/trace/{trace}") as web:
        page = (await (await web.person("ann", Role.VIEWER)).get(f"/runs/{run.id}")).text
    assert f'href="http://127.0.0.1:16686/trace/{TRACE}"' in page


@pytest.mark.parametrize("url", ["http://127.0.0.1/trace", "javascript:alert(1)//{trace}", "{trace}"])
def test_what_is_no_such_place_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"trace|URL"):
        ConsoleSettings(core=Settings(database_url="postgresql://localhost/x"), traces=url)  # type: ignore[arg-type]
