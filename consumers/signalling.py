"""`service.signal`: an awaited event from the service's own code, stored and matched in the caller's transaction."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from ..inbox.signals import NewSignal, stored_id
from ..sagas.definition import text_problem
from ..schemas.errors import UsageError
from ..schemas.events import Event, correlation_of
from ..schemas.masking import MASK
from ..schemas.parts import secret_in
from ..schemas.texts import INDEXED, too_long_to_index
from ..schemas.transaction import AsyncpgTx, Transaction
from ..streams.database import raw_connection, require_read_committed
from ..streams.tracing import current_traceparent, span
from .signals import store_and_resume

if TYPE_CHECKING:
    from .app import Milepost


#: Longest tenant, key and event id, in characters.
LONGEST = 1000


@dataclass(frozen=True, slots=True)
class SignalRef:
    """A signal that was given.

    Attributes:
        id: Its row; of the first one when it was given before.
        type: The event's type.
        key: Correlation text that waits match on.
        matched: How many waits it ended now; 0 when nobody waits yet, or when it was given before.
        repeated: Whether an event of this id was there already; then nothing was done.
    """

    id: UUID
    tenant: str
    type: str
    key: str
    matched: int = 0
    repeated: bool = False


async def give_signal(
    service: Milepost, tx: AsyncpgTx, event: Event, *, tenant: str, keep: timedelta, event_id: str | None
) -> SignalRef:
    """Do what `Milepost.signal` says; see there."""
    signal = _signal(service, event, tenant, keep, event_id)
    connection = await raw_connection(tx, "signal()")
    await require_read_committed(connection, "signal()")
    cause = tx._cause if isinstance(tx, Transaction) else None
    with span(f"signal {signal.type}", kind="producer"):
        signal = replace(signal, traceparent=current_traceparent())
        stored = await store_and_resume(
            service, connection, signal, correlation_id=cause.correlation_id if cause else None
        )
    if stored.refused:
        raise UsageError(
            "MP456", f"signal({signal.type}): PostgreSQL cannot store it: {stored.refused[0].reason}."
        )
    row = signal.id if event_id is None else await stored_id(connection, signal)
    return SignalRef(
        row or signal.id, tenant, signal.type, signal.key, len(stored.matched), row not in {None, signal.id}
    )


def _signal(service: Milepost, event: Event, tenant: str, keep: timedelta, event_id: str | None) -> NewSignal:
    kind = event.milepost_spec.type
    key = correlation_of(event)
    if key is None:
        raise UsageError(
            "MP456",
            f"signal({kind}): {type(event).__name__} says no correlate=, so no wait could match it. Declare the field "
            'that waits match on: class X(Event, ..., correlate="tracking_id").',
        )
    if event.milepost_spec.codec.secret:
        raise UsageError(
            "MP348",
            f"signal({kind}): {type(event).__name__} is encrypted, and a signal is stored readable. Give one without "
            "secrets.",
        )
    payload = event.model_dump_json(by_alias=True)
    if MASK in payload and (found := secret_in(event)) is not None:
        raise UsageError(
            "MP348",
            f"signal({kind}): field {found[0]} of {type(event).__name__} is a {found[1]}, which would be stored as "
            "asterisks. Give a reference to the secret.",
        )
    for what, text in (("tenant", tenant or "-"), ("key", key), ("event_id", event_id or "-")):
        if problem := text_problem(text, longest=LONGEST):
            raise UsageError("MP456", f"signal({kind}): {what} {text[:50]!r} {problem}.")
    if too_long_to_index(tenant, service.name, event_id or "") or too_long_to_index(tenant, kind, key):
        raise UsageError(
            "MP456",
            f"signal({kind}): tenant with key or event_id is longer than {INDEXED} bytes. Give shorter ones.",
        )
    if keep <= timedelta(0):
        raise UsageError(
            "MP456", f"signal({kind}): keep={keep} is not longer than zero, so nothing could match it."
        )
    row = service.ids.new()
    return NewSignal(
        id=row,
        tenant=tenant,
        source=service.name,
        event_id=str(row) if event_id is None else event_id,
        type=kind,
        key=key,
        payload=payload,
        keep=keep,
        version=event.milepost_spec.version,
    )
