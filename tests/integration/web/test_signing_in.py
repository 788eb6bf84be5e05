"""Who may come in, and how a session ends."""

from __future__ import annotations

from milepost.recovery.permissions import Role

from tests.support.consoleweb import console


async def test_nothing_but_health_is_answered_without_an_identity(database_url: str) -> None:
    async with console(database_url) as web, web.client() as client:
        assert (await client.get("/health/live")).json() == {"live": True}
        assert (await client.get("/health/ready")).json() == {"ready": True}
        for path in ("/api/v1/openapi.json", "/api/v1/runs", "/no/such/thing", "/healthy"):
            answer = await client.get(path)
            assert (answer.status_code, answer.json()["code"]) == (401, "MP702"), path
            assert answer.headers["content-type"] == "application/problem+json"
        page = await client.get("/runs?state=FAILED", headers={"Accept": "text/html"})
        assert (page.status_code, page.headers["location"]) == (303, "/sign-in?next=%2Fruns%3Fstate%3DFAILED")


async def test_a_session_begins_with_a_token_and_ends_for_every_copy_of_its_cookie(database_url: str) -> None:
    async with console(database_url) as web, web.client() as browser, web.client() as thief:
        wrong = await browser.post("/sign-in", data={"token": "mpt_nothing"})
        assert wrong.status_code == 401 and "not known" in wrong.text
        token = await web.token("ann", Role.VIEWER)
        entered = await browser.post("/sign-in", data={"token": token, "next": "/runs"})
        assert (entered.status_code, entered.headers["location"]) == (303, "/runs")
        (cookie,) = entered.headers.get_list("set-cookie")
        assert "HttpOnly" in cookie and "SameSite=lax" in cookie and "Max-Age=28800" in cookie
        thief.cookies = browser.cookies
        assert (await thief.get("/api/v1/openapi.json")).status_code == 200
        refused = await browser.post("/sign-out")
        assert (refused.status_code, refused.json()["code"]) == (403, "MP704")
        out = await browser.post("/sign-out", data={"csrf": web.csrf(browser)})
        assert (out.status_code, out.headers["location"]) == (303, "/sign-in")
        assert (await thief.get("/api/v1/openapi.json")).status_code == 401
        assert await web.pool.fetchval("SELECT count(*) FROM milepost.console_session") == 0


async def test_the_printed_link_works_once_and_signs_in_an_admin(database_url: str) -> None:
    async with console(database_url) as web, web.client() as first, web.client() as second:
        secret = web.app.state.parts.links.make("ann", {"finance"})
        entered = await first.get("/sign-in/link", params={"token": secret})
        assert (entered.status_code, entered.headers["location"]) == (303, "/")
        groups = await web.pool.fetchval("SELECT groups FROM milepost.console_session")
        assert groups == ["finance"], "what an approval that asks for a role counts"
        assert (await first.get("/api/v1/openapi.json")).status_code == 200
        again = await second.get("/sign-in/link", params={"token": secret})
        assert (again.status_code, again.json()["code"]) == (403, "MP708")
