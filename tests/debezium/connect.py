"""Kafka Connect with Debezium's PostgreSQL connector, from Maven, as a process of a test."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from milepost.devstack.cache import filled
from milepost.devstack.kafka_jars import JVM, java
from milepost.devstack.ports import free_port
from milepost.devstack.process import Process, data_folder

POM = Path(__file__).with_name("connect.pom.xml")
ROUTER = Path(__file__).resolve().parents[2] / "docs" / "debezium-router.properties"


def jars() -> Path:
    """Return the folder with Connect's and Debezium's jars, fetching them the first time."""
    mark = hashlib.sha256(POM.read_bytes()).hexdigest()[:12]

    def fetch(folder: Path) -> None:
        shutil.copy(POM, folder / "pom.xml")
        subprocess.run(
            ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={folder / 'jars'}"],
            cwd=folder,
            check=True,
            capture_output=True,
        )

    return filled(f"connect-{mark}", fetch) / "jars"


@contextmanager
def routing(database_url: str, kafka: str) -> Iterator[Process]:
    """Run Connect with the documented router configuration; it is ended when the block ends.

    Args:
        database_url: where the outbox and the publication `milepost_outbox` are.
        kafka: bootstrap servers, host:port.
    """
    home, ours = data_folder("connect")
    where = urlsplit(database_url)
    worker = {
        "bootstrap.servers": kafka,
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        "offset.storage.file.filename": str(home / "offsets"),
        "offset.flush.interval.ms": "500",
        "listeners": f"HTTP://127.0.0.1:{free_port()}",
        "producer.enable.idempotence": "true",
    }
    own = {
        "database.hostname": str(where.hostname),
        "database.port": str(where.port),
        "database.dbname": where.path.lstrip("/"),
    }
    (home / "worker.properties").write_text("".join(f"{k}={v}\n" for k, v in worker.items()))
    text = ROUTER.read_text() + "".join(f"{k}={v}\n" for k, v in own.items())
    (home / "router.properties").write_text(text)
    command = [java(), *JVM, "-cp", f"{jars()}{os.sep}*", "org.apache.kafka.connect.cli.ConnectStandalone"]
    process = Process(
        [*command, str(home / "worker.properties"), str(home / "router.properties")],
        folder=home,
        sign=signal.SIGTERM,
        remove=ours,
    )
    process.start()
    try:
        yield process
    finally:
        process.stop(signal.SIGTERM)
        process.remove()
