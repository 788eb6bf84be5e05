"""Events: pydantic models that declare type, version, topic, key and correlation on the class."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias, TypeVar

from pydantic import BaseModel

from .codecs import JSON, Codec
from .errors import DefinitionError, UsageError

#: Takes the body of one version as a dict and returns that of the next.
Upcaster: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]
U = TypeVar("U", bound=Upcaster)

_TYPE = re.compile(r"[a-z0-9][a-z0-9._-]{0,199}")
_OF_A_CODEC = ("name", "secret", "reads_plain", "check", "encode", "decode", "digests")
#: Kafka takes "." and ".." for no topics.
_TOPIC = re.compile(r"(?!\.{1,2}\Z)[a-zA-Z0-9._-]{1,249}")


@dataclass(frozen=True, slots=True)
class EventSpec:
    """What an event class declares.

    Attributes:
        type: CloudEvents type.
        version: Version of the body, from 1; travels as the extension `ce_eventversion`.
        topic: Kafka topic.
        key: Field whose text is the Kafka record key and orders events; '' for none.
        correlate: Field that waits match on; '' for none.
        codec: How its body becomes bytes.
    """

    type: str
    version: int
    topic: str
    key: str
    correlate: str
    codec: Codec = JSON


class Event(BaseModel):
    """Base of the user's events.

    Declare them with class arguments::

        class OrderPlaced(Event, type="shop.order-placed", version=1, topic="orders", key="order_id"):
            order_id: str

    Unknown fields of a received event are ignored, so that a publisher may add fields without a new version. Where a
    body changes in another way, raise `version=` and say how an old one becomes a new one::

        @OrderPlaced.upcast(from_version=1)
        def with_currency(body: dict[str, Any]) -> dict[str, Any]:
            return {**body, "currency": "EUR"}

    Raises:
        DefinitionError: MP106 at import when a declaration is missing or names a field that does not exist.
    """

    milepost_spec: ClassVar[EventSpec]
    milepost_upcasters: ClassVar[dict[int, Upcaster]] = {}

    def __init_subclass__(
        cls,
        *,
        type: str = "",
        version: int = 1,
        topic: str = "",
        key: str = "",
        correlate: str = "",
        codec: Codec | None = None,
        **config: Any,
    ) -> None:
        super().__init_subclass__(**config)
        inherited = getattr(
            cls, "milepost_spec", None
        )  # what is secret does not become plain by being derived from
        cls.milepost_spec = EventSpec(
            type=type,
            version=version,
            topic=topic,
            key=key,
            correlate=correlate,
            codec=codec or (inherited.codec if inherited else JSON),
        )
        cls.milepost_upcasters = {}

    @classmethod
    def __pydantic_init_subclass__(
        cls,
        *,
        type: str = "",
        version: int = 1,
        topic: str = "",
        key: str = "",
        correlate: str = "",
        codec: Codec | None = None,
        **config: Any,
    ) -> None:
        super().__pydantic_init_subclass__(**config)
        made = cls.__pydantic_generic_metadata__
        if not (made["args"] or made["parameters"]):  # Command itself, and Command[Reply], are no events yet
            _check(cls)

    @classmethod
    def upcast(cls, *, from_version: int) -> Callable[[U], U]:
        """Register the decorated function: it takes the body of an old version and returns that of the next one.

        It is called on reading, wherever an event's body is read; several form a chain, 1 to 2 to 3. It must not
        need anything but the body.

        Args:
            from_version: The version it takes, at least 1 and below the class's.

        Raises:
            DefinitionError: MP344 when the version is out of range or has an upcaster already; a gap in the chain is
                found where a handler or wait takes the class.
        """

        def register(upcaster: U) -> U:
            version = cls.milepost_spec.version
            if not 1 <= from_version < version:
                raise DefinitionError(
                    "MP344",
                    f"event {cls.__name__}: upcast(from_version={from_version}) leads nowhere: the class is version "
                    f"{version}. Upcasters take 1 to version - 1; raise version= on the class first.",
                )
            if from_version in cls.milepost_upcasters:
                raise DefinitionError(
                    "MP344",
                    f"event {cls.__name__}: version {from_version} has two upcasters. Keep one.",
                )
            cls.milepost_upcasters[from_version] = upcaster
            return upcaster

        return register


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A record without a value: on a compacted topic it deletes what its key held. Publish it like an event.

    ::

        await publish(session, Tombstone(OrderPlaced, key="o-1"))

    Consumers of this library pass over it.

    Args:
        event: The class whose topic it goes to.
        key: The record key to delete.

    Raises:
        UsageError: MP345 when it has no such key or class.
    """

    event: type[Event]
    key: str

    def __post_init__(self) -> None:
        if not (isinstance(self.event, type) and issubclass(self.event, Event)):
            raise UsageError(
                "MP345",
                f"Tombstone({self.event!r}): it needs the event class whose topic it goes to, as in "
                'Tombstone(OrderPlaced, key="o-1").',
            )
        if not (isinstance(self.key, str) and self.key):
            raise UsageError(
                "MP345",
                f"Tombstone({self.event.__name__}): key={self.key!r} is no text, and a record with neither key nor "
                "value deletes nothing. Pass the key of what is to be deleted.",
            )


#: What `publish` takes.
Publishable: TypeAlias = Event | Tombstone


def check_upcasters(cls: type[Event]) -> None:
    """Refuse a chain of upcasters with a gap.

    Raises:
        DefinitionError: MP344 naming the missing version.
    """
    known = cls.milepost_upcasters
    missing = sorted(set(range(min(known), cls.milepost_spec.version)) - known.keys()) if known else []
    if missing:
        raise DefinitionError(
            "MP344",
            f"event {cls.__name__}: no upcaster takes version {missing[0]}, so bodies older than that could not reach "
            f"version {cls.milepost_spec.version}. Add @{cls.__name__}.upcast(from_version={missing[0]}).",
        )


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
    if isinstance(spec.codec, type) or not all(hasattr(spec.codec, name) for name in _OF_A_CODEC):
        raise DefinitionError(
            "MP106",
            f"event {cls.__name__}: codec={spec.codec!r} is no codec. Pass one, such as codec=AesGcm().",
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


def is_topic(name: str) -> bool:
    """Tell whether a Kafka topic can have this name."""
    return _TOPIC.fullmatch(name) is not None


def declared_topics() -> set[str]:
    """Return the topics of all event classes that this process has loaded."""
    found, classes = set(), list(Event.__subclasses__())
    while classes:
        cls = classes.pop()
        classes += cls.__subclasses__()
        found.add(cls.milepost_spec.topic)
    return found - {""}


def is_publishable(value: object) -> bool:
    """Tell whether a value is an event or a tombstone; isinstance of a pydantic class would be two calls of Python."""
    return isinstance(value, Tombstone) or Event in type(value).__mro__


def spec_of(event: Publishable) -> EventSpec:
    """Return what the class of an event or tombstone declares."""
    return event.event.milepost_spec if isinstance(event, Tombstone) else event.milepost_spec


def key_of(event: Event) -> str | None:
    """Return the record key of an event, or None when its class declares none."""
    field = event.milepost_spec.key
    return str(getattr(event, field)) if field else None


def correlation_of(event: Event) -> str | None:
    """Return the text that waits match on, or None when the class declares no correlation field."""
    field = event.milepost_spec.correlate
    return str(getattr(event, field)) if field else None
