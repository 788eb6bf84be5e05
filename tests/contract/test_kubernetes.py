"""deploy/kubernetes: valid for the cluster, each role once, nothing that may not be."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any

import kubernetes_validate
import pytest
import yaml
from milepost.console.web.settings import ConsoleSettings
from milepost.consumers.serving import ROLES
from milepost.schemas.settings import Settings, parse_duration

from tests.support.house import ROOT
from tests.support.monitoring import program, run

FOLDER = ROOT / "deploy" / "kubernetes"
OVERLAYS = ("base", "overlays/production", "overlays/small")
#: The oldest that most clusters still have, and the newest that the schemas know.
VERSIONS = ("1.30", kubernetes_validate.latest_version())
#: Variables that are read without being a setting.
BESIDE = {"MILEPOST_APP", "MILEPOST_LOG", "OTEL_EXPORTER_OTLP_ENDPOINT"}
overlays = pytest.mark.parametrize("overlay", OVERLAYS)


@cache
def built(overlay: str) -> list[dict[str, Any]]:
    """Return what `kubectl apply -k` would send."""
    done = run(program("kubectl"), "kustomize", str(FOLDER / overlay))
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def of_kind(overlay: str, *kinds: str) -> Iterator[dict[str, Any]]:
    return (thing for thing in built(overlay) if thing["kind"] in kinds)


def pods(overlay: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the pods of deployments and jobs by name."""
    for thing in of_kind(overlay, "Deployment", "Job"):
        yield thing["metadata"]["name"], thing["spec"]["template"]


@pytest.mark.parametrize(
    ("overlay", "version"), [(OVERLAYS[0], VERSIONS[0]), *((overlay, VERSIONS[1]) for overlay in OVERLAYS)]
)
def test_the_cluster_takes_it(overlay: str, version: str) -> None:
    for thing in built(overlay):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the schemas' own references
            kubernetes_validate.validate(thing, version, strict=True)


def test_the_schemas_would_see_a_mistake() -> None:
    (job,) = of_kind("base", "Job")
    wrong = {**job, "spec": {**job["spec"], "templat": {}}}
    with pytest.raises(kubernetes_validate.ValidationError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


@overlays
def test_each_role_is_somewhere_once(overlay: str) -> None:
    found: list[str] = []
    for name, pod in pods(overlay):
        args = pod["spec"]["containers"][0]["args"]
        if "serve" in args:
            found += args[args.index("--roles") + 1].split(",") if "--roles" in args else list(ROLES)
        else:
            assert (name, args[1]) in {("milepost-console", "console"), ("milepost-migrate", "migrate")}
    assert sorted(found) == sorted(ROLES)


@overlays
def test_pods_may_do_nothing_that_they_need_not(overlay: str) -> None:
    for name, pod in pods(overlay):
        spec = pod["spec"]
        assert spec["automountServiceAccountToken"] is False, name
        assert spec["enableServiceLinks"] is False, "MILEPOST_CONSOLE_PORT would be the service's"
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] == user_of_the_image()
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        (container,) = spec["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert {"mountPath": "/tmp", "name": "tmp"} in container["volumeMounts"]
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}
        assert container["resources"]["limits"]["memory"]
        assert container["image"].count(":") == 1 and not container["image"].endswith(":latest")


def user_of_the_image() -> int:
    (number,) = re.findall(r"^USER (\d+)$", (ROOT / "Dockerfile").read_text(), re.M)
    assert f"--uid {number} milepost" in (ROOT / "Dockerfile").read_text()
    return int(number)


