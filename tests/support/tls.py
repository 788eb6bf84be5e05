"""A certificate authority for one test module, and a broker and a PostgreSQL that speak TLS with its certificates."""

from __future__ import annotations

import ipaddress
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from milepost.devstack.kafka import Kafka, broker_settings
from milepost.devstack.kafka_jars import JVM, broker_process, jars, java
from milepost.devstack.machine import Machine, silent
from milepost.devstack.ports import free_port

USER, PASSWORD = "alice", "correct-horse-7"
_LOGIN = "org.apache.kafka.common.security"


@dataclass(frozen=True)
class Authority:
    """Signs certificates into a folder.

    Args:
        folder: Where the files go.
        name: Common name.
    """

    folder: Path
    name: str = "test-ca"

    def __post_init__(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            _builder(self.name, self.name, key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_usage(ca=True), critical=True)
            .sign(key, hashes.SHA256())
        )
        object.__setattr__(self, "_key", key)
        self.ca.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    @property
    def ca(self) -> Path:
        """The authority's certificate."""
        return self.folder / f"{self.name}.pem"

    def issue(self, name: str, *, password: str = "") -> tuple[Path, Path]:
        """Make a certificate for this machine, and its key.

        Args:
            password: Encrypts the key.

        Returns:
            Files with certificate and key, PEM.
        """
        signer: ec.EllipticCurvePrivateKey = self._key  # type: ignore[attr-defined]
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        certificate = (
            _builder(name, self.name, key.public_key())
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .sign(signer, hashes.SHA256())
        )
        cert_file, key_file = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        cert_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        secret: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password:
            secret = serialization.BestAvailableEncryption(password.encode())
        key_file.write_bytes(
            key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, secret)
        )
        return cert_file, key_file


def _builder(name: str, issuer: str, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=2))
    )


def _usage(*, ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=ca,
        crl_sign=ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


class SecureKafka(Kafka):
    """A broker with three more listeners: `sasl` (SASL_SSL), `mutual` (SSL with a client's certificate), `clear`
    (SASL_PLAINTEXT). User and password are USER and PASSWORD, by PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512.
    """

    def __init__(self, authority: Authority) -> None:
        super().__init__(where="local")
        self._authority = authority

    def _make(self) -> Machine:
        self.port, self.sasl, self.mutual, self.clear = (free_port() for _ in range(4))
        controller = free_port()
        cert, key = self._authority.issue("broker")
        store = self._authority.folder / "broker.store"
        store.write_bytes(key.read_bytes() + cert.read_bytes())
        ours = {"PLAINTEXT": self.port, "SASL": self.sasl, "MUTUAL": self.mutual, "CLEAR": self.clear}
        listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in ours.items())
        extra = {
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": listeners,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_SSL,MUTUAL:SSL,"
            "CLEAR:SASL_PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(store),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._authority.ca),
            "listener.name.mutual.ssl.client.auth": "required",
        }
        for name in ("sasl", "clear"):
            mechanisms = {
                "plain": f'{_LOGIN}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";',
                "scram-sha-256": f"{_LOGIN}.scram.ScramLoginModule required;",
                "scram-sha-512": f"{_LOGIN}.scram.ScramLoginModule required;",
            }
            extra[f"listener.name.{name}.sasl.enabled.mechanisms"] = ",".join(mechanisms).upper()
            for mechanism, config in mechanisms.items():
                extra[f"listener.name.{name}.{mechanism}.sasl.jaas.config"] = config
        settings = broker_settings(self.port, controller, extra)
        folder = self._authority.folder / f"kafka-{self.port}"
        _format(folder, settings)
        return broker_process(settings, folder=folder, detached=False, say=self._say)


def _format(folder: Path, settings: Mapping[str, str]) -> None:
    """Make the broker's data folder with the SCRAM user in it."""
    folder.mkdir()
    properties = folder / "format.properties"
    lines = {**settings, "log.dirs": str(folder / "data")}
    properties.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    users = [
        word
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
        for word in ("--add-scram", f"{mechanism}=[name={USER},password={PASSWORD}]")
    ]
    tool = [java(), *JVM, "-cp", f"{jars(silent)}{os.sep}*", "kafka.tools.StorageTool", "format"]
    subprocess.run(
        [*tool, "--cluster-id=4L6g3nShT-eMCtK--X86sw", "-c", str(properties), *users],
        check=True,
        capture_output=True,
    )
