"""`milepost demo`: the shop example, with real processes that are killed while they work."""

from __future__ import annotations

from importlib.util import find_spec

import typer

from .dev import missing_extra
from .options import Globals

_NEEDED = ("fastapi", "uvicorn", "httpx")


def run_demo(given: Globals, *, orders: int, keep: bool) -> None:
    """Run the demo.

    Args:
        orders: How many orders are placed.
        keep: Leave the servers running afterwards, to look at the runs.

    Raises:
        StartError: MP611 when milepost[demo] or milepost[dev] is not installed.
        typer.Exit: With the demo's own status.
    """
    for name in _NEEDED:
        if find_spec(name) is None:
            raise missing_extra("demo,dev", ModuleNotFoundError(name=name))
    try:
        from ..examples.shop.demo import run_demo as rehearse
    except ModuleNotFoundError as error:
        raise missing_extra("demo,dev", error) from error
    raise typer.Exit(rehearse(orders=orders, keep=keep, as_json=given.out.as_json))
