"""`milepost graph`: a saga, a run on top of its saga, or the states of the machine that runs them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ..schemas.errors import UsageError
from .application import definitions, load_app, plan_of
from .graph_commands import GraphFormat
from .model import RunDetail, run_reference, situation
from .options import Globals
from .output import json_line, span
from .store import reading

if TYPE_CHECKING:
    from ..consumers.app import Milepost
    from ..sagas.definition import Definition
    from ..sagas.drawing import Drawing, Progress


async def draw_flow(
    given: Globals, name: str | None, form: GraphFormat, *, run: str | None, out: Path | None
) -> None:
    """Draw a saga: the way forward, the waits, the undos; with `run` what that run has done of it.

    Args:
        name: "order", which means its newest version, or "order/1"; None for the only one there is, or the run's.
        form: Any but states.
        run: What a person calls a run, or None.
        out: File to write instead of printing; "-" prints.

    Raises:
        UsageError: MP601 without a name where there are several, or for a run of another saga; MP613 for a saga, or a
            version of one, that the application does not have; MP618 for a file that cannot be written.
    """
    from ..sagas.drawing_plan import draw

    if run is None:
        service = load_app(given)
        drawing = draw(find(service, name if name is not None else only(service)))
    else:
        drawing = await _draw_run(given, name, run)
    _deliver(given, form, _text(drawing, form), _data(drawing), out)


async def _draw_run(given: Globals, name: str | None, reference: str) -> Drawing:
    from ..sagas.drawing_plan import draw

    named = run_reference(reference)
    service = load_app(given)
    async with reading(given.database_url()) as store:
        run = await store.run(await store.find(named), history=False)
    own = f"{run.saga}/{run.definition}"
    if name is not None and name not in {run.saga, own}:
        raise UsageError(
            "MP601", f"run {run.run} is one of {own}, not of {name}. Leave SAGA out, or name that one."
        )
    return draw(find(service, own), _progress(service, run))


def _progress(service: Milepost, run: RunDetail) -> Progress:
    """Return where a run stands, as drawings take it; of a step with several rounds the youngest counts."""
    from ..sagas.drawing import Mark, Progress

    marks = {
        step.name: Mark(
            state=step.state,
            tries=step.attempt,
            probes=step.probes,
            code=step.code,
            doubt=step.doubt,
            iteration=step.iteration,
        )
        for step in run.steps
    }
    words = situation(run, plan_of(service, run.saga, run.definition), span)
    return Progress(reference=run.run, state=run.state, situation=words, marks=marks)


def _text(drawing: Drawing, form: GraphFormat) -> str:
    from ..sagas.drawing_mermaid import flow_mermaid
    from ..sagas.drawing_svg import flow_svg

    if form is GraphFormat.svg:
        return flow_svg(drawing)
    return flow_mermaid(drawing) if form is GraphFormat.mermaid else json_line(_data(drawing)) + "\n"


def _data(drawing: Drawing) -> dict[str, object]:
    from ..sagas.graph import flow_json

    return dict(flow_json(drawing))


def draw_states(given: Globals, *, out: Path | None) -> None:
    """Print the states that every run and step may take, and who may cause each change.

    Raises:
        UsageError: MP618 for a file that cannot be written.
    """
    from ..sagas.graph import states_mermaid
    from ..sagas.transitions import RUN_TRANSITIONS, STEP_TRANSITIONS

    arrows = {"run": _arrows(RUN_TRANSITIONS.items()), "step": _arrows(STEP_TRANSITIONS.items())}
    _deliver(given, GraphFormat.states, states_mermaid(), dict(arrows), out)


def _deliver(given: Globals, form: GraphFormat, text: str, data: dict[str, object], out: Path | None) -> None:
    """Print a drawing, for machines with --json, or write it to a file and say so."""
    if out is None or str(out) == "-":
        given.out.item(**data)
        if not given.out.as_json:
            given.out.line(text.rstrip("\n"))
        return
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            "MP618", f"the drawing cannot be written to {out}: {error}. Name another file with --out."
        ) from error
    given.out.item(file=str(out), format=form.value)
    given.out.say(f"{out} written, {form.value}")


def only(service: Milepost) -> str:
    """Return the name of the only saga of a service.

    Raises:
        UsageError: MP601 where there are several, naming them; MP613 where there are none.
    """
    names = sorted({definition.name for definition in definitions(service)})
    if not names:
        raise UsageError("MP613", f"service {service.name} has no sagas, so there is nothing to draw.")
    if len(names) > 1:
        raise UsageError("MP601", f"graph draws one saga. Say which: {', '.join(names)}.")
    return names[0]


def find(service: Milepost, name: str) -> Definition:
    """Return a definition by "order" (the newest version) or "order/1".

    Raises:
        UsageError: MP613 when the service has none.
    """
    known = definitions(service)
    for definition in reversed(known):
        if name in {definition.name, definition.id}:
            return definition
    there = ", ".join(definition.id for definition in known) or "none"
    raise UsageError("MP613", f"service {service.name} has no saga {name!r}. It has: {there}.")


def _arrows(table: Iterable[tuple[tuple[str | None, str], Iterable[str]]]) -> list[dict[str, object]]:
    return [{"from": before, "to": after, "causes": sorted(causes)} for (before, after), causes in table]
