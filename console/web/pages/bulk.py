"""Acts on many runs by a filter: shown before, begun as shown, followed while they go on, one outcome for each."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Final, Literal
from uuid import UUID

from fastapi import APIRouter, Depends, Form, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import RedirectResponse, Response

from ....recovery.bulk import FASTEST, RATE, Bulk, bulks, items_of
from ....recovery.bulk_beginning import begin
from ....recovery.bulk_carrying import control
from ....recovery.bulk_choosing import Preview, RunFilter, preview_runs
from ....recovery.permissions import Act, Actor, ActorKind, may_somewhere
from ....schemas.states import RunState
from ...views.runs import Sql as RunsSql
from ...views.runs import workflows
from ..identity import Connected, Seen, Signed
from ..permitting import needs, refused
from ..problems import Problem
from ..rendering import page

router = APIRouter(dependencies=[needs(Act.READ_BULK)])

ACTS: Final = ("retry", "skip", "approve", "reject", "compensate", "resume", "cancel")
#: Items of a preview that are named, and of a bulk that are shown at once.
NAMED, SHOWN = 20, 200
_WITHIN: Final = {
    "1h": timedelta(hours=1),
    "24h": timedelta(days=1),
    "7d": timedelta(days=7),
    "30d": timedelta(days=30),
}
_TONES: Final = {
    "ACCEPTED": "done",
    "RESOLVED": "done",
    "IGNORED": "done",
    "REFUSED": "failed",
    "GONE": "over",
    "WAITING": "",
    "ASKED": "live",
}


class Chosen(BaseModel):
    """What is chosen by, as the address has it."""

    act: Annotated[str, Field(max_length=20)] = ""
    saga: Annotated[str, Field(max_length=200)] = ""
    state: Annotated[str, Field(max_length=30)] = ""
    code: Annotated[str, Field(max_length=100)] = ""
    step: Annotated[str, Field(max_length=200)] = ""
    within: Annotated[str, Field(max_length=5)] = ""

    @property
    def filter(self) -> RunFilter:
        """As the door of acts on many takes it."""
        known = {state.value for state in RunState}
        return RunFilter(
            saga=self.saga or None,
            states=(RunState(self.state),) if self.state in known else (),
            code=self.code or None,
            step=self.step or None,
            since=_WITHIN.get(self.within),
        )


class Begun(Chosen):
    """The form that begins what was shown.

    Attributes:
        shown: How many the page showed.
        mark: Of exactly these, as they stood.
        undo: For cancel: yes or no.
        rate: Items begun in a second.
    """

    shown: int
    mark: str = Field(max_length=64)
    reason: str = Field(max_length=4000)
    undo: str = ""
    rate: float = RATE


class Controlled(BaseModel):
    """The form that pauses, goes on with, stops or confirms."""

    what: Literal["pause", "resume", "stop", "confirm"]
    reason: str = Field(max_length=4000)


@router.get("/bulk")
async def show_all(request: Request, actor: Signed, scope: Seen, connection: Connected) -> Response:
    """List the acts on many, the youngest first."""
    found = await bulks(connection, scope)
    now = await connection.fetchval(RunsSql.now)
    rows = [(one, _bars(one)) for one in found]
    return page(request, "bulks.html", now=now, live="bulk", rows=rows, may=_may_begin(actor))


@router.get("/bulk/new")
async def choose(
    *, request: Request, actor: Signed, scope: Seen, connection: Connected, chosen: Annotated[Chosen, Query()]
) -> Response:
    """Show what an act would be done on."""
    return await _show(request, actor, scope, connection, chosen)


async def _show(  # noqa: PLR0917 - what a page is made of
    request: Request, actor: Actor, scope: Seen, connection: Any, chosen: Chosen, changed: str = ""
) -> Response:
    found = await _preview(connection, actor, chosen)
    return page(
        request,
        "bulk_new.html",
        status=409 if changed else 200,
        now=await connection.fetchval(RunsSql.now),
        chosen=chosen,
        found=found,
        named=[] if found is None else found.items[:NAMED],
        changed=changed,
        acts=[(name, name.replace("_", " ").capitalize()) for name in ACTS],
        states=[(one.value, one.value.replace("_", " ").lower()) for one in RunState],
        sagas=await workflows(connection, scope),
        may=_may_begin(actor),
        rate=RATE,
        fastest=FASTEST,
    )


async def _preview(connection: Any, actor: Actor, chosen: Chosen) -> Preview | None:
    """Return what would be begun; None where no act, or nothing to choose by, was said yet."""
    if chosen.act not in ACTS or chosen.filter.empty:
        return None
    return await preview_runs(connection, actor, chosen.act, chosen.filter)


def _may_begin(actor: Actor) -> bool:
    return actor.kind is ActorKind.PERSON and any(may_somewhere(actor, Act(name)) for name in ACTS)


async def persons(actor: Signed) -> None:
    """Refuse whoever is no person: an agent proposes, one act at a time."""
    if actor.kind is not ActorKind.PERSON:
        raise refused(actor, Act.CONTROL_BULK)


@router.post("/bulk", dependencies=[needs(*(Act(name) for name in ACTS)), Depends(persons)])
async def start(
    *, request: Request, actor: Signed, scope: Seen, connection: Connected, form: Annotated[Begun, Form()]
) -> Response:
    """Begin an act on exactly what was shown; where it is another number by now, show it again."""
    found = await _preview(connection, actor, form)
    if found is None:
        raise Problem(
            422, "MP671", "Say what is to be done, and choose runs by workflow, state, code, step or time."
        )
    if found.mark != form.mark:
        amount = len(found.items)
        words = f"It was {form.shown:,} and is {amount:,} by now."
        if amount == form.shown:
            words = "As many are chosen by now, and they are not those that were shown."
        words += " Look again, and begin what is shown."
        return await _show(request, actor, scope, connection, form, words)
    arguments = {"undo": form.undo == "yes"} if form.act == "cancel" else {}
    made = await begin(
        connection, actor, found, reason=form.reason, arguments=arguments, rate=min(form.rate, FASTEST)
    )
    return RedirectResponse(f"/bulk/{made}", 303)


@router.get("/bulk/{bulk_id}")
async def show(
    *,
    request: Request,
    actor: Signed,
    scope: Seen,
    connection: Connected,
    bulk_id: UUID,
    outcome: str = "",
    after: int = 0,
) -> Response:
    """Show how far an act on many has come, and what became of each."""
    one = await _one(connection, scope, bulk_id)
    items = await items_of(connection, bulk_id, after=after, outcome=outcome or None, limit=SHOWN + 1)
    following = f"outcome={outcome}&after={items[SHOWN - 1]['n']}" if len(items) > SHOWN else None
    return page(
        request,
        "bulk.html",
        now=await connection.fetchval(RunsSql.now),
        live="bulk",
        one=one,
        bars=_bars(one),
        done=one.total - one.left,
        items=items[:SHOWN],
        outcome=outcome,
        pager={
            "shown": min(len(items), SHOWN),
            "next": following,
            "first": f"outcome={outcome}" if after else None,
        },
        controls=_controls(actor, one),
    )


@router.post("/bulk/{bulk_id}/control", dependencies=[needs(Act.CONTROL_BULK, Act.CONFIRM)])
async def steer(
    *, actor: Signed, scope: Seen, connection: Connected, bulk_id: UUID, form: Annotated[Controlled, Form()]
) -> Response:
    """Pause, go on with, stop or confirm an act on many."""
    await _one(connection, scope, bulk_id)
    await control(connection, actor, bulk_id, form.what, reason=form.reason)
    return RedirectResponse(f"/bulk/{bulk_id}", 303)


async def _one(connection: Any, scope: Seen, bulk_id: UUID) -> Bulk:
    found = await bulks(connection, scope, id=bulk_id)
    if not found:
        raise Problem(404, "MP672", f"There is no act on many {bulk_id}, or it is none that you may see.")
    return found[0]


def _bars(one: Bulk) -> list[tuple[str, int, str]]:
    order = sorted(
        one.counts.items(), key=lambda item: list(_TONES).index(item[0]) if item[0] in _TONES else 9
    )
    return [(_TONES.get(name, "over"), amount, f"{amount:,} {name.lower()}") for name, amount in order]


def _controls(actor: Actor, one: Bulk) -> list[tuple[str, str, str]]:
    """Return what may be done about it: the name, the label, and why not."""
    can = {"RUNNING": ("pause", "stop"), "PAUSED": ("resume", "stop"), "HELD": ("confirm", "stop")}.get(
        one.state, ()
    )
    labels = {"pause": "Pause", "resume": "Go on", "stop": "Stop", "confirm": "Confirm"}
    made = []
    for name in can:
        act = Act.CONFIRM if name == "confirm" else Act.CONTROL_BULK
        why = "" if may_somewhere(actor, act) else "Not allowed: your roles do not say so."
        if name == "confirm" and one.by.casefold() == actor.name.casefold():
            why = "You have begun it yourself; somebody else has to confirm it."
        made.append((name, labels[name], why))
    return made
