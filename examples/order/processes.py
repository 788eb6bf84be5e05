"""The processes: the shop's web and two engines, and the four other companies."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from ..stage import processes
from ..stage.processes import SHORT_LEASES, ports

#: Two like ones, so that either may die.
ENGINES = ("engine-1", "engine-2")
#: Other companies, and where each one's application is.
COMPANIES: Mapping[str, str] = {
    "bank": "shop.bank",
    "warehouse": "shop.warehouse",
    "carrier": "shop.carrier",
    "mailer": "order.mailer",
}
SETTINGS = {"MILEPOST_APP": "milepost.examples.order.service:service", **SHORT_LEASES}


class Fleet(processes.Fleet):
    """All processes; see `stage.processes.Fleet`.

    Args:
        tag: Begins the names of topics and groups.
        stock: How many pieces the warehouse has of what.
    """

    def __init__(self, folder: Path, env: Mapping[str, str], tag: str, stock: Mapping[str, int]) -> None:
        self._ports = ports((*COMPANIES, "web"))
        urls = {f"SHOP_{name.upper()}_URL": self.url(name) for name in COMPANIES}
        super().__init__(folder, {**env, **SETTINGS, **urls, "ORDER_PREFIX": f"{tag}-"})
        company = {
            "CARRIER_KAFKA": self.env["MILEPOST_KAFKA"],
            "CARRIER_TOPIC": f"{tag}-deliveries",
            "WAREHOUSE_STOCK": json.dumps(stock),
        }
        for name, home in COMPANIES.items():
            self._add(name, home, "/calls", {**company, "COMPANY_LEDGER": str(self.ledger(name))})
        self._add("web", "order.service", "/health", {})
        for name in ENGINES:
            self.add_serve(name, "", {"SHOP_CALLER": name})

    def url(self, name: str) -> str:
        """Return where a company or the shop's web answers."""
        return f"http://127.0.0.1:{self._ports[name]}"

    def ledger(self, company: str) -> Path:
        """Return the file of a company's ledger."""
        return self.folder / f"{company}.sqlite"

    def _add(self, name: str, home: str, path: str, env: Mapping[str, str]) -> None:
        self.add_web(name, f"milepost.examples.{home}:api", self._ports[name], path=path, env=env)
