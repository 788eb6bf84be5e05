"""What somebody tries who should not come in: forged proofs, names, addresses, paths and bodies."""

from __future__ import annotations

from typing import Any

import pytest
from milepost.console.web.gate import local_path
from milepost.recovery.permissions import Role

from tests.support.consoleweb import console

SECRET = "a proof that only the proxy knows, long enough"
EVIL = {"Origin": "https://evil.example", "Accept": "application/json"}


async def test_every_answer_carries_what_keeps_a_browser_safe(database_url: str) -> None:
    async with console(database_url) as web, web.client() as client:
        for path in ("/sign-in", "/api/v1/me", "/health/live", "/static/console.css", "/nothing"):
            headers = (await client.get(path)).headers
            policy = headers["content-security-policy"]
            assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy, path
            assert "unsafe" not in policy and "*" not in policy
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "same-origin"
            assert "server" not in headers
        assert "strict-transport-security" not in headers
    secure: dict[str, Any] = {"public_url": "https://console.example", "host": "10.0.0.1"}
    async with console(database_url, **secure) as web:
        web.base = "https://console.example"
        async with await web.person("ann", Role.VIEWER) as ann:
            answer = await ann.get("/api/v1/me")
            assert answer.headers["strict-transport-security"] == "max-age=31536000"
            assert "__Host-milepost" in ann.cookies


