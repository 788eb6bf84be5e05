"""Metrics (OpenTelemetry): counted where it happens, told to Prometheus and over OTLP.

Without a reader nothing is counted. Where there is one, counting is an addition in a dictionary, which the SDK reads
when it collects: a step costs a microsecond or two more, not ten. No label is an id or a key of the user's.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Literal, TypeAlias

from opentelemetry import metrics as api
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

from ..schemas.errors import StartError

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import MeterProvider as SdkMeterProvider
    from opentelemetry.sdk.metrics.export import MetricReader
    from prometheus_client import CollectorRegistry

_SCOPE = "milepost"
#: Most sets of labels of a counter, fewer than the SDK lets through (2,000). What comes after is counted under OTHER: a
#: code that a participant makes up anew for each refusal must not fill anybody's memory.
MOST_LABELS = 1_500
OTHER = "OTHER"

Point: TypeAlias = tuple[float, Sequence[str]]
Source: TypeAlias = Callable[[], Iterable[Point]]


@dataclass(frozen=True, slots=True, eq=False)  # known by itself: its hash is asked for at every count
class Metric:
    """One metric.

    Attributes:
        name: As OpenTelemetry has it: "milepost.runs.started".
        kind: A counter only rises; a histogram has buckets; a gauge is observed.
        unit: "s" for seconds; "" for a number of things.
        labels: Names of its labels.
        words: What it says.
        buckets: Upper bounds of a histogram.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    words: str
    unit: Literal["", "s"] = ""
    buckets: tuple[float, ...] = ()

    @property
    def exposed(self) -> str:
        """Its name at the Prometheus endpoint: "milepost_runs_started_total"."""
        ending = {"": "", "s": "_seconds"}[self.unit] + ("_total" if self.kind == "counter" else "")
        return self.name.replace(".", "_") + ending


class Meters:
    """The instruments of one process.

    Args:
        provider: Where they are made.
        catalog: What there is.
    """

    def __init__(self, provider: MeterProvider, catalog: Iterable[Metric]) -> None:
        #: By saga, as labels have it; who sets up says so.
        self.severities: Mapping[str, str] = {}
        meter = provider.get_meter(_SCOPE)
        self._tallies: dict[Metric, dict[tuple[str, ...], float]] = {}
        self._sources: dict[Metric, list[Source]] = {}
        self._histograms: dict[Metric, api.Histogram] = {}
        for metric in catalog:
            if metric.kind == "counter":
                self._tallies[metric] = {}
                meter.create_observable_counter(
                    metric.name, [self._counted(metric)], unit=metric.unit, description=metric.words
                )
            elif metric.kind == "gauge":
                self._sources[metric] = []
                meter.create_observable_gauge(
                    metric.name, [self._observed(metric)], unit=metric.unit, description=metric.words
                )
            else:
                self._histograms[metric] = meter.create_histogram(
                    metric.name,
                    unit=metric.unit,
                    description=metric.words,
                    explicit_bucket_boundaries_advisory=metric.buckets,
                )

    def add(self, metric: Metric, labels: tuple[str, ...], amount: float = 1) -> None:
        """Raise a counter."""
        tally = self._tallies[metric]
        known = tally.get(labels)
        if known is None and len(tally) >= MOST_LABELS:
            labels = (*labels[:-1], OTHER)
            known = tally.get(labels)
        tally[labels] = amount if known is None else known + amount

    def record(self, metric: Metric, labels: tuple[str, ...], value: float) -> None:
        """Add a value to a histogram; what clocks make of a moment below zero is zero."""
        attributes = dict(zip(metric.labels, labels, strict=True))
        self._histograms[metric].record(max(0.0, value), attributes)

    def observe(self, metric: Metric, source: Source) -> None:
        """Ask a source for a gauge's values whenever somebody collects."""
        self._sources[metric].append(source)

    def _counted(self, metric: Metric) -> Callable[[CallbackOptions], Iterable[Observation]]:
        tally = self._tallies[metric]

        def read(_: CallbackOptions) -> Iterable[Observation]:
            return [
                Observation(amount, dict(zip(metric.labels, labels, strict=True)))
                for labels, amount in list(tally.items())
            ]

        return read

    def _observed(self, metric: Metric) -> Callable[[CallbackOptions], Iterable[Observation]]:
        sources = self._sources[metric]

        def read(_: CallbackOptions) -> Iterable[Observation]:
            return [
                Observation(value, dict(zip(metric.labels, labels, strict=True)))
                for source in list(sources)
                for value, labels in source()
            ]

        return read


