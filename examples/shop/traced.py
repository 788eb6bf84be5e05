"""The demo with Jaeger: the trace of one order is read back through Jaeger's query API and drawn.

Run it with `make jaeger`. Jaeger is taken from MILEPOST_JAEGER, from Docker, or built once with Go.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import monotonic, sleep
from typing import Any

import httpx
from milepost.devstack import docker, given
from milepost.devstack.errors import DevstackError
from milepost.devstack.jaeger import Jaeger, build
from milepost.devstack.machine import shown
from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from .demo import BUILD, run_demo

#: What the trace of an order that was undone has at least; each kind comes from another process.
EXPECTED = (
    "POST /orders",
    "publish shop.order-placed",
    "process shop.order-placed",
    "step reserve_stock",
    "undo ",
)
#: How long Jaeger may take to show the last spans, in seconds.
SHOWN_WITHIN = 15.0


@contextmanager
def jaeger() -> Iterator[str]:
    """Run Jaeger, let the demo's processes know it, and yield the address of its query API."""
    found = given.jaeger()
    if found is not None:
        yield found[1]
        return
    if not docker.answers():
        build(shown)
    with Jaeger(say=shown) as server:
        os.environ.update({given.JAEGER: server.query, given.OTLP: server.otlp})
        yield server.query


def missing(spans: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what is expected in the trace and not there."""
    names = [str(span["operationName"]) for span in spans]
    return [wanted for wanted in EXPECTED if not any(name.startswith(wanted) for name in names)]


def trace_of(query: str, trace: str) -> tuple[list[Mapping[str, Any]], Mapping[str, Any]]:
    """Ask for a trace until it is complete or the time is over.

    Returns:
        Its spans, and the processes they come from by the spans' processID.
    """
    end = monotonic() + SHOWN_WITHIN
    while True:
        answer = httpx.get(f"{query}/api/traces/{trace}", timeout=10)
        data = answer.json().get("data") or [{"spans": [], "processes": {}}]
        spans = list(data[0]["spans"])
        if not missing(spans) or monotonic() > end:
            return spans, data[0]["processes"]
        sleep(0.2)


def drawn(spans: Sequence[Mapping[str, Any]], processes: Mapping[str, Any]) -> Tree:
    """Return the spans as a tree, children below their parents in the order of their start."""
    begun = min(int(span["startTime"]) for span in spans)
    ids = {span["spanID"] for span in spans}
    children: dict[str, list[Mapping[str, Any]]] = {}
    for span in sorted(spans, key=lambda found: int(found["startTime"])):
        parents = [ref["spanID"] for ref in span.get("references", []) if ref["refType"] == "CHILD_OF"]
        above = parents[0] if parents and parents[0] in ids else ""
        children.setdefault(above, []).append(span)

    def grow(tree: Tree, above: str) -> None:
        for span in children.get(above, []):
            after = (int(span["startTime"]) - begun) / 1e6
            service = processes[span["processID"]]["serviceName"]
            label = (
                f"{span['operationName']}  {service}  +{after:.2f} s, {int(span['duration']) / 1000:.1f} ms"
            )
            grow(tree.add(Text(label)), span["spanID"])

    root = Tree(Text(f"trace {spans[0]['traceID']}"))
    grow(root, "")
    return root


def main() -> int:
    """Run the demo under Jaeger and look at the order that it shows.

    Returns:
        0 when the demo was ok and the trace complete, 1 when not, 4 when Jaeger could not be had.
    """
    console = Console(soft_wrap=True)
    try:
        with jaeger() as query:
            status = run_demo()
            if status:
                return status
            trace = json.loads((BUILD / "demo.json").read_text())["trace"]
            spans, processes = trace_of(query, str(trace))
    except DevstackError as error:
        console.print(Text(f"jaeger failed: {error}", style="bold red"))
        return 4
    if spans:
        console.print(drawn(spans, processes))
    lacking = missing(spans)
    if lacking:
        console.print(Text(f"trace incomplete: {', '.join(lacking)} not found in {trace}", style="bold red"))
        return 1
    services = sorted({process["serviceName"] for process in processes.values()})
    console.print(f"trace ok: {len(spans)} spans of {', '.join(services)} in one trace", highlight=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
