"""Events: pydantic models that declare type, version, topic, key and correlation on the class."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import BaseModel

from .errors import DefinitionError

_TYPE = re.compile(r"[a-z0-9][a-z0-9._-]{0,199}")
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")


@dataclass(frozen=True, slots=True)
class EventSpec:
    """What an event class declares.

    Attributes:
        type: CloudEvents type.
        version: Version of the body, from 1; travels as the extension `ce_eventversion`.
        topic: Kafka topic.
        key: Field whose text is the Kafka record key and orders events; '' for none.
        correlate: Field that waits match on; '' for none.
    """

    type: str
    version: int
    topic: str
    key: str
    correlate: str


class Event(BaseModel):
    """Base of the user's events.

    Declare them with class arguments::

        class OrderPlaced(Event, type="shop.order-placed", version=1, topic="orders", key="order_id"):
            order_id: str

    Unknown fields of a received event are ignored, so that a publisher may add fields.

    Raises:
        DefinitionError: MP106 at import when a declaration is missing or names a field that does not exist.
    """

    milepost_spec: ClassVar[EventSpec]

    def __init_subclass__(
        cls,
        *,
        type: str = "",
        version: int = 1,
        topic: str = "",
        key: str = "",
        correlate: str = "",
        **config: Any,
    ) -> None:
        super().__init_subclass__(**config)
        cls.milepost_spec = EventSpec(type=type, version=version, topic=topic, key=key, correlate=correlate)

    @classmethod
    def __pydantic_init_subclass__(
        cls,
        *,
        type: str = "",
        version: int = 1,
        topic: str = "",
        key: str = "",
        correlate: str = "",
        **config: Any,
    ) -> None:
        super().__pydantic_init_subclass__(**config)
        _check(cls)


def _check(cls: type[Event]) -> None:
    spec = cls.milepost_spec
    if not _TYPE.fullmatch(spec.type):
        raise DefinitionError(
            "MP106",
            f"event {cls.__name__}: type={spec.type!r} is not a name of lower case letters, digits, dots and dashes. "
            'Declare it as class arguments: class X(Event, type="shop.order-placed", topic="orders", key="order_id").',
        )
    if spec.type.startswith("milepost."):
        raise DefinitionError(
            "MP106",
            f"event {cls.__name__}: type={spec.type!r} begins with milepost., which is Milepost's own.",
        )
    if not _TOPIC.fullmatch(spec.topic):
        raise DefinitionError(
            "MP106",
            f"event {cls.__name__}: topic={spec.topic!r} is not a Kafka topic name (letters, digits, '.', '_', '-').",
        )
    if spec.version < 1:
        raise DefinitionError("MP106", f"event {cls.__name__}: version={spec.version} must be 1 or more.")
    for argument, field in (("key", spec.key), ("correlate", spec.correlate)):
        if field and field not in cls.model_fields:
            known = ", ".join(sorted(cls.model_fields)) or "none"
            raise DefinitionError(
                "MP106",
                f"event {cls.__name__}: {argument}={field!r} is not one of its fields ({known}).",
            )


def key_of(event: Event) -> str | None:
    """Return the record key of an event, or None when its class declares none."""
    field = event.milepost_spec.key
    return str(getattr(event, field)) if field else None


def correlation_of(event: Event) -> str | None:
    """Return the text that waits match on, or None when the class declares no correlation field."""
    field = event.milepost_spec.correlate
    return str(getattr(event, field)) if field else None
