"""The clients that a kit gives to steps: what the test provided, never the service's own."""

from __future__ import annotations

from typing import Any

from ..schemas.errors import UsageError


class KitClients:
    """Instances by class.

    Args:
        service: Name of the service, for the error.
    """

    def __init__(self, service: str) -> None:
        self._service = service
        self._known: dict[type[Any], Any] = {}
        self._missing: UsageError | None = None

    def put(self, kind: type[Any], instance: Any) -> None:
        """Use this instance from now on."""
        self._known[kind] = instance

    def get(self, kind: type[Any]) -> Any:
        """Return the instance.

        Raises:
            UsageError: MP351 when the test provided none. The step fails with it, and `check` raises it again.
        """
        if kind not in self._known:
            self._missing = UsageError(
                "MP351",
                f"ctx.use({kind.__name__}): the kit has no {kind.__name__}, and does not open the one of service "
                f"{self._service}, because a test must not reach the outside world by mistake. Call "
                f"kit.provide({kind.__name__}, ...) with a fake.",
            )
            raise self._missing
        return self._known[kind]

    def check(self) -> None:
        """Raise, once, what a step was refused.

        Raises:
            UsageError: MP351.
        """
        missing, self._missing = self._missing, None
        if missing is not None:
            raise missing
