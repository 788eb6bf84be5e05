"""A Kafka broker from its jars: Maven fetches them once into the cache, Java runs them."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
import signal
import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path

from .cache import filled
from .errors import DevstackError, output_lines
from .machine import Say
from .process import Process, data_folder

POM = Path(__file__).with_name("kafka.pom.xml")
OLDEST_JAVA = 17
JVM = ("-Xms256m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")
OTHER_WAY = "start Docker, or let MILEPOST_KAFKA name a running broker (host:port)"
LOGGING = """\
rootLogger.level = WARN
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %c: %m%n
"""


def java() -> str:
    """Return the path of a Java that can run Kafka: JAVA_HOME's, else the one on PATH.

    Raises:
        DevstackError: there is none, or it is too old.
    """
    home = os.environ.get("JAVA_HOME")
    program = shutil.which("java", path=str(Path(home) / "bin")) if home else None
    program = program or shutil.which("java")
    if program is None:
        raise DevstackError(
            "Java is not installed.",
            f"install Java {OLDEST_JAVA} or newer (package openjdk-17-jre-headless), {OTHER_WAY}.",
        )
    done = subprocess.run([program, "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    if found is None or int(found[1]) < OLDEST_JAVA:
        version = found[1] if found else "unknown"
        raise DevstackError(
            f"Kafka needs Java {OLDEST_JAVA} or newer; {program} is version {version}.",
            f"install a newer one and let JAVA_HOME name its folder, {OTHER_WAY}.",
        )
    return program


def jars(say: Say) -> Path:
    """Return the folder with Kafka's jars, fetching them the first time.

    Args:
        say: told before the download.

    Raises:
        DevstackError: Maven is missing or could not fetch them; its words are in it.
    """
    mark = hashlib.sha256(POM.read_bytes()).hexdigest()[:12]

    def fetch(folder: Path) -> None:
        maven = shutil.which("mvn")
        if maven is None:
            raise DevstackError(
                "Maven (mvn) is not installed; it fetches Kafka once.",
                f"install the package maven, {OTHER_WAY}.",
            )
        say("Kafka: fetching it with Maven, once (about 45 MB, some seconds)")
        shutil.copy(POM, folder / "pom.xml")
        command = [maven, "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={folder / 'jars'}"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise DevstackError(
                "Maven could not fetch Kafka.",
                f"check Maven's settings and the network, {OTHER_WAY}.",
                output_lines(done),
            )

    return filled(f"kafka-{mark}", fetch) / "jars"


def broker_process(settings: Mapping[str, str], *, folder: Path | None, detached: bool, say: Say) -> Process:
    """Return a broker that is formatted and ready to be started.

    Args:
        settings: the server properties, without ``log.dirs``.
        folder: data folder to use and keep; else a temporary one.
        detached: it shall outlive us.
        say: receives progress lines.

    Raises:
        DevstackError: Java, Maven or the jars are missing, or formatting failed.
    """
    program = java()
    path = f"{jars(say)}{os.sep}*"
    say("Kafka: starting it with Java")
    home, ours = data_folder("kafka", folder)
    properties = home / "server.properties"
    lines = {**settings, "log.dirs": str(home / "data")}
    properties.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    logging = home / "log4j2.properties"
    logging.write_text(LOGGING)
    run = [program, *JVM, f"-Dlog4j2.configurationFile={logging}", "-cp", path]
    if not (home / "data" / "meta.properties").exists():
        try:
            _format(run, properties)
        except BaseException:
            if ours:
                shutil.rmtree(home, ignore_errors=True)
            raise
    command = [*run, "kafka.Kafka", str(properties)]
    return Process(command, folder=home, sign=signal.SIGTERM, detached=detached, remove=ours)


def _format(run: list[str], properties: Path) -> None:
    # The id may begin with a dash, so it is tied to its option by an equals sign.
    name = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")  # noqa: TID251 - no domain identity
    command = [*run, "kafka.tools.StorageTool", "format", f"--cluster-id={name}", "-c", str(properties)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise DevstackError(
            "Kafka's data folder could not be formatted.", "check the broker settings.", output_lines(done)
        )
