"""Milepost: durable business processes (sagas) over PostgreSQL and Apache Kafka.

Names are imported when they are first asked for, so that `milepost --help` need not load every driver.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .consumers.app import Milepost
    from .consumers.context_files import context_hash
    from .consumers.idempotency import IdempotencyMiddleware
    from .consumers.replay_plan import Offsets
    from .consumers.replay_run import ReplayReport
    from .consumers.signalling import SignalRef
    from .inbox.consumer import Consumer
    from .inbox.replay import ReplayedEvent, ReplayOutcome
    from .inbox.verify import HmacSignature, SignatureRefused, StandardWebhooks, Verifier
    from .inbox.webhook_model import WebhookRequest
    from .outbox.publish import publish, publish_sync
    from .outbox.send import send
    from .recovery.inspecting import Compared, Inspection, Looking
    from .recovery.model import Action, Drift, Observation, Plan
    from .recovery.rollback import HealthCheck, RollbackRules, Signs, Traffic, roll_back_plan
    from .sagas.approvals import Approval
    from .sagas.context import Context, RunRef, View
    from .sagas.nodes import Node, Probed, Step, Undo, Wait
    from .sagas.saga import Saga
    from .sagas.shapes import all_of, at_least, best_effort, loop, optional, sequence, when
    from .schemas.aesgcm import AesGcm
    from .schemas.artifacts import Artifact, ArtifactChanged, ArtifactMissing, ArtifactStoreUnavailable
    from .schemas.budget import Budget, BudgetExceeded
    from .schemas.children import ChildRun
    from .schemas.codecs import Codec, CodecContext, Coded, Unreadable
    from .schemas.commands import Command
    from .schemas.decision import Decision
    from .schemas.envelope import Envelope
    from .schemas.errors import (
        ConnectError,
        DefinitionError,
        IdempotencyKeyReused,
        MilepostError,
        OperationInProgress,
        OutcomeUnknown,
        PolicyDenied,
        QualityFailed,
        Refused,
        StartError,
        StateError,
        UsageError,
    )
    from .schemas.events import Event, Tombstone
    from .schemas.exchange import Exchange
    from .schemas.fanout import FanOut, FanOutItem
    from .schemas.options import Absent, Failed, Found, InProgress, Probe, Repeat, Retry, Then
    from .schemas.settings import Settings
    from .schemas.states import ItemState, Level, Priority, Risk, RunState, StepState
    from .schemas.transaction import AnyTx, SyncTx, Transaction
    from .schemas.wallclock import wall_clock

__all__ = [
    "Absent",
    "Action",
    "AesGcm",
    "AnyTx",
    "Approval",
    "Artifact",
    "ArtifactChanged",
    "ArtifactMissing",
    "ArtifactStoreUnavailable",
    "Budget",
    "BudgetExceeded",
    "ChildRun",
    "Codec",
    "CodecContext",
    "Coded",
    "Command",
    "Compared",
    "ConnectError",
    "Consumer",
    "Context",
    "Decision",
    "DefinitionError",
    "Drift",
    "Envelope",
    "Event",
    "Exchange",
    "Failed",
    "FanOut",
    "FanOutItem",
    "Found",
    "HealthCheck",
    "HmacSignature",
    "IdempotencyKeyReused",
    "IdempotencyMiddleware",
    "InProgress",
    "Inspection",
    "ItemState",
    "Level",
    "Looking",
    "Milepost",
    "MilepostError",
    "Node",
    "Observation",
    "Offsets",
    "OperationInProgress",
    "OutcomeUnknown",
    "Plan",
    "PolicyDenied",
    "Priority",
    "Probe",
    "Probed",
    "QualityFailed",
    "Refused",
    "Repeat",
    "ReplayOutcome",
    "ReplayReport",
    "ReplayedEvent",
    "Retry",
    "Risk",
    "RollbackRules",
    "RunRef",
    "RunState",
    "Saga",
    "Settings",
    "SignalRef",
    "SignatureRefused",
    "Signs",
    "StandardWebhooks",
    "StartError",
    "StateError",
    "Step",
    "StepState",
    "SyncTx",
    "Then",
    "Tombstone",
    "Traffic",
    "Transaction",
    "Undo",
    "Unreadable",
    "UsageError",
    "Verifier",
    "View",
    "Wait",
    "WebhookRequest",
    "all_of",
    "at_least",
    "best_effort",
    "context_hash",
    "loop",
    "optional",
    "publish",
    "publish_sync",
    "roll_back_plan",
    "send",
    "sequence",
    "wall_clock",
    "when",
]

#: Where each public name lives.
_HOMES = {
    "Absent": "schemas.options",
    "AesGcm": "schemas.aesgcm",
    "AnyTx": "schemas.transaction",
    "Budget": "schemas.budget",
    "BudgetExceeded": "schemas.budget",
    "Approval": "sagas.approvals",
    "Artifact": "schemas.artifacts",
    "ArtifactChanged": "schemas.artifacts",
    "ArtifactMissing": "schemas.artifacts",
    "ArtifactStoreUnavailable": "schemas.artifacts",
    "Codec": "schemas.codecs",
    "CodecContext": "schemas.codecs",
    "Coded": "schemas.codecs",
    "ChildRun": "schemas.children",
    "Command": "schemas.commands",
    "ConnectError": "schemas.errors",
    "Consumer": "inbox.consumer",
    "Context": "sagas.context",
    "Decision": "schemas.decision",
    "DefinitionError": "schemas.errors",
    "Envelope": "schemas.envelope",
    "Event": "schemas.events",
    "Exchange": "schemas.exchange",
    "Failed": "schemas.options",
    "FanOut": "schemas.fanout",
    "FanOutItem": "schemas.fanout",
    "Found": "schemas.options",
    "HmacSignature": "inbox.verify",
    "IdempotencyKeyReused": "schemas.errors",
    "IdempotencyMiddleware": "consumers.idempotency",
    "InProgress": "schemas.options",
    "ItemState": "schemas.states",
    "Milepost": "consumers.app",
    "MilepostError": "schemas.errors",
    "Node": "sagas.nodes",
    "Offsets": "consumers.replay_plan",
    "OperationInProgress": "schemas.errors",
    "OutcomeUnknown": "schemas.errors",
    "PolicyDenied": "schemas.errors",
    "Priority": "schemas.states",
    "Probe": "schemas.options",
    "Probed": "sagas.nodes",
    "QualityFailed": "schemas.errors",
    "Refused": "schemas.errors",
    "Repeat": "schemas.options",
    "ReplayOutcome": "inbox.replay",
    "ReplayReport": "consumers.replay_run",
    "ReplayedEvent": "inbox.replay",
    "Retry": "schemas.options",
    "Risk": "schemas.states",
    "RunRef": "sagas.context",
    "RunState": "schemas.states",
    "Saga": "sagas.saga",
    "Settings": "schemas.settings",
    "SignalRef": "consumers.signalling",
    "SignatureRefused": "inbox.verify",
    "StandardWebhooks": "inbox.verify",
    "StartError": "schemas.errors",
    "StateError": "schemas.errors",
    "Step": "sagas.nodes",
    "StepState": "schemas.states",
    "SyncTx": "schemas.transaction",
    "Then": "schemas.options",
    "Tombstone": "schemas.events",
    "Transaction": "schemas.transaction",
    "Undo": "sagas.nodes",
    "Unreadable": "schemas.codecs",
    "UsageError": "schemas.errors",
    "Verifier": "inbox.verify",
    "View": "sagas.context",
    "Wait": "sagas.nodes",
    "WebhookRequest": "inbox.webhook_model",
    "all_of": "sagas.shapes",
    "at_least": "sagas.shapes",
    "best_effort": "sagas.shapes",
    "loop": "sagas.shapes",
    "optional": "sagas.shapes",
    "context_hash": "consumers.context_files",
    "publish": "outbox.publish",
    "publish_sync": "outbox.publish",
    "send": "outbox.send",
    "sequence": "sagas.shapes",
    "wall_clock": "schemas.wallclock",
    "when": "sagas.shapes",
    "Action": "recovery.model",
    "Compared": "recovery.inspecting",
    "Drift": "recovery.model",
    "HealthCheck": "recovery.rollback",
    "Inspection": "recovery.inspecting",
    "Level": "schemas.states",
    "Looking": "recovery.inspecting",
    "Observation": "recovery.model",
    "Plan": "recovery.model",
    "RollbackRules": "recovery.rollback",
    "Signs": "recovery.rollback",
    "Traffic": "recovery.rollback",
    "roll_back_plan": "recovery.rollback",
}

if not TYPE_CHECKING:  # a type checker that saw this function would accept every name

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = getattr(import_module(f".{_HOMES[name]}", __name__), name)
        globals()[name] = found
        return found

    def __dir__() -> list[str]:
        return sorted(__all__)
