"""docker-compose.yml is valid, and what it says fits what the code expects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from jsonschema import Draft7Validator
from milepost.devstack import given, jaeger, kafka, postgres
from milepost.schemas.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = Path(__file__).parent / "data" / "compose-spec.json"


@pytest.fixture
def compose() -> dict[str, Any]:
    """The file, as data."""
    read: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return read


def problems(compose: object) -> list[str]:
    """Return what the Compose schema has against it."""
    validator = Draft7Validator(json.loads(SCHEMA.read_text()))
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(compose)]


def host_ports(service: dict[str, Any]) -> set[str]:
    """Return the published ports as 'port on the machine:port in the container'; all must be on 127.0.0.1."""
    split = [port.split(":") for port in service.get("ports", [])]
    assert all(address == "127.0.0.1" for address, *_ in split)
    return {":".join(ports) for _, *ports in split}


def test_it_is_a_valid_compose_file(compose: dict[str, Any]) -> None:
    assert problems(compose) == []


def test_the_schema_refuses_a_wrong_one(compose: dict[str, Any]) -> None:
    compose["services"]["kafka"]["helthcheck"] = {}
    compose["services"]["postgres"]["healthcheck"]["retries"] = [3]
    assert len(problems(compose)) >= 2


def test_images_are_those_that_tests_and_demo_start_in_docker(compose: dict[str, Any]) -> None:
    images = {name: service.get("image") for name, service in compose["services"].items()}
    assert images == {
        "postgres": postgres.IMAGE,
        "kafka": kafka.IMAGE,
        "jaeger": jaeger.IMAGE,
        "demo": None,
    }


def test_every_server_has_a_health_check_and_the_demo_waits_for_it(compose: dict[str, Any]) -> None:
    services = compose["services"]
    servers = services.keys() - {"demo"}
    assert all("healthcheck" in services[name] for name in servers)
    waits = {name: wait["condition"] for name, wait in services["demo"]["depends_on"].items()}
    assert waits == dict.fromkeys(servers, "service_healthy")


def test_the_demo_reads_variables_that_the_code_knows(compose: dict[str, Any]) -> None:
    variables = compose["services"]["demo"]["environment"].keys()
    known = {f"MILEPOST_{name.upper()}" for name in Settings.model_fields}
    assert variables - known == {given.JAEGER, given.OTLP}


def test_the_demo_looks_for_the_servers_where_they_are(compose: dict[str, Any]) -> None:
    services, variables = compose["services"], compose["services"]["demo"]["environment"]
    url = urlsplit(variables[given.DATABASE])
    made = services["postgres"]["environment"]
    assert (url.hostname, url.port) == ("postgres", 5432)
    assert (url.username, url.password) == (made["POSTGRES_USER"], made["POSTGRES_PASSWORD"])
    assert url.path == f"/{made['POSTGRES_DB']}"
    listeners = services["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"].split(",")
    assert f"COMPOSE://{variables[given.KAFKA]}" in listeners
    assert variables[given.OTLP] == "http://jaeger:4318"
    assert variables[given.JAEGER] == "http://jaeger:16686"


def test_the_addresses_it_tells_a_person_are_published(compose: dict[str, Any]) -> None:
    services = compose["services"]
    told = (ROOT / "docker-compose.yml").read_text().partition("\nname:")[0]
    assert host_ports(services["postgres"]) == {"5432:5432"}
    assert host_ports(services["kafka"]) == {"29092:29092"}
    assert host_ports(services["jaeger"]) == {"16686:16686", "4318:4318"}
    for address in ("127.0.0.1:5432/milepost", "127.0.0.1:29092", "127.0.0.1:16686", "127.0.0.1:4318"):
        assert address in told
    assert "MACHINE://127.0.0.1:29092" in services["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]


def test_the_image_is_built_from_the_lock() -> None:
    steps = (ROOT / "Dockerfile").read_text()
    assert "pip install --no-cache-dir --require-hashes --no-deps -r /src/requirements.lock" in steps
    assert "COPY . /src" in steps
    assert "build" in (ROOT / ".dockerignore").read_text().splitlines()