async def test_a_write_of_a_session_needs_the_forms_proof_and_our_own_page(database_url: str) -> None:
    async with console(database_url) as web, await web.person("ann", Role.ADMIN) as ann:
        proof = ann.headers.pop("X-CSRF-Token")
        async with await web.person("bob", Role.ADMIN) as bob:
            others = bob.headers["X-CSRF-Token"]
        for given in ({}, {"csrf": ""}, {"csrf": others}, {"csrf": proof[:-1]}):
            answer = await ann.post("/sign-out", data=given)
            assert (answer.status_code, answer.json()["code"]) == (403, "MP704"), given
        for headers in (EVIL, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
            answer = await ann.post("/sign-out", data={"csrf": proof}, headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (403, "MP705"), headers
        cross = await ann.post("/sign-in", data={"token": "x"}, headers=EVIL)
        assert (cross.status_code, cross.json()["code"]) == (403, "MP705")
        assert (await ann.get("/api/v1/me")).json()["name"] == "ann"
        assert (await ann.post("/sign-out", data={"csrf": proof})).status_code == 303


async def test_a_cookie_that_was_changed_or_has_ended_is_nobodys(database_url: str) -> None:
    async with console(database_url) as web, await web.person("ann", Role.ADMIN) as ann:
        cookie = ann.cookies["milepost"]
        async with web.client() as other:
            for forged in (cookie[:-2] + "xx", cookie.split(".")[0], "é", f"{cookie}.{cookie}"):
                other.cookies.clear()
                other.headers["Cookie"] = f"milepost={forged}".encode().decode("latin-1")
                assert (await other.get("/api/v1/me")).status_code == 401
        before = dict(ann.cookies)
        again = await ann.post("/sign-in", data={"token": await web.token("ann", Role.ADMIN)})
        assert again.status_code == 303 and ann.cookies["milepost"] != before["milepost"]
        async with web.client(cookies=before) as replayed:
            assert (await replayed.get("/api/v1/me")).status_code == 401
        await web.pool.execute("UPDATE milepost.console_session SET expires_at = milepost.clock()")
        assert (await ann.get("/api/v1/me")).status_code == 401


async def test_a_token_that_is_revoked_ends_what_it_opened(database_url: str) -> None:
    async with console(database_url) as web, await web.person("ann", Role.ADMIN) as ann:
        program = await web.program("robot", Role.VIEWER)
        assert (await program.get("/api/v1/me")).json()["grants"][0]["role"] == "VIEWER"
        await web.pool.execute("UPDATE milepost.access_token SET revoked_at = milepost.clock()")
        for client in (ann, program):
            assert (await client.get("/api/v1/me")).status_code == 401
        both = web.client(headers=[("Authorization", "Bearer a"), ("Authorization", "Bearer b")])
        assert (await both.get("/api/v1/me")).status_code == 401
        basic = web.client(auth=("ann", "secret"))
        assert (await basic.get("/api/v1/me")).status_code == 401


async def test_only_the_proxy_says_who_somebody_is(database_url: str) -> None:
    settings: dict[str, Any] = {
        "proxy_from": "10.1.0.0/16",
        "proxy_header": "X-Forwarded-User",
        "proxy_groups_header": "X-Forwarded-Groups",
        "proxy_secret": SECRET,
        "grants": [
            {"group": "ops", "role": "operator"},
            {"group": "*", "role": "viewer", "sagas": ["order"]},
        ],
    }
    headers = {"X-Forwarded-User": "ann", "X-Forwarded-Groups": "ops, x", "X-Milepost-Proxy-Secret": SECRET}
    async with console(database_url, **settings) as web:
        proxy = web.client(address="10.1.2.3", headers=headers)
        who = (await proxy.get("/api/v1/me")).json()
        assert (who["name"], who["way"]) == ("ann", "PROXY")
        assert [grant["role"] for grant in who["grants"]] == ["OPERATOR", "VIEWER"]
        mapped = web.client(address="::ffff:10.1.2.3", headers=headers)
        assert (await mapped.get("/api/v1/me")).status_code == 200
        spoofed = [
            web.client(address="10.2.0.1", headers=headers),
            web.client(address="10.2.0.1", headers={**headers, "X-Forwarded-For": "10.1.2.3"}),
            web.client(address="10.1.2.3", headers={**headers, "X-Milepost-Proxy-Secret": "guessed"}),
            web.client(address="10.1.2.3", headers=[*headers.items(), ("X-Forwarded-User", "root")]),
            web.client(address="10.1.2.3", headers=[*headers.items(), ("X-Forwarded-Groups", "root")]),
            web.client(address="10.1.2.3", headers={**headers, "X-Forwarded-User": " "}),
            web.client(address="10.1.2.3", headers={**headers, "X-Forwarded-User": b"jos\xe9"}),
        ]
        for client in spoofed:
            assert (await client.get("/api/v1/me")).status_code == 401
        # One person has one name, however it is written, so that nobody is his own second person.
        for written in ("José", "Jose\u0301"):
            jose = web.client(address="10.1.2.3", headers={**headers, "X-Forwarded-User": written.encode()})
            assert (await jose.get("/api/v1/me")).json()["name"] == "José"
        # The proxy's cookie goes along by itself, so a form needs its proof here too.
        assert (await proxy.post("/sign-out")).json()["code"] == "MP704"
        assert (await proxy.post("/sign-out", headers={"X-CSRF-Token": who["csrf"]})).status_code == 303


async def test_another_host_name_is_not_answered(database_url: str) -> None:
    async with console(database_url) as web, web.client() as client:
        for name in ("evil.example", "127.0.0.1.evil.example", "localhost@evil.example", "[", ""):
            answer = await client.get("/sign-in", headers={"Host": name})
            assert (answer.status_code, answer.json()["code"]) == (421, "MP705"), name
        assert (await client.get("/sign-in", headers={"Host": "localhost:1"})).status_code == 200
        assert (await client.get("/health/live", headers={"Host": "10.0.0.9:80"})).status_code == 200


async def test_who_asks_too_often_is_told_to_wait(database_url: str) -> None:
    async with console(database_url, rate="5/minute", rate_sign_in="4/minute") as web:
        program = await web.program("robot", Role.VIEWER)
        statuses = [(await program.get("/api/v1/me")).status_code for _ in range(6)]
        assert statuses == [200] * 5 + [429]
        other = await web.program("other", Role.VIEWER)
        assert (await other.get("/api/v1/me")).status_code == 200
        guesser = web.client(address="10.9.9.9", headers={"Authorization": "Bearer mpt_guess"})
        answers = [await guesser.get("/api/v1/me") for _ in range(5)]
        assert [answer.status_code for answer in answers] == [401] * 4 + [429]
        assert 0 < int(answers[-1].headers["retry-after"]) <= 60
        form = web.client(address="10.9.9.9")
        assert (await form.post("/sign-in", data={"token": "x"})).status_code == 429


async def test_a_body_that_is_too_long_is_not_read(database_url: str) -> None:
    async with console(database_url, max_body=1000) as web, await web.program("robot", Role.ADMIN) as robot:
        answer = await robot.post("/api/v1/me", content=b"x" * 1001)
        assert (answer.status_code, answer.json()["code"]) == (413, "MP707")


@pytest.mark.parametrize(
    "text",
    [
        "//evil.example",
        "https://evil.example",
        "/\\evil.example",
        "\\/evil.example",
        "/\t/evil.example",
        "/sign-in?next=/",
        "javascript:alert(1)",
        "",
        None,
        "/%0d\r\nx: y",
        "/ /x",
    ],
)
def test_the_way_back_never_leads_elsewhere(text: str | None) -> None:
    assert local_path(text) == "/"


def test_the_way_back_leads_where_somebody_was() -> None:
    assert local_path("/runs?state=FAILED&q=a%2Fb") == "/runs?state=FAILED&q=a%2Fb"


async def test_what_fails_tells_a_reference_and_nothing_else(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with console(database_url) as web, await web.program("robot", Role.ADMIN) as robot:

        async def fails() -> None:
            raise RuntimeError("with a secret in it")

        web.app.add_api_route("/api/v1/fails", fails)
        answer = await robot.get("/api/v1/fails")
        problem = answer.json()
        assert (answer.status_code, problem["code"]) == (500, "MP711")
        assert "secret" not in answer.text and problem["reference"] in caplog.text
        assert answer.headers["x-content-type-options"] == "nosniff"
