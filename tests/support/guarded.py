"""A Kafka broker with access control, as companies run it: who may write is said by ACLs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.protocol.admin import CreateAclsRequest
from milepost.devstack.kafka import Kafka, broker_settings
from milepost.devstack.kafka_jars import broker_process
from milepost.devstack.machine import Machine, silent
from milepost.devstack.ports import free_port

USER, PASSWORD = "admin", "admin-secret"
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
#: Numbers of the protocol: https://kafka.apache.org/protocol.html, AclOperation and AclPermissionType.
ALL, READ, WRITE, DESCRIBE, DENY, ALLOW = 2, 3, 4, 8, 2, 3
_TOPIC, _LITERAL = 2, 3


class GuardedKafka(Kafka):
    """One broker with the authorizer of a real cluster.

    Clients of `bootstrap` are User:ANONYMOUS; those of `admin` log in and may do everything. A topic without any ACL
    is open to all; from the first one on only who is named may use it.
    """

    @property
    def admin(self) -> str:
        """Host and port of the listener for administrators (SASL_PLAINTEXT, PLAIN)."""
        return f"127.0.0.1:{self._admin_port}"

    def _make(self) -> Machine:
        self.port, self._admin_port, controller = free_port(), free_port(), free_port()
        login = f'{LOGIN} username="{USER}" password="{PASSWORD}" user_{USER}="{PASSWORD}";'
        settings = broker_settings(
            self.port,
            controller,
            {
                "listeners": f"PLAINTEXT://127.0.0.1:{self.port},ADMIN://{self.admin},"
                f"CONTROLLER://127.0.0.1:{controller}",
                "advertised.listeners": f"PLAINTEXT://{self.bootstrap},ADMIN://{self.admin}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,ADMIN:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
                "inter.broker.listener.name": "ADMIN",
                "sasl.enabled.mechanisms": "PLAIN",
                "sasl.mechanism.inter.broker.protocol": "PLAIN",
                "sasl.mechanism.controller.protocol": "PLAIN",
                "listener.name.admin.plain.sasl.jaas.config": login,
                "listener.name.controller.plain.sasl.jaas.config": login,
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": f"User:{USER}",
                "allow.everyone.if.no.acl.found": "true",
            },
        )
        return broker_process(settings, folder=None, detached=False, say=silent)

    async def allow(self, topic: str, *operations: int, user: str = "ANONYMOUS") -> None:
        """Allow a user something on a topic; others lose it with the first ACL."""
        async with self._client() as admin:
            for operation in operations:
                request = CreateAclsRequest(_TOPIC, topic, _LITERAL, f"User:{user}", "*", operation, ALLOW)
                answer: Any = await admin._send_to_controller(request)
                assert not answer.creation_responses[0][0], answer

    async def close_to_others(self, topic: str) -> None:
        """Let nobody but the administrator use a topic."""
        await self.allow(topic, ALL, user=USER)

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[AIOKafkaAdminClient]:
        admin = AIOKafkaAdminClient(**self.login())
        await admin.start()
        try:
            yield admin
        finally:
            await admin.close()

    def login(self) -> dict[str, Any]:
        """Return what an administrator's client is made with."""
        return {
            "bootstrap_servers": self.admin,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": USER,
            "sasl_plain_password": PASSWORD,
        }
