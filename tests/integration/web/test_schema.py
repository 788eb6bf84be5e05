"""The API as it describes itself: whatever is sent, the answer is one that the description allows."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, Phase, settings
from milepost.console.web.app import create_app
from milepost.console.web.settings import ConsoleSettings
from milepost.devstack.ports import free_port, wait_until
from milepost.recovery.permissions import Role
from milepost.schemas.settings import Settings

from tests.support import servers
from tests.support.console_calls import SQL, execute
from tests.support.consoleweb import Web

RATES = ("rate", "rate_address", "rate_sign_in")
UNLIMITED: dict[str, Any] = dict.fromkeys(RATES, "1000000/minute")
#: How many requests of each route are tried, besides those that stand at the bounds of what it takes.
TRIES = 4
#: A cursor is text that only an earlier answer gives, so what the description allows may still be refused. Requests
#: without a token are tried by the test itself.
EXCLUDED = [schemathesis.checks.positive_data_acceptance, schemathesis.checks.ignored_auth]


def settings_of(url: str) -> ConsoleSettings:
    core: dict[str, Any] = {"database_url": url}
    return ConsoleSettings(core=Settings(**core), **UNLIMITED)


schema = schemathesis.openapi.from_dict(
    create_app(settings_of("postgresql://nobody@127.0.0.1:9/none")).openapi()
)


@dataclass(frozen=True)
class Served:
    """A console on a socket, with a token of an admin."""

    url: str
    token: str


@pytest.fixture(scope="module")
def served(postgres_server: servers.DatabaseServer, database_template: str) -> Iterator[Served]:
    """A console in a thread of its own, on a database with runs."""
    with servers.fresh_database(postgres_server, database_template) as url:
        execute(url, (SQL / "console_runs.sql").read_text(), "SELECT 1")
        app = create_app(settings_of(url))
        port = free_port()
        tokens: list[str] = []

        class Server(uvicorn.Server):
            async def startup(self, sockets: Any = None) -> None:
                await super().startup(sockets)
                tokens.append(await Web(app).token("robot", Role.ADMIN))

        server = Server(uvicorn.Config(app, port=port, log_level="critical", lifespan="on", ws="none"))
        thread = threading.Thread(target=lambda: asyncio.run(server.serve()), daemon=True)
        thread.start()
        assert wait_until(lambda: bool(tokens), seconds=30, alive=thread.is_alive)
        try:
            yield Served(f"http://127.0.0.1:{port}", tokens[0])
        finally:
            server.should_exit = True
            thread.join(20)


@schema.parametrize()
@settings(
    max_examples=TRIES,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_every_answer_is_as_described(case: schemathesis.Case[Any], served: Served) -> None:
    nobody = case.call(base_url=served.url, headers={"Authorization": ""})
    assert nobody.status_code in {401, 422}, nobody.text
    answer = case.call(base_url=served.url, headers={"Authorization": f"Bearer {served.token}"})
    case.validate_response(answer, excluded_checks=EXCLUDED)