@overlays
def test_processes_are_asked_how_they_are_and_may_finish(overlay: str) -> None:
    (config,) = of_kind(overlay, "ConfigMap")
    grace = parse_duration(config["data"]["MILEPOST_GRACE"]).total_seconds()
    port = int(config["data"]["MILEPOST_METRICS"].rpartition(":")[2])
    for name, pod in pods(overlay):
        container = pod["spec"]["containers"][0]
        if name == "milepost-migrate":
            continue
        probes = {
            kind: container[f"{kind}Probe"]["httpGet"]["path"]
            for kind in ("startup", "liveness", "readiness")
        }
        assert probes == {"startup": "/health/live", "liveness": "/health/live", "readiness": "/health/ready"}
        # After the grace time comes a hand-back of 3 s, and what is left to send takes at most 5 s twice.
        assert pod["spec"]["terminationGracePeriodSeconds"] >= grace + 13
        if "serve" in container["args"]:
            assert [one["containerPort"] for one in container["ports"]] == [port]
            assert pod["metadata"]["annotations"]["prometheus.io/port"] == str(port)


@overlays
def test_settings_that_are_set_exist_and_secrets_are_in_secrets(overlay: str) -> None:
    known = BESIDE | {f"MILEPOST_{name.upper()}" for name in Settings.model_fields}
    known |= {f"MILEPOST_CONSOLE_{name.upper()}" for name in ConsoleSettings.model_fields}
    (config,) = of_kind(overlay, "ConfigMap")
    assert config["data"].keys() <= known
    assert not [name for name in config["data"] if re.search("PASSWORD|SECRET|DATABASE_URL", name)]
    for secret in of_kind(overlay, "Secret"):
        assert secret["data"].keys() <= known
    asked = {
        source["secretRef"]["name"].split("-")[1] if "-" in source["secretRef"]["name"] else ""
        for _, pod in pods(overlay)
        for source in pod["spec"]["containers"][0]["envFrom"]
        if "secretRef" in source
    }
    assert len(asked) == 3, "of the runtime, of the owner, of the console"
    for name, pod in pods(overlay):
        env = {one["name"]: one for one in pod["spec"]["containers"][0].get("env", ())}
        owner = "MILEPOST_DATABASE_URL" in env
        assert owner == (name == "milepost-keeper"), "partitions are the owner's, and nothing else"


def matches(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    wanted: dict[str, str] = selector.get("matchLabels", {})
    return wanted.items() <= labels.items()


@pytest.mark.parametrize("overlay", OVERLAYS[:2])
def test_every_deployment_may_lose_one_pod_at_a_time(overlay: str) -> None:
    budgets = list(of_kind(overlay, "PodDisruptionBudget"))
    for deployment in of_kind(overlay, "Deployment"):
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        (mine,) = [one for one in budgets if matches(one["spec"]["selector"], labels)]
        assert mine["spec"]["maxUnavailable"] == 1
        assert deployment["spec"]["replicas"] >= 2
        assert deployment["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0


@overlays
def test_nobody_comes_in_and_goes_out_who_need_not(overlay: str) -> None:
    policies = {one["metadata"]["name"]: one["spec"] for one in of_kind(overlay, "NetworkPolicy")}
    whole = policies["milepost"]
    assert whole["policyTypes"] == ["Ingress", "Egress"]
    for name, pod in pods(overlay):
        labels = pod["metadata"]["labels"]
        assert matches(whole["podSelector"], labels), name
        args = pod["spec"]["containers"][0]["args"]
        roles = args[args.index("--roles") + 1].split(",") if "--roles" in args else list(ROLES)
        outside = matches(policies["milepost-outside"]["podSelector"], labels)
        ours = {"worker", "compensator", "consumers"} & set(roles) and "serve" in args
        assert outside == bool(ours or "console" in args), name
    (dns,) = [rule for rule in whole["egress"] if "to" in rule]
    assert dns["to"] == [
        {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}}
    ], "labels of ours on the name server's pods would cut everybody off"
    assert {port["port"] for port in dns["ports"]} == {53}
    assert all("from" in rule for spec in policies.values() for rule in spec.get("ingress", ()))


def test_the_newest_image_is_the_production_overlays_own() -> None:
    images = {pod["spec"]["containers"][0]["image"] for _, pod in pods("overlays/production")}
    assert images == {"registry.example.org/shop:2026.11.3"}
    spaces = {thing["metadata"].get("namespace") for thing in built("overlays/production")}
    assert spaces == {"shop"}
