"""The command line of `milepost graph`."""

from __future__ import annotations

import asyncio
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ..schemas.errors import UsageError
from .options import given


class GraphFormat(StrEnum):
    """How `graph` draws; states = what runs and steps may go through, instead of a saga."""

    mermaid = "mermaid"
    svg = "svg"
    json = "json"
    states = "states"


def graph_command(
    context: typer.Context,
    saga: Annotated[
        str | None,
        typer.Argument(
            metavar="SAGA",
            help="Its name, such as order; or order/2 for a version. Not needed with --run, or where there is only "
            "one.",
            show_default=False,
        ),
    ] = None,
    *,
    form: Annotated[
        GraphFormat | None,
        typer.Option(
            "--format",
            help="Of the drawing; states draws what every run and step may go through, and needs no SAGA. "
            "Default: as FILE ends, else mermaid.",
        ),
    ] = None,
    run: Annotated[
        str | None,
        typer.Option(
            metavar="RUN", help="Draw where this run stands: order/o-1, or the beginning of the run's id."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write it there instead of printing.")
    ] = None,
) -> None:
    """Draw a saga, or a run on top of its saga."""
    from .graph import draw_flow, draw_states

    chosen = _format_of(form, out)
    if chosen is not GraphFormat.states:
        asyncio.run(draw_flow(given(context), saga, chosen, run=run, out=out))
        return
    if saga is not None or run is not None:
        raise UsageError(
            "MP601", "--format states draws the states of all runs and steps. Leave SAGA and --run out."
        )
    draw_states(given(context), out=out)


def _format_of(form: GraphFormat | None, out: Path | None) -> GraphFormat:
    """Return how to draw: as asked for, else as the file's ending says, else as mermaid."""
    endings = {".svg": GraphFormat.svg, ".json": GraphFormat.json}
    ending = "" if out is None else out.suffix.lower()
    return form or endings.get(ending, GraphFormat.mermaid)
