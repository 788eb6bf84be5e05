"""An approval that asks for a role, given with the form of the page, by whoever started the console with that role."""

from __future__ import annotations

import re
from datetime import timedelta

from milepost import Saga, Then
from pydantic import BaseModel

from tests.support.carrying import carrying
from tests.support.consoleweb import Client, Web, console, form_proof
from tests.support.engine import rig


class Order(BaseModel):
    id: str


def payout() -> Saga[Order]:
    """A question to finance, and nothing else."""
    made = Saga("payout", version=1, input=Order, key=lambda order: order.id)
    made.flow(
        made.approval(
            "ok", roles=frozenset({"finance"}), expires=timedelta(hours=1), on_reject=Then.COMPENSATE
        )
    )
    return made


async def entered(web: Web, *roles: str) -> Client:
    """Follow the printed link of a console that was started with these roles."""
    client = web.client()
    secret = web.app.state.parts.links.make("ann", roles)
    assert (await client.get("/sign-in/link", params={"token": secret})).status_code == 303
    return client


def form_of(page: str, act: str) -> dict[str, str]:
    """Return what a browser would send with an act's form; nothing where it has none."""
    found = re.search(rf'<details class="act" id="act-1-{act}">(.*?)</details>', page, re.S)
    if found is None:
        return {}
    return dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', found[1]))


async def test_an_approval_that_asks_for_a_role_is_given_on_its_page(database_url: str) -> None:
    saga = payout()
    async with rig(database_url, saga) as it, console(database_url) as web:
        run = (await it.start(saga, Order(id="p-1"))).id
        nobody, finance = await entered(web), await entered(web, "finance")
        page = (await nobody.get(f"/runs/{run}")).text
        assert form_of(page, "approve") == {} and "milepost console --role ROLE" in page
        page = (await finance.get(f"/runs/{run}")).text
        form = form_of(page, "approve")
        assert form["role"] == "finance" and form["step"] == "ok"
        listed = (await finance.get("/worklist")).text
        [place] = set(re.findall(rf'href="(/runs/{run}\?wanted=approve&[^"#]+)', listed))
        begun = (await finance.get(place.replace("&amp;", "&"))).text
        assert 'id="act-1-approve" open' in begun, "what was chosen in the worklist is begun with"
        assert 'id="act-1-reject" open' not in begun
        async with carrying(it):
            sent = {**form, "csrf": form_proof(page), "reason": "the invoice is right"}
            answer = await finance.post(f"/runs/{run}/acts", data=sent)
            assert answer.status_code == 303, answer.text
        assert (await it.states(run)) == {"": "SUCCEEDED", "ok": "SUCCEEDED"}
        given = await it.row("SELECT by, roles FROM milepost.approval WHERE run_id = $1", run)
        assert tuple(given) == ("ann", ["finance"])
