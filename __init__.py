"""Milepost: durable business processes (sagas) over PostgreSQL and Apache Kafka."""

from .consumers.app import Milepost
from .inbox.consumer import Consumer
from .outbox.publish import publish
from .sagas.context import Context, RunRef, View
from .sagas.nodes import Node, Probed, Step, Undo, Wait
from .sagas.saga import Saga
from .schemas.envelope import Envelope
from .schemas.errors import (
    ConnectError,
    DefinitionError,
    MilepostError,
    Refused,
    StartError,
    StateError,
    UsageError,
)
from .schemas.events import Event
from .schemas.options import Absent, Failed, Found, InProgress, Probe, Repeat, Retry, Then
from .schemas.settings import Settings
from .schemas.states import RunState, StepState
from .schemas.transaction import AnyTx, Transaction

__all__ = [
    "Absent",
    "AnyTx",
    "ConnectError",
    "Consumer",
    "Context",
    "DefinitionError",
    "Envelope",
    "Event",
    "Failed",
    "Found",
    "InProgress",
    "Milepost",
    "MilepostError",
    "Node",
    "Probe",
    "Probed",
    "Refused",
    "Repeat",
    "Retry",
    "RunRef",
    "RunState",
    "Saga",
    "Settings",
    "StartError",
    "StateError",
    "Step",
    "StepState",
    "Then",
    "Transaction",
    "Undo",
    "UsageError",
    "View",
    "Wait",
    "publish",
]
