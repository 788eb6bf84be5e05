"""The table of what exceptions mean: requirement R1, kept equal to docs/errors.md by a test.

Classes are written by their full names, so that no client library has to be installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from ..sagas.facts import Verdict

Meaning: TypeAlias = tuple[Verdict, str]

#: HTTP statuses after which the same request may pass (RFC 9110, RFC 6585). Another 4xx is a definite no; after another
#: status nobody knows.
TRANSIENT_STATUSES = frozenset({408, 425, 429, 502, 503, 504})

#: Values of Idempotency-Outcome (inbox/http_model.py) with which a 409 is no definite no: the effect may be there.
DOUBTFUL_OUTCOMES = frozenset({"unknown", "done"})

#: By SQLSTATE, else by its class (two characters); the longer one counts. What is rolled back for certain and passes is
#: "retry", what was never begun "not_sent", what may have committed "unknown".
#: https://www.postgresql.org/docs/current/errcodes-appendix.html
BY_STATE: Mapping[str, Meaning] = {
    "08": ("unknown", "CONNECTION_LOST"),
    "08001": ("not_sent", "CONNECT_FAILED"),
    "08004": ("not_sent", "CONNECT_FAILED"),
    "22": ("fatal", "DATA_REJECTED"),
    "23": ("fatal", "CONSTRAINT_VIOLATION"),
    "23502": ("fatal", "NOT_NULL_VIOLATION"),
    "23503": ("fatal", "FOREIGN_KEY_VIOLATION"),
    "23505": ("fatal", "UNIQUE_VIOLATION"),
    "23514": ("fatal", "CHECK_VIOLATION"),
    "25006": ("retry", "READ_ONLY"),
    "28": ("fatal", "AUTH_FAILED"),
    "3D000": ("fatal", "NO_SUCH_DATABASE"),
    "40": ("retry", "SERIALIZATION_FAILURE"),
    "40003": ("unknown", "CONNECTION_LOST"),
    "40P01": ("retry", "DEADLOCK"),
    "42": ("fatal", "WRONG_SQL"),
    "42501": ("fatal", "PERMISSION_DENIED"),
    "53": ("retry", "OUT_OF_RESOURCES"),
    "53300": ("not_sent", "CONNECT_FAILED"),
    "55P03": ("retry", "LOCK_TIMEOUT"),
    "57014": ("retry", "STATEMENT_TIMEOUT"),
    "57P": ("unknown", "CONNECTION_LOST"),
    "57P03": ("not_sent", "CONNECT_FAILED"),
}

#: By class; the nearest one of the exception's ancestors counts.
BY_CLASS: Mapping[str, Meaning] = {
    "milepost.schemas.artifacts.ArtifactMissing": ("unknown", "ARTIFACT_MISSING"),
    "milepost.schemas.artifacts.ArtifactChanged": ("unknown", "ARTIFACT_CHANGED"),
    "milepost.schemas.artifacts.ArtifactStoreUnavailable": ("unknown", "ARTIFACT_STORE_UNAVAILABLE"),
    "httpx.ConnectError": ("not_sent", "CONNECT_FAILED"),
    "httpx.ConnectTimeout": ("not_sent", "CONNECT_TIMEOUT"),
    "httpx.PoolTimeout": ("not_sent", "POOL_TIMEOUT"),
    "httpx.ProxyError": ("not_sent", "CONNECT_FAILED"),
    "httpx.TimeoutException": ("unknown", "TIMEOUT"),
    "httpx.UnsupportedProtocol": ("fatal", "INVALID_URL"),
    "httpx.LocalProtocolError": ("fatal", "INVALID_REQUEST"),
    "httpx.TransportError": ("unknown", "CONNECTION_LOST"),
    "httpx.InvalidURL": ("fatal", "INVALID_URL"),
    "httpx.DecodingError": ("unknown", "UNREADABLE_ANSWER"),
    "httpx.TooManyRedirects": ("unknown", "UNREADABLE_ANSWER"),
    "aiohttp.client_exceptions.ClientConnectorDNSError": ("not_sent", "NAME_NOT_RESOLVED"),
    "aiohttp.client_exceptions.ClientSSLError": ("not_sent", "TLS_FAILED"),
    "aiohttp.client_exceptions.ServerFingerprintMismatch": ("not_sent", "TLS_FAILED"),
    "aiohttp.client_exceptions.ClientConnectorError": ("not_sent", "CONNECT_FAILED"),
    "aiohttp.client_exceptions.ConnectionTimeoutError": ("not_sent", "CONNECT_TIMEOUT"),
    "aiohttp.client_exceptions.ServerTimeoutError": ("unknown", "TIMEOUT"),
    "aiohttp.client_exceptions.ClientConnectionError": ("unknown", "CONNECTION_LOST"),
    "aiohttp.client_exceptions.ClientPayloadError": ("unknown", "CONNECTION_LOST"),
    "aiohttp.client_exceptions.InvalidURL": ("fatal", "INVALID_URL"),
    "aiohttp.client_exceptions.NonHttpUrlClientError": ("fatal", "INVALID_URL"),
    # What asyncpg says when the server ends a connection between two messages, before it has read that end.
    "asyncpg.exceptions._base.InternalClientError": ("unknown", "CONNECTION_LOST"),
    "psycopg.errors.ConnectionTimeout": ("not_sent", "CONNECT_TIMEOUT"),
    "psycopg.OperationalError": ("unknown", "CONNECTION_LOST"),
    "psycopg_pool.PoolTimeout": ("not_sent", "POOL_TIMEOUT"),
    "sqlalchemy.exc.TimeoutError": ("not_sent", "POOL_TIMEOUT"),
    "aiokafka.errors.KafkaConnectionError": ("unknown", "CONNECTION_LOST"),
    "aiokafka.errors.AuthenticationFailedError": ("fatal", "AUTH_FAILED"),
    "aiokafka.errors.SaslAuthenticationFailed": ("fatal", "AUTH_FAILED"),
    "aiokafka.errors.TopicAuthorizationFailedError": ("fatal", "TOPIC_DENIED"),
    "aiokafka.errors.GroupAuthorizationFailedError": ("fatal", "PERMISSION_DENIED"),
    "aiokafka.errors.ClusterAuthorizationFailedError": ("fatal", "PERMISSION_DENIED"),
    "aiokafka.errors.TransactionalIdAuthorizationFailed": ("fatal", "PERMISSION_DENIED"),
    "aiokafka.errors.UnknownTopicOrPartitionError": ("fatal", "TOPIC_MISSING"),
    "aiokafka.errors.MessageSizeTooLargeError": ("fatal", "TOO_LARGE"),
    "aiokafka.errors.RecordListTooLargeError": ("fatal", "TOO_LARGE"),
    "aiokafka.errors.NotLeaderForPartitionError": ("retry", "BROKER_UNAVAILABLE"),
    "aiokafka.errors.LeaderNotAvailableError": ("retry", "BROKER_UNAVAILABLE"),
    "aiokafka.errors.NotEnoughReplicasError": ("retry", "BROKER_UNAVAILABLE"),
    "aiokafka.errors.NodeNotReadyError": ("retry", "BROKER_UNAVAILABLE"),
    "aiokafka.errors.RequestTimedOutError": ("unknown", "TIMEOUT"),
    "aiokafka.errors.KafkaTimeoutError": ("unknown", "TIMEOUT"),
    "aiokafka.errors.NotEnoughReplicasAfterAppendError": ("unknown", "BROKER_UNAVAILABLE"),
    "builtins.ConnectionRefusedError": ("not_sent", "CONNECT_FAILED"),
    "socket.gaierror": ("not_sent", "NAME_NOT_RESOLVED"),
    "ssl.SSLCertVerificationError": ("not_sent", "TLS_FAILED"),
    "ssl.SSLError": ("unknown", "CONNECTION_LOST"),
    "builtins.TimeoutError": ("unknown", "TIMEOUT"),
    "builtins.ConnectionError": ("unknown", "CONNECTION_LOST"),
}
