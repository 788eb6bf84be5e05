"""Signing in with a real OpenID Connect provider."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from tests.support.consoleweb import BASE, console

with warnings.catch_warnings():  # it uses a module of Authlib's that is to go
    warnings.simplefilter("ignore")
    import oidc_provider_mock

#: The provider uses what Authlib is about to drop, in a thread of this process.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

GRANTS = [{"group": "ops", "role": "operator", "tenants": ["acme"]}]


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    """A provider that knows two people."""
    ann = {"email": "ann@example.org", "email_verified": True, "groups": ["ops"]}
    bob = {"email": "bob@example.org", "email_verified": False}
    people = [oidc_provider_mock.User(sub=sub, claims=own) for sub, own in (("ann-7", ann), ("bob-8", bob))]
    with oidc_provider_mock.run_server_in_thread(user_claims=people) as server:
        yield f"http://localhost:{server.server_port}"


def settings(issuer: str, **more: Any) -> dict[str, Any]:
    return {
        "oidc_issuer": issuer,
        "oidc_client_id": "console",
        "oidc_client_secret": "any secret is taken",
        "grants": GRANTS,
        **more,
    }


async def at_provider(url: str, sub: str) -> str:
    """Sign in at the provider as a browser does; returns where it sends the browser back to."""
    async with httpx.AsyncClient() as browser:
        answer = await browser.post(url, data={"sub": sub})
    assert answer.status_code == 302, answer.text
    return answer.headers["location"]


async def test_a_person_signs_in_with_pkce_and_has_what_the_groups_give(
    database_url: str, issuer: str
) -> None:
    async with console(database_url, **settings(issuer)) as web, web.client() as browser:
        begun = await browser.get("/sign-in/oidc", params={"next": "/runs"})
        asked = parse_qs(urlsplit(begun.headers["location"]).query)
        assert asked["code_challenge_method"] == ["S256"] and len(asked["code_challenge"][0]) == 43
        assert asked["redirect_uri"] == [f"{BASE}/sign-in/oidc/back"]
        back = await at_provider(begun.headers["location"], "ann-7")
        entered = await browser.get(back)
        assert (entered.status_code, entered.headers["location"]) == (303, "/runs")
        who = (await browser.get("/api/v1/me")).json()
        assert (who["name"], who["kind"], who["way"]) == ("ann-7", "PERSON", "OIDC")
        assert who["grants"] == [{"role": "OPERATOR", "tenants": ["acme"], "sagas": None}]
        again = await browser.get(back)
        assert (again.status_code, again.json()["code"]) == (403, "MP708")


async def test_an_answer_that_belongs_to_another_browser_signs_nobody_in(
    database_url: str, issuer: str
) -> None:
    """Login CSRF: a link that would sign the victim in as the attacker."""
    async with (
        console(database_url, **settings(issuer)) as web,
        web.client() as attacker,
        web.client() as victim,
    ):
        begun = await attacker.get("/sign-in/oidc")
        back = await at_provider(begun.headers["location"], "ann-7")
        refused = await victim.get(back)
        assert (refused.status_code, refused.json()["code"]) == (403, "MP708")
        await victim.get("/sign-in/oidc")
        refused = await victim.get(back)
        assert (refused.status_code, refused.json()["code"]) == (403, "MP708")
        assert await web.pool.fetchval("SELECT count(*) FROM milepost.console_session") == 0


async def test_an_address_that_nobody_has_verified_is_no_name(database_url: str, issuer: str) -> None:
    async with console(database_url, **settings(issuer, oidc_name="email")) as web:
        for sub, status in (("bob-8", 403), ("ann-7", 303)):
            async with web.client() as browser:
                begun = await browser.get("/sign-in/oidc")
                answer = await browser.get(await at_provider(begun.headers["location"], sub))
                assert answer.status_code == status
        name = await web.pool.fetchval("SELECT name FROM milepost.console_session")
        assert name == "ann@example.org"


async def test_a_provider_that_is_away_is_said_so(database_url: str) -> None:
    async with console(database_url, **settings("http://127.0.0.1:9")) as web, web.client() as browser:
        answer = await browser.get("/sign-in/oidc", headers={"Accept": "text/html"})
        assert answer.status_code == 403 and "MP708" in answer.text
