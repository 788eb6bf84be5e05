"""Options of acts on runs: one run by its name, or many by a filter."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from ..schemas.errors import UsageError

_OPTIONS: dict[str, Any] = {
    "saga": Annotated[
        str | None, typer.Option(metavar="NAME", help="Instead of RUN: all runs of this saga.")
    ],
    "state": Annotated[
        list[str] | None,
        typer.Option(metavar="STATE", help="Instead of RUN: in this state; may be repeated."),
    ],
    "code": Annotated[
        str | None, typer.Option(metavar="CODE", help="Instead of RUN: what stands there with this code.")
    ],
    "of_step": Annotated[
        str | None, typer.Option("--step", metavar="NAME", help="Instead of RUN: this step, in all that fit.")
    ],
    "since": Annotated[
        str | None,
        typer.Option(metavar="AGO", help="Instead of RUN: began in the last 2h, 7d, or since a time."),
    ],
    "limit": Annotated[
        int, typer.Option(metavar="N", help="At most so many, the oldest first.", min=1, max=100_000)
    ],
    "rate": Annotated[float, typer.Option(metavar="N", help="At most so many a second.", min=0.1, max=200.0)],
}
_DEFAULTS = {"limit": 10_000, "rate": 20.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Many:
    """The filter of a command, as it was given."""

    saga: str | None = None
    state: list[str] | None = None
    code: str | None = None
    of_step: str | None = None
    since: str | None = None
    limit: int = 10_000
    rate: float = 20.0

    @property
    def empty(self) -> bool:
        """Whether nothing was chosen by."""
        return not (self.saga or self.state or self.code or self.of_step or self.since)


def filtered(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a filter; it receives them as `many`, a `Many`."""
    signature = inspect.signature(command, eval_str=True)
    own = [parameter for parameter in signature.parameters.values() if parameter.name != "many"]
    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=_DEFAULTS.get(name), annotation=kind)
        for name, kind in _OPTIONS.items()
    ]

    @functools.wraps(command)
    def call(*args: Any, **named: Any) -> None:
        many = Many(**{name: named.pop(name) for name in _OPTIONS})
        command(*args, many=many, **named)

    del call.__wrapped__  # else its hints are read, which know no filter
    parameters = sorted([*own, *more], key=lambda parameter: parameter.kind)
    call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


def one_or_many(word: str, run: str | None, step: str | None, many: Many, *, names_step: bool) -> bool:
    """Say whether a command is about many runs.

    Raises:
        UsageError: MP601 when it names neither a run nor a filter, or both, or no step where one is needed.
    """
    if run is None and many.empty:
        needed = "RUN STEP" if names_step else "RUN"
        raise UsageError(
            "MP601",
            f"{word}: say which run ({needed}), or choose by --saga, --state, --code, --step, --since.",
        )
    if run is not None and not many.empty:
        raise UsageError("MP601", f"{word}: name one run, or choose by options, not both.")
    if run is not None and names_step and step is None:
        raise UsageError("MP601", f"{word}: Missing argument 'STEP'. See `milepost {word} --help`.")
    return run is None
