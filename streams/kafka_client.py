"""What every Kafka client of ours is made with, and why one cannot connect."""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path
from typing import Any, TypeAlias, TypedDict

from aiokafka.conn import AIOKafkaConnection, collect_hosts
from aiokafka.errors import (
    IllegalSaslStateError,
    KafkaError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
)

from ..schemas.errors import ConnectError, StartError
from ..schemas.settings import KafkaMechanism, KafkaSecurity, Settings

#: Where Kafka is and how to talk to it: settings, or bootstrap servers (host:port, comma-separated) in plain text.
KafkaAt: TypeAlias = str | Settings

_LOOK = 5.0


def _holds_no_login(record: logging.LogRecord) -> bool:
    """Keep aiokafka's debug lines of logins back: with PLAIN the password stands in them."""
    arguments = record.args if isinstance(record.args, tuple) else ()
    return not any(type(argument).__name__.startswith("SaslAuthenticate") for argument in arguments)


logging.getLogger("aiokafka.conn").addFilter(_holds_no_login)


def quiet_client() -> None:
    """Keep aiokafka's own log lines back, unless the application has set the level of its logger."""
    client = logging.getLogger("aiokafka")
    if client.level == logging.NOTSET:
        client.setLevel(logging.CRITICAL)


class ClientArguments(TypedDict, total=False):
    """Arguments that aiokafka's consumer, producer and admin client have in common."""

    bootstrap_servers: str
    security_protocol: KafkaSecurity
    ssl_context: ssl.SSLContext
    sasl_mechanism: KafkaMechanism
    sasl_plain_username: str
    sasl_plain_password: str


def servers_of(kafka: KafkaAt) -> str:
    """Return the bootstrap servers, for people and clients."""
    return kafka if isinstance(kafka, str) else kafka.kafka


def client_arguments(kafka: KafkaAt) -> ClientArguments:
    """Return what a Kafka client is made with; files are read anew each time, so that they may be replaced.

    Raises:
        StartError: MP220 when a certificate or key cannot be used.
    """
    if isinstance(kafka, str):
        return {"bootstrap_servers": kafka}
    found: ClientArguments = {
        "bootstrap_servers": kafka.kafka,
        "security_protocol": kafka.kafka_security,
    }
    if kafka.kafka_security.endswith("SSL"):
        found["ssl_context"] = _tls(kafka)
    if kafka.kafka_security.startswith("SASL"):
        assert kafka.kafka_user is not None and kafka.kafka_password is not None, "Settings demands both"
        found["sasl_mechanism"] = kafka.kafka_mechanism
        found["sasl_plain_username"] = kafka.kafka_user
        found["sasl_plain_password"] = kafka.kafka_password.get_secret_value()
    return found


async def kafka_unreachable(kafka: KafkaAt, error: BaseException) -> ConnectError:
    """Make the error that says which Kafka cannot be reached, why, and which setting to look at."""
    why = await why_unreachable(kafka, error)
    return ConnectError("MP502", f"Kafka at {servers_of(kafka)} cannot be reached: {why}")


async def why_unreachable(kafka: KafkaAt, error: BaseException) -> str:
    """Return why a client could not connect, and which setting to look at.

    aiokafka keeps the reason of a failed connection to itself, so one more connection is made to learn it.
    """
    try:
        async with asyncio.timeout(_LOOK):
            reason, fix = await _why_not(kafka)
    except TimeoutError:
        reason, fix = "", ""
    reason = reason or str(error) or type(error).__name__
    return f"{reason}. {fix or 'Start it (`milepost dev`), or set MILEPOST_KAFKA to its host:port.'}"


def _tls(settings: Settings) -> ssl.SSLContext:
    ca, cert, key = settings.kafka_ca, settings.kafka_cert, settings.kafka_key
    password = settings.kafka_key_password
    for name, file in (("CA", ca), ("CERT", cert), ("KEY", key)):
        if file is not None and not Path(file).is_file():
            raise StartError(
                "MP220", f"MILEPOST_KAFKA_{name}={file}: there is no such file. Correct the path."
            )
    try:
        context = ssl.create_default_context(cafile=ca)
    except (ssl.SSLError, OSError) as error:
        raise StartError(
            "MP220", f"MILEPOST_KAFKA_CA={ca}: {error}. It must hold certificates in PEM form."
        ) from error
    try:
        if cert is not None:
            # Without a password OpenSSL would ask for one on the terminal.
            secret = password.get_secret_value() if password is not None else ""
            context.load_cert_chain(cert, key, password=secret)
    except (ssl.SSLError, OSError, ValueError) as error:
        raise StartError(
            "MP220",
            f"MILEPOST_KAFKA_CERT={cert}: the certificate cannot be used with its key ({error}). Check "
            "MILEPOST_KAFKA_KEY and MILEPOST_KAFKA_KEY_PASSWORD.",
        ) from error
    return context


async def _why_not(kafka: KafkaAt) -> tuple[str, str]:
    """Connect once to each server; return the first reason and what to do, or nothing when all of them answer."""
    arguments = client_arguments(kafka)
    options: dict[str, Any] = {
        name: value for name, value in arguments.items() if name != "bootstrap_servers"
    }
    for host, port, _ in collect_hosts(arguments["bootstrap_servers"]):
        connection = AIOKafkaConnection(host, port, client_id="milepost", request_timeout_ms=3000, **options)
        try:
            await connection.connect()
        except (KafkaError, OSError, TimeoutError) as error:
            return _words(error, arguments.get("security_protocol", "PLAINTEXT"))
        finally:
            connection.close()
    return "", ""


def _words(error: Exception, security: str) -> tuple[str, str]:
    if isinstance(error, SaslAuthenticationFailed):
        return (
            "it refuses this user or its password",
            "Check MILEPOST_KAFKA_USER, MILEPOST_KAFKA_PASSWORD and MILEPOST_KAFKA_MECHANISM.",
        )
    if isinstance(error, UnsupportedSaslMechanismError):
        return "it does not know this SASL mechanism", "Check MILEPOST_KAFKA_MECHANISM."
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not accepted ({error.verify_message})",
            "Check MILEPOST_KAFKA_CA, and that MILEPOST_KAFKA names the host that the certificate is for.",
        )
    if isinstance(error, ssl.SSLError | IllegalSaslStateError | ConnectionResetError | KafkaError):
        return (
            f"it ends the connection ({error})" if str(error) else "it ends the connection",
            f"Check that MILEPOST_KAFKA_SECURITY={security} is what it speaks at this port.",
        )
    return str(error) or type(error).__name__, ""
