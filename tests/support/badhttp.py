"""An HTTP server that behaves as its path says, badly in all the ways that clients have exceptions for."""

from __future__ import annotations

import asyncio
import datetime as dt
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

#: Answers by path.
ANSWERS = {
    "/429": "429 Too Many\r\nRetry-After: 7",
    "/503": ("503 Busy\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nRetry-After: Sun, 06 Nov 1994 08:50:07 GMT"),
    "/502": "502 Bad\r\nRetry-After: soon",
    "/504": "504 Late",
    "/500": "500 Broken",
    "/409": "409 No",
    "/unknown": "409 Unknown\r\nidempotency-outcome: unknown",
    "/done": "409 Done\r\nIdempotency-Outcome: Done",
    "/422": "422 No",
    "/404": "404 Not Here",
    "/garbage": "200 OK\r\nContent-Encoding: gzip",
    "/loop": "302 Found\r\nLocation: /loop",
}


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        first = await reader.readexactly(1)
        if first == b"\x16":
            # Somebody who speaks TLS.
            writer.write(b"HTTP/1.1 400 Plain\r\n\r\n")
            return
        head = first + await reader.readuntil(b"\r\n\r\n")
        path = head.split(b" ")[1].decode()
        if path == "/hang":
            await asyncio.sleep(60)
        elif path == "/gone":
            pass
        elif path == "/cut":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
            await writer.drain()
            _reset(writer)
        else:
            status = ANSWERS[path]
            writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 4\r\n\r\nbody".encode())
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


def _reset(writer: asyncio.StreamWriter) -> None:
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@asynccontextmanager
async def bad_http(context: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """Run it; gives its address without the scheme."""
    server = await asyncio.start_server(_serve, "127.0.0.1", 0, ssl=context)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


@asynccontextmanager
async def deaf() -> AsyncIterator[str]:
    """Give the address of a server that accepts no connection and refuses none: its queue is full."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        waiting = []
        for _ in range(4):
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(listening.getsockname())
            waiting.append(one)
        try:
            yield f"127.0.0.1:{listening.getsockname()[1]}"
        finally:
            for one in waiting:
                one.close()


@asynccontextmanager
async def unread() -> AsyncIterator[str]:
    """Give the address of a server that accepts connections and never reads from them."""
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listening.bind(("127.0.0.1", 0))
        listening.listen(5)
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def stranger(folder: Path) -> ssl.SSLContext:
    """Return a server's context with a certificate that nobody trusts."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "stranger")])
    start = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(start)
        .not_valid_after(start + dt.timedelta(days=3650))
        .sign(key, hashes.SHA256())
    )
    file = folder / "stranger.pem"
    file.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context
