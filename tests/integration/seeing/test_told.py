"""Who is told: Prometheus at one address with the probes, a collector over OTLP, and readers of a tour."""

from __future__ import annotations

import gzip
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
from milepost.consumers.probes import health_address
from milepost.devstack.ports import free_port
from milepost.recovery.permissions import Role
from milepost.schemas.errors import StartError
from milepost.streams import measures, metrics
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from tests.support.consoleweb import console
from tests.support.process import served
from tests.support.seeing import scraped, value
from tests.support.waiting import until


@contextmanager
def collector() -> Iterator[tuple[str, dict[str, str]]]:
    """Give the address of a collector of metrics, and the names it has received with the service's."""
    found: dict[str, str] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            body = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
            for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                about = {one.key: one.value.string_value for one in resource.resource.attributes}
                for scope in resource.scope_metrics:
                    found.update((one.name, about["service.name"]) for one in scope.metrics)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1/metrics", found
        finally:
            server.shutdown()


async def test_one_address_for_probes_and_prometheus_and_a_collector_beside(
    database_url: str, kafka: str, topic_prefix: str
) -> None:
    address = f"127.0.0.1:{free_port()}"
    with collector() as (endpoint, pushed):
        env = {
            "MILEPOST_APP": "tests.support.apps.seen_service:service",
            "MILEPOST_DATABASE_URL": database_url,
            "MILEPOST_KAFKA": kafka,
            "MILEPOST_CREATE_TOPICS": "true",
            "MILEPOST_HEALTH": address,
            "MILEPOST_METRICS": address,
            "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": endpoint,
            "OTEL_METRIC_EXPORT_INTERVAL": "300",
            "SEEN": topic_prefix,
        }
        async with (
            served(env, "waker") as (process,),
            httpx.AsyncClient(base_url=f"http://{address}") as client,
        ):
            for path in ("/live", "/ready", "/health/live", "/health/ready"):
                answer = await client.get(path)
                assert answer.status_code == 200 and answer.json()["parts"]["waker"]["ok"], path
            assert (await client.get("/metric")).status_code == 404
            assert (await client.post("/metrics")).status_code in {404, 405}
            samples = await scraped(address)
            assert value(samples, "milepost_live_age_seconds", what="outbox") == 0
            assert (value(samples, "milepost_partitions_days", table="outbox") or 0) >= 3
            assert value(samples, "process_resident_memory_bytes"), "what others register is there too"
            wanted = {"milepost.live.age", "milepost.part.well", "milepost.database.up"}
            await until(lambda: wanted <= pushed.keys(), within=15, what="metrics over OTLP")
            assert set(pushed.values()) == {topic_prefix}
            assert await process.stop() == 0


def test_what_is_missing_or_wrong_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StartError, match=r"MP221.*MILEPOST_METRICS=here"):
        health_address("here", "MILEPOST_METRICS")
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.prometheus", None)
    with pytest.raises(StartError, match=r"MP750.*milepost\[metrics\]"):
        metrics.setup_metrics("shop", measures.CATALOG, endpoint=True)
    assert metrics.meters() is None


async def test_a_tour_is_shown_to_whoever_may_see_runs(database_url: str, tmp_path: Path) -> None:
    path = tmp_path / "tour.md"
    path.write_text("# What happened\n\n[Look](/worklist) <b>here</b>\n")
    async with console(database_url, tour=path) as web:
        viewer = await web.person("vic", Role.VIEWER)
        page = await viewer.get("/tour")
        assert page.status_code == 200
        assert "<h1>What happened</h1>" in page.text and '<a href="/worklist">Look</a>' in page.text
        assert "<b>here" not in page.text
        path.unlink()
        assert (await viewer.get("/tour")).status_code == 404
        assert (await web.client().get("/tour")).status_code in {303, 401}