class _State:
    meters: Meters | None = None


def meters() -> Meters | None:
    """Return this process's instruments; None where nobody collects."""
    return _State.meters


@dataclass(frozen=True)
class Told:
    """Where metrics of this process go.

    Attributes:
        registry: What the Prometheus endpoint exposes; None where there is none.
        pushed: Whether they are sent over OTLP.
        close: Sends what is left, waits at most five seconds for it, and counts no more. It blocks.
    """

    registry: CollectorRegistry | None
    pushed: bool
    close: Callable[[], None]


def setup_metrics(service: str, catalog: Iterable[Metric], *, endpoint: bool) -> Told | None:
    """Begin to count, where somebody collects.

    That is the Prometheus endpoint, a collector that OTEL_EXPORTER_OTLP_METRICS_ENDPOINT names, or one that
    OTEL_EXPORTER_OTLP_ENDPOINT names if OTEL_METRICS_EXPORTER says otlp (many collectors there take traces alone), or a
    meter provider that the application installed itself.

    Args:
        service: Resource attribute `service.name`.
        catalog: The metrics that there are.
        endpoint: Whether the Prometheus endpoint is wanted.

    Returns:
        None where nobody collects.

    Raises:
        StartError: MP750 when the endpoint is wanted and milepost[metrics] is not installed.
    """
    push, installed = _push(), api.get_meter_provider()
    own = _is_sdk(installed)
    if not endpoint and not push and not own:
        return None
    if own and not endpoint:
        found = Meters(installed, catalog)
        _State.meters = found
        return Told(None, False, lambda: _forget(found))
    readers: list[MetricReader] = []
    registry = None
    if endpoint:
        registry, reader = _prometheus()
        readers.append(reader)
    if push:
        readers.append(_pushing())
    provider = _counting(service, readers)
    made = Meters(provider, catalog)
    _State.meters = made

    def close() -> None:
        _forget(made)
        ending = threading.Thread(target=provider.shutdown, name="milepost-metrics", daemon=True)
        ending.start()
        ending.join(5.0)

    return Told(registry, push, close)


def _is_sdk(provider: MeterProvider) -> bool:
    """Tell whether a provider counts; who installed it has loaded the SDK."""
    loaded = sys.modules.get("opentelemetry.sdk.metrics")
    return loaded is not None and isinstance(provider, loaded.MeterProvider)


def _counting(service: str, readers: Sequence[MetricReader]) -> SdkMeterProvider:
    # 4 MB, which a process that tells nobody need not have.
    from opentelemetry.sdk.metrics import AlwaysOffExemplarFilter, MeterProvider  # noqa: PLC0415
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415

    return MeterProvider(
        metric_readers=readers,
        resource=Resource.create({"service.name": service, **_version()}),
        exemplar_filter=AlwaysOffExemplarFilter(),  # a fifth of what a histogram costs
        shutdown_on_exit=False,
    )


def _pushing() -> MetricReader:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter  # noqa: PLC0415
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader  # noqa: PLC0415

    return PeriodicExportingMetricReader(OTLPMetricExporter())


def _forget(found: Meters) -> None:
    if _State.meters is found:
        _State.meters = None


def _push() -> bool:
    if os.environ.get("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"):
        return True
    wanted = os.environ.get("OTEL_METRICS_EXPORTER", "").replace(" ", "").split(",")
    return "otlp" in wanted and bool(os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT"))


def _prometheus() -> tuple[CollectorRegistry, MetricReader]:
    try:
        from opentelemetry.exporter.prometheus import PrometheusMetricReader  # noqa: PLC0415
        from prometheus_client import CollectorRegistry  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise StartError(
            "MP750",
            f"MILEPOST_METRICS is set, and {error.name} is not installed. Install milepost[metrics].",
        ) from error
    registry = CollectorRegistry(auto_describe=False)
    return registry, PrometheusMetricReader(registry=registry, scope_info_enabled=False)


def exposition(registry: CollectorRegistry) -> bytes:
    """Return what Prometheus reads: this process's metrics, and what the application made by prometheus_client."""
    from prometheus_client import REGISTRY, generate_latest  # noqa: PLC0415

    return bytes(generate_latest(registry) + generate_latest(REGISTRY))


def _version() -> Mapping[str, str]:
    try:
        return {"service.version": version("milepost")}
    except PackageNotFoundError:
        return {}
