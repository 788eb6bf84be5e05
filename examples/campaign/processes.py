"""The processes: the service's web and two engines, and the provider."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..stage import processes
from ..stage.processes import SHORT_LEASES, ports

#: Two like ones, so that either may die.
ENGINES = ("engine-1", "engine-2")
SETTINGS = {
    **SHORT_LEASES,
    "MILEPOST_APP": "milepost.examples.campaign.service:service",
    "MILEPOST_STEP_CONCURRENCY": "32",
}


class Fleet(processes.Fleet):
    """All processes; see `stage.processes.Fleet`.

    Args:
        tag: Begins the names of topics and groups.
        rate: How many calls the provider takes in a second.
    """

    def __init__(self, folder: Path, env: Mapping[str, str], tag: str, rate: int) -> None:
        port = ports(("provider", "web"))
        self.provider = f"http://127.0.0.1:{port['provider']}"
        self.web = f"http://127.0.0.1:{port['web']}"
        self.ledger = folder / "provider.sqlite"
        shared = {
            "NOTIFY_PROVIDER_URL": self.provider,
            "CAMPAIGN_PREFIX": f"{tag}-",
            "CAMPAIGN_RATE": str(rate),
        }
        super().__init__(folder, {**env, **SETTINGS, **shared})
        home = "milepost.examples.campaign"
        company = {"COMPANY_LEDGER": str(self.ledger)}
        self.add_web("provider", f"{home}.provider:api", port["provider"], path="/calls", env=company)
        self.add_web("web", f"{home}.service:api", port["web"], path="/health", env={})
        for name in ENGINES:
            self.add_serve(name, "", {"NOTIFY_CALLER": name})
