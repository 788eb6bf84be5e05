"""The processes: the service's web and two engines, and the provider."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..stage import processes
from ..stage.processes import SHORT_LEASES, ports
from .hooks import new_secret

#: Two like ones, so that either may die.
ENGINES = ("engine-1", "engine-2")
SETTINGS = {"MILEPOST_APP": "milepost.examples.notify.service:service", **SHORT_LEASES}


class Fleet(processes.Fleet):
    """All processes; see `stage.processes.Fleet`.

    Args:
        tag: Begins the names of topics and groups.
    """

    def __init__(self, folder: Path, env: Mapping[str, str], tag: str) -> None:
        port = ports(("provider", "web"))
        self.provider = f"http://127.0.0.1:{port['provider']}"
        self.web = f"http://127.0.0.1:{port['web']}"
        self.ledger = folder / "provider.sqlite"
        shared = {
            "NOTIFY_SECRET": new_secret(),
            "NOTIFY_PREFIX": f"{tag}-",
            "NOTIFY_PROVIDER_URL": self.provider,
        }
        super().__init__(folder, {**env, **SETTINGS, **shared})
        company = {"COMPANY_LEDGER": str(self.ledger), "NOTIFY_HOOK_URL": f"{self.web}/hooks/provider"}
        self._add_app("provider", "provider:api", port["provider"], "/calls", company)
        self._add_app("web", "service:api", port["web"], "/health", {})
        for name in ENGINES:
            self.add_serve(name, "", {"NOTIFY_CALLER": name})

    def _add_app(self, name: str, app: str, port: int, path: str, env: Mapping[str, str]) -> None:
        self.add_web(name, f"milepost.examples.notify.{app}", port, path=path, env=env)
