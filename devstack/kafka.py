"""An Apache Kafka broker for demo and tests: in Docker where an engine answers, else from its jars with Java.

One node is broker and controller at once. Topics are never made by accident
(``auto.create.topics.enable=false``).
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from . import docker, embedded
from .errors import DevstackError
from .kafka_jars import broker_process
from .machine import Machine, Say, silent
from .ports import free_port, listens, run_apart, wait_until
from .probe import groups_work
from .server import Server

IMAGE = "apache/kafka:4.4.0"
ADVICE = (
    "install Java 17 or newer and Maven, or start Docker, or let MILEPOST_KAFKA name a running broker"
    " (host:port)."
)
Where = Literal["docker", "local", "embedded"]


def broker_settings(port: int, controller: int, extra: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a one-node broker.

    Args:
        port: where clients find it on 127.0.0.1.
        controller: the port it talks to itself on.
        extra: added, or replacing.
    """
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "5",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "5",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "auto.create.topics.enable": "false",
        # After a SIGKILL the broker is let in again only when its old session has run out.
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
        **extra,
    }


class Kafka(Server):
    """One broker; may be stopped, killed, frozen and started again on the same port with the same data.

    Args:
        settings: broker settings added to (or replacing) ours.
        folder: data folder to use and keep; else a temporary one that goes away with the broker.
        where: "docker", "local" or "embedded"; None takes the first of them that is there.
        detached: the broker shall outlive this process.
        say: receives progress lines.
    """

    name = "Kafka"
    advice = ADVICE

    def __init__(
        self,
        *,
        settings: Mapping[str, str] | None = None,
        folder: Path | None = None,
        where: Where | None = None,
        detached: bool = False,
        say: Say = silent,
    ) -> None:
        super().__init__(detached=detached, say=say)
        self._settings = dict(settings or {})
        self._folder = folder
        self._where = where
        self.port = 0

    @property
    def bootstrap(self) -> str:
        """Host and port for clients."""
        return f"127.0.0.1:{self.port}"

    def stop(self) -> None:
        """Stop the broker in order, keeping its data."""
        if self._machine is not None:
            self._machine.stop(signal.SIGTERM)

    def restart(self) -> None:
        """Stop in order and start on the same port with the same data."""
        self.stop()
        self.start()

    def freeze(self) -> None:
        """Halt the broker (SIGSTOP): connections stay open and nothing answers."""
        if self._machine is not None:
            self._machine.send(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on after ``freeze()``."""
        if self._machine is not None:
            self._machine.send(signal.SIGCONT)

    def _answers(self, machine: Machine) -> bool:
        return wait_until(lambda: listens(self.port), seconds=60, alive=machine.alive) and wait_until(
            lambda: run_apart(lambda: groups_work(self.bootstrap)), seconds=60, alive=machine.alive
        )

    def _make(self) -> Machine:
        self.port = free_port()
        where = self._where or ("docker" if docker.answers() else "local")
        if where == "docker":
            self._say(f"Kafka: starting {IMAGE} in Docker")
            return self._container()
        if where == "embedded":
            self._say(f"Kafka: {embedded.WARNING}")
            return embedded.broker(self.port, detached=self._detached)
        settings = broker_settings(self.port, free_port(), self._settings)
        try:
            return broker_process(settings, folder=self._folder, detached=self._detached, say=self._say)
        except DevstackError as missing:
            if self._where is not None or not embedded.installed():
                raise
            self._say(f"Kafka: {missing.problem} {embedded.WARNING}")
            return embedded.broker(self.port, detached=self._detached)

    def _container(self) -> Machine:
        settings = broker_settings(9092, 9093, self._settings)
        settings["listeners"] = "PLAINTEXT://0.0.0.0:9092,CONTROLLER://127.0.0.1:9093"
        settings["advertised.listeners"] = f"PLAINTEXT://{self.bootstrap}"
        env = {f"KAFKA_{key.replace('.', '_').upper()}": value for key, value in settings.items()}
        return docker.Container(IMAGE, ports={9092: self.port}, env=env, detached=self._detached)
