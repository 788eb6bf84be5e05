"""What one try may spend, and what it has spent: behind `ctx.spend` and `ctx.budget`."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

from ..schemas.budget import Budget, BudgetExceeded
from ..schemas.errors import UsageError
from ..schemas.states import StepKind, StepState
from . import budgets
from .budgets import Amounts
from .definition import Definition, Node
from .model import Json, Run, Step


class Purse:
    """Counts for one call of a user's function.

    An undo and a probe are counted too, and never stopped: what was done has to be undone, and what is unknown settled.

    Args:
        run: As claimed.
        step: The claimed row; None for what belongs to no step, which is not counted.
    """

    def __init__(self, definition: Definition, node: Node | None, run: Run, step: Step | None) -> None:
        self._place = f"{run.saga}/{run.key}" + ("" if step is None else f", step {step.name}")
        self._stops = step is not None and step.kind is not StepKind.UNDO and step.state is StepState.RUNNING
        self._run = budgets.left_of_run(definition, run)
        self._try = {} if node is None or step is None else budgets.left_of_try(node, step)
        self._spent: Amounts = {}
        self.over = ""

    @property
    def spent(self) -> Json:
        """What was said so far, as it is stored; None for nothing."""
        return budgets.written(self._spent) or None

    @property
    def left(self) -> Budget:
        """What is left for this try: the less of its own budget and of its run's, None where there is no limit."""
        names = self._run.keys() | self._try.keys()
        least = {name: min(of[name] for of in (self._run, self._try) if name in of) for name in names}
        return budgets.budget_of(
            {name: value - self._spent.get(name, Decimal(0)) for name, value in least.items()}
        )

    @property
    def runtime(self) -> timedelta | None:
        """How long the call may take by its budgets; None where it is not to be stopped."""
        return self.left.runtime if self._stops and (self._run or self._try) else None

    def spend(self, *, tokens: int = 0, cost: Decimal | int = 0, tool_calls: int = 0) -> None:
        """Count; see `Context.spend`."""
        given = {"tokens": tokens, "cost": cost, "tool_calls": tool_calls}
        for name, value in given.items():
            kinds = (Decimal, int) if name == "cost" else (int,)
            if (
                isinstance(value, bool)
                or not isinstance(value, kinds)
                or not Decimal(value).is_finite()
                or value < 0
            ):
                what = "a Decimal or a whole number" if name == "cost" else "a whole number"
                raise UsageError(
                    "MP359", f"{self._place}: spend({name}={value!r}) has to be {what}, and not less than 0."
                )
        self._spent = budgets.plus(
            self._spent, {name: Decimal(value) for name, value in given.items() if value}
        )
        self._judge()

    def out_of_time(self) -> None:
        """Say that the call was ended because its budgets left no more time."""
        self.over = (
            f"the {self._whose('runtime')} budget left {(self.runtime or timedelta(0)).total_seconds():g} s"
        )

    def _judge(self) -> None:
        over = [
            n for n in self._run.keys() | self._try.keys() if self._spent.get(n, Decimal(0)) > self._least(n)
        ]
        if not over or not self._stops:
            return
        name = min(over, key=budgets.NAMES.index)
        spent, left = budgets.words({name: self._spent[name]}), budgets.words({name: self._least(name)})
        self.over = f"the {self._whose(name)} budget left {left}, and this try has spent {spent}"
        raise BudgetExceeded(
            "MP360", f"{self._place}: {self.over}. End the step now; a person may grant more."
        )

    def _least(self, name: str) -> Decimal:
        return max(min(of[name] for of in (self._run, self._try) if name in of), Decimal(0))

    def _whose(self, name: str) -> str:
        return (
            "step's"
            if name in self._try and self._try[name] <= self._run.get(name, self._try[name])
            else "run's"
        )
