"""The servers that Milepost needs, together: for tests and the demo, and as a stack that stays up.

Each part is looked for in this order: an environment variable that points at a running one, Docker, the local
recipe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from . import given
from .cache import cache_folder, locked
from .jaeger import Jaeger
from .kafka import Kafka
from .machine import Say, shown, silent
from .postgres import Postgres
from .state import Entry, State

PARTS = ("postgres", "kafka", "jaeger")


@dataclass(frozen=True)
class Stack:
    """Where the parts answer.

    Args:
        database_url: PostgreSQL, in asyncpg's form.
        kafka: bootstrap servers, host:port.
        otlp: where spans go (OTLP over HTTP), None without Jaeger.
        jaeger: Jaeger's query API, None without Jaeger.
    """

    database_url: str
    kafka: str
    otlp: str | None = None
    jaeger: str | None = None

    def env(self) -> dict[str, str]:
        """Return the environment variables that point Milepost's processes at this stack."""
        found = {
            given.DATABASE: self.database_url,
            given.KAFKA: self.kafka,
            "MILEPOST_CREATE_TOPICS": "true",
            given.OTLP: self.otlp,
            given.JAEGER: self.jaeger,
        }
        return {key: value for key, value in found.items() if value}


def default_state() -> Path:
    """Return the state file that ``up`` and ``down`` use when none is named."""
    return cache_folder() / "stack.json"


def up(*, jaeger: bool = False, state: Path | None = None, say: Callable[[str], None] = shown) -> Stack:
    """Start what does not run yet and leave it running after this process.

    Args:
        jaeger: with Jaeger too.
        state: file to note the servers in; ``down`` needs the same one.
        say: receives progress lines.

    Returns:
        The running stack. Calling it again returns the same servers while they are healthy.

    Raises:
        DevstackError: a part is not there or does not answer. What did start stays noted in the state file.
    """
    path = state or default_state()
    with locked(path.with_name(f"{path.name}.lock")):
        noted = State(path)
        database = given.database() or _kept(noted, "postgres", say)
        kafka = given.kafka() or _kept(noted, "kafka", say)
        otlp, query = given.jaeger() or (None, None)
        traced = noted.get("jaeger")
        if not query and (jaeger or (traced and traced.healthy("jaeger"))):
            otlp, query = _kept(noted, "jaeger", say).split(" ")
        return Stack(database, kafka, otlp, query)


def _kept(noted: State, part: str, say: Say) -> str:
    """Return the address of a healthy noted server, else of a new detached one."""
    entry = noted.get(part)
    if entry is not None:
        if entry.healthy(part):
            return entry.address
        say(f"{part}: the one noted in {noted.path} does not answer; replacing it")
        noted.end(part)
    server, address = _detached(part, say)
    server.start()
    noted.put(part, Entry(address(), server.record()))
    return address()


def _detached(part: str, say: Say) -> tuple[Postgres | Kafka | Jaeger, Callable[[], str]]:
    if part == "postgres":
        postgres = Postgres(detached=True, say=say)
        return postgres, postgres.url
    if part == "kafka":
        kafka = Kafka(detached=True, say=say)
        return kafka, lambda: kafka.bootstrap
    tracing = Jaeger(detached=True, say=say)
    return tracing, lambda: f"{tracing.otlp} {tracing.query}"


def down(*, state: Path | None = None, say: Callable[[str], None] = shown) -> int:
    """Stop what ``up`` started, and nothing else.

    Args:
        state: the file that was given to ``up``.
        say: receives progress lines.

    Returns:
        How many servers were running and have been stopped.
    """
    path = state or default_state()
    with locked(path.with_name(f"{path.name}.lock")):
        noted = State(path)
        stopped = 0
        for part in reversed(PARTS):
            if noted.get(part) is not None and noted.end(part):
                say(f"{part}: stopped")
                stopped += 1
        return stopped


@contextmanager
def running(
    *, kafka: bool = True, jaeger: bool = False, say: Callable[[str], None] = silent
) -> Iterator[Stack]:
    """Run the parts as long as the block lasts; nothing of them is left afterwards.

    Args:
        kafka: with Kafka; else ``Stack.kafka`` is empty.
        jaeger: with Jaeger.
        say: receives progress lines.

    Raises:
        DevstackError: a part is not there or does not answer.
    """
    with ExitStack() as stack:
        database = given.database() or stack.enter_context(Postgres(say=say)).url()
        bootstrap = ""
        if kafka:
            bootstrap = given.kafka() or stack.enter_context(Kafka(say=say)).bootstrap
        otlp, query = given.jaeger() or (None, None)
        if jaeger and not query:
            tracing = stack.enter_context(Jaeger(say=say))
            otlp, query = tracing.otlp, tracing.query
        yield Stack(database, bootstrap, otlp, query)
