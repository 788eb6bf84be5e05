"""Every role at every route, from one table that each new route has to join."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fastapi.routing import APIRoute
from milepost.console.web import app
from milepost.console.web.permitting import Needs
from milepost.recovery.permissions import Grant, Role

from tests.support.consoleroutes import ANYBODY, PUBLIC, ROUTES
from tests.support.consoleweb import Client, console

ROLES = {
    "V": Role.VIEWER,
    "O": Role.OPERATOR,
    "P": Role.APPROVER,
    "A": Role.ADMIN,
    "G": Role.AGENT,
}
#: Names in paths that are no ids.
NAMED = {"n": "1"}
ID = "0197c1a0-0000-7000-8000-000000000000"


def served() -> Iterator[tuple[str, APIRoute]]:
    """Every route that `create_app` serves, as the table writes it."""
    for prefix, router in app.served():
        for route in router.routes:
            assert isinstance(route, APIRoute)
            for method in sorted(route.methods or ()):
                yield f"{method} {prefix}{route.path}", route


def test_the_table_has_every_route_and_no_other() -> None:
    assert {name for name, _ in served()} == {*ROUTES, *PUBLIC, *ANYBODY}


def test_every_route_says_what_it_needs() -> None:
    without = [
        name
        for name, route in served()
        if name in ROUTES and not any(isinstance(one.dependency, Needs) for one in route.dependencies)
    ]
    assert without == ["GET /api/v1/me"]


async def call(client: Client, name: str, **headers: str) -> int:
    method, path = name.split(" ")
    path = re.sub(r"\{(\w+)[^}]*\}", lambda found: NAMED.get(found[1], ID), path)
    answer = await client.request(method, path, headers=headers)
    return answer.status_code


async def test_each_role_comes_in_where_the_table_says_so_and_nowhere_else(database_url: str) -> None:
    async with console(database_url, rate="100000/minute", rate_address="1000000/minute") as web:
        people = {letter: await web.program(role.value, role) for letter, role in ROLES.items()}
        people["-"] = await web.program("nobody")
        wrong = []
        for name, roles in ROUTES.items():
            for number, (letter, client) in enumerate(people.items()):
                status = await call(client, name, **{"Idempotency-Key": f'"{name} {number}"'})
                assert status not in {401, 500}, f"{letter} {name}: {status}"
                if (status != 403) != (letter in roles):
                    wrong.append(f"{letter} {name}: {status}")
        assert wrong == []


async def test_without_an_identity_no_route_is_answered(database_url: str) -> None:
    async with console(database_url) as web, web.client() as client:
        for name in (*ROUTES, *ANYBODY):
            for accept in ("application/json", "text/html"):
                status = await call(client, name, Accept=accept)
                page = accept == "text/html" and name.startswith("GET ") and "/api/" not in name
                assert status == (303 if page else 401), name
        written = await web.pool.fetchval(
            "SELECT (SELECT count(*) FROM milepost.operation) + (SELECT count(*) FROM milepost.audit)"
        )
        assert written == 0


async def test_a_grant_for_another_tenant_or_saga_opens_nothing(database_url: str) -> None:
    """Letters belong to no saga, so somebody who may see one saga sees none."""
    async with console(database_url) as web:
        other = await web.program("ann", Grant(Role.ADMIN, frozenset({"acme"}), frozenset({"order"})))
        assert (await other.get("/api/v1/outbox")).status_code == 403
        answer = await other.get("/api/v1/letters")
        assert answer.status_code in {200, 403}
        if answer.status_code == 200:
            assert answer.json()["items"] == []
