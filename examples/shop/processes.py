"""The demo's processes: the shop's and the other companies'."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..stage import processes
from ..stage.processes import ports

#: Roles of each process of the service; a real one is deployed the same way.
ROLES: Mapping[str, str] = {
    "relay": "relay",
    "worker-1": "worker,compensator",
    "worker-2": "worker,compensator",
    "orchestrator": "orchestrator,signals,consumers,waker,upkeep",
}
COMPANIES = ("bank", "warehouse", "carrier")


class Fleet(processes.Fleet):
    """All processes of the demo; see `stage.processes.Fleet`."""

    def __init__(self, folder: Path, env: Mapping[str, str], *, keep: bool) -> None:
        self._ports = ports((*COMPANIES, "shop-api"))
        addresses = {f"SHOP_{name.upper()}_URL": self.url(name) for name in COMPANIES}
        super().__init__(folder, {**env, **addresses}, keep=keep)
        for name in COMPANIES:
            self._add_company(name)
        self.add_web(
            "shop-api",
            "milepost.examples.shop.service:api",
            self._ports["shop-api"],
            path="/health",
            env={},
        )
        for name, roles in ROLES.items():
            self.add_serve(name, roles, {"SHOP_CALLER": name})

    def url(self, name: str) -> str:
        """Return where a company or the shop's API answers."""
        return f"http://127.0.0.1:{self._ports[name]}"

    def ledger(self, company: str) -> Path:
        """Return the file of a company's ledger."""
        return self.folder / f"{company}.sqlite"

    def _add_company(self, name: str) -> None:
        env = {"COMPANY_LEDGER": str(self.ledger(name)), "CARRIER_KAFKA": self.env["MILEPOST_KAFKA"]}
        self.add_web(name, f"milepost.examples.shop.{name}:api", self._ports[name], path="/calls", env=env)
