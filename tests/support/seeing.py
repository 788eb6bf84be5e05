"""Looking at a service as its operators do: the Prometheus endpoint, `milepost doctor`, `milepost worklist`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
from milepost.recovery.age_kinds import KINDS
from milepost.schemas.states import Risk
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tests.support.console import say
from tests.support.waiting import until


async def scraped(address: str) -> list[Sample]:
    """Return what Prometheus would read."""
    async with httpx.AsyncClient() as client:
        answer = await client.get(f"http://{address}/metrics", timeout=10)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return [sample for family in text_string_to_metric_families(answer.text) for sample in family.samples]


def value(samples: list[Sample], name: str, **labels: str) -> float | None:
    """Return the sum of a metric's samples that have these labels; None where there is none."""
    found = [s.value for s in samples if s.name == name and labels.items() <= dict(s.labels).items()]
    return sum(found) if found else None


@dataclass
class Watch:
    """How soon a fault shows: who looks ten seconds after it has to see it, however long a command takes to say it.

    Args:
        url: Database.
        address: Of a process that goes on: host:port of its endpoint.
        env: Of the service.

    Attributes:
        took: Seconds from a fault to the beginning of the look that showed it, by place.
    """

    url: str
    address: str
    env: Mapping[str, str]
    took: dict[str, float] = field(default_factory=dict)

    async def shows(self, what: str, since: float, *, within: float = 10.0) -> None:
        """Look until a kind of trouble is past its first bound in a metric, on the worklist and in doctor."""

        async def in_metric() -> bool:
            age = value(await scraped(self.address), "milepost_live_age_seconds", what=what)
            return age is not None and age > 0 and age >= KINDS[what].bounds[Risk.CRITICAL].warning

        async def on_worklist() -> bool:
            said = await say(self.url, "worklist", "--kind", "trouble", env=self.env)
            return any(line["code"] == what for line in said.lines)

        async def in_doctor() -> bool:
            found = await self._doctor()
            return any(line["check"] == f"age_{what}" and line["severity"] != "ok" for line in found)

        await self._look(f"{what} in a metric", in_metric, since, within)
        await asyncio.gather(
            self._look(f"{what} on the worklist", on_worklist, since, within),
            self._look(f"{what} in doctor", in_doctor, since, within),
        )

    async def doctor_says(self, code: str, since: float, *, within: float = 10.0) -> None:
        """Look until `milepost doctor` has a finding of that code."""

        async def there() -> bool:
            return any(line["code"] == code for line in await self._doctor())

        await self._look(f"{code} in doctor", there, since, within)

    async def _doctor(self) -> list[dict[str, Any]]:
        said = await say(self.url, "doctor", env=self.env)
        return [line for line in said.lines if "check" in line]

    async def _look(
        self, place: str, check: Callable[[], Awaitable[bool]], since: float, within: float
    ) -> None:
        loop = asyncio.get_running_loop()

        async def seen() -> bool:
            began = loop.time() - since
            if await check():
                self.took[place] = round(began, 1)
            return place in self.took or began > within

        await until(seen, within=within + 60, what=place, every=0.2)
        assert place in self.took, f"{place}: who looked after {within:g} s did not see it"
