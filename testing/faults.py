"""What a test makes go wrong: refusals, lost replies, and the death of the process that calls a step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from ..consumers.calls import Call
from ..schemas.errors import Refused

When: TypeAlias = Literal["before", "after_effect", "after_record"]
#: A definition's id and the name of a step, wait or undo in it.
Place: TypeAlias = tuple[str, str]


class WorkerDied(BaseException):
    """The process that called a step is gone. No `except Exception` may stop it, as nothing stops SIGKILL."""


@dataclass
class _Refusal:
    code: str
    left: int | None


class Faults:
    """Stands around every call of a user's function."""

    def __init__(self) -> None:
        self._refusals: dict[Place, _Refusal] = {}
        self._lost: Counter[Place] = Counter()
        self._crashes: Counter[tuple[Place, When]] = Counter()

    def refuse(self, place: Place, code: str, times: int | None) -> None:
        """Refuse instead of calling, so many times, or always; replaces what was said before."""
        self._refusals[place] = _Refusal(code, times)

    def lose(self, place: Place, times: int) -> None:
        """Lose the answer of so many further calls."""
        self._lost[place] += times

    def crash(self, place: Place, when: When) -> None:
        """Let the process die once more at this point."""
        self._crashes[place, when] += 1

    async def around(self, call: Call, act: Callable[[], Awaitable[Any]]) -> Any:
        """Call the user's function as planned; a probe is called as it is.

        Raises:
            Refused: As planned.
            TimeoutError: The answer was lost.
            WorkerDied: The process died here.
        """
        if call.is_settling and call.node.probe is not None:
            return await act()
        place = _place(call)
        self._die(place, "before")
        self._refuse(place)
        value = await act()
        self._die(place, "after_effect")
        if self._take(self._lost, place):
            raise TimeoutError("the answer was lost (lose_reply)")
        return value

    def recorded(self, call_place: Place) -> None:
        """Die after the outcome of a step has been stored, if that is planned.

        Raises:
            WorkerDied: The process died here.
        """
        self._die(call_place, "after_record")

    def _die(self, place: Place, when: When) -> None:
        if self._take(self._crashes, (place, when)):
            raise WorkerDied

    def _refuse(self, place: Place) -> None:
        refusal = self._refusals.get(place)
        if refusal is None or refusal.left == 0:
            return
        if refusal.left is not None:
            refusal.left -= 1
        raise Refused(refusal.code, "refused by the test (fail)")

    @staticmethod
    def _take(counter: Counter[Any], key: object) -> bool:
        if counter[key] < 1:
            return False
        counter[key] -= 1
        return True


def _place(call: Call) -> Place:
    return call.definition.id, call.step.name
