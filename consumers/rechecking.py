"""The part of the role worker that looks at what a run rests on before it goes on."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

from ..sagas.context import Context
from ..sagas.definition import Definition
from ..sagas.fingerprints import differing, of_input
from ..sagas.model import Run, Step
from ..sagas.purse import Purse
from ..sagas.resuming import Reason, outcome_of, refusing, rests_on
from ..sagas.words import clean
from ..schemas.artifacts import Artifact, ArtifactChanged, ArtifactMissing, ArtifactStoreUnavailable
from ..schemas.errors import DefinitionError, Refused, UsageError
from ..schemas.states import StepKind, StepState
from ..streams.lifecycle import Health, Stop
from .artifacts import CallArtifacts, checked, require_recorded
from .calls import Tools
from .classify import classify
from .engine import DATABASE_ERRORS, Engine
from .lease import Lease
from .resuming import Sql
from .rows import Loaded
from .store import load_run

logger = logging.getLogger("milepost")

#: Longest time of a saga's own check.
OWN_CHECK = timedelta(seconds=60)
#: Seconds between two looks for something to do: one probe of a partial index, nearly always empty.
POLL = 0.5
_AGAIN = 1.0
_LONGEST = 1_000

#: Which code of a step an error of artifacts has.
_CODES: dict[type[Exception], str] = {
    ArtifactMissing: "ARTIFACT_MISSING",
    ArtifactChanged: "ARTIFACT_CHANGED",
    ArtifactStoreUnavailable: "ARTIFACT_STORE_UNAVAILABLE",
}


class Rechecker:
    """Looks, one run at a time, under the lease of its process and the fence of its claim.

    Args:
        engine: Of the service.
        lease: Claims are made under its id.
        tools: What the users' functions need.
        queues: Only sagas of these queues: their workers reach what the saga's steps reach.
        ready: Whether the clients are open.
    """

    name = "resume checks"

    def __init__(
        self, engine: Engine, lease: Lease, tools: Tools, *, queues: Sequence[str], ready: Callable[[], bool]
    ) -> None:
        self._engine = engine
        self._lease = lease
        self._tools = tools
        self._queues = frozenset(queues)
        self._ready = ready
        self._trouble: str | None = None
        self._done = 0

    async def run(self, stop: Stop) -> None:
        """Look again and again until asked to stop; a look that is under way is then left to another process."""
        while not stop.asked:
            busy = False
            if self._ready() and self._lease.held():
                turn = asyncio.create_task(self._guarded())
                stopped = asyncio.create_task(stop.wait())
                await asyncio.wait({turn, stopped}, return_when=asyncio.FIRST_COMPLETED)
                for task in (turn, stopped):
                    task.cancel()
                await asyncio.wait({turn, stopped})
                busy = not turn.cancelled() and turn.result()
            await stop.wait(0.0 if busy else POLL)

    async def _guarded(self) -> bool:
        try:
            found = await self.turn()
        except DATABASE_ERRORS as error:
            if self._trouble is None:
                logger.warning("resume checks: %s: %s; trying again", type(error).__name__, error)
            self._trouble = f"{type(error).__name__}: {error}"
            return False
        self._trouble = None
        return found

    async def turn(self) -> bool:
        """Look at one run that waits for it; returns whether there was one."""
        changes, pool = self._engine.changes, self._engine.pool
        claim = await pool.fetchrow(Sql.claim_check, self._lease.id, changes.service, self._pins())
        if claim is None:
            return False
        async with pool.acquire() as connection:
            loaded = await load_run(connection, claim["run_id"])  # type: ignore[arg-type]
            parts = await connection.fetchval(Sql.rests_on, claim["run_id"])
        reasons: tuple[Reason, ...] = ()
        definition = None if loaded is None else changes.definitions.of(loaded.run)
        if loaded is not None and definition is not None:
            try:
                reasons = await self._look(definition, loaded, parts)
            except DATABASE_ERRORS:
                raise
            except Exception as error:
                logger.exception("resume checks: %s cannot be looked at", loaded.run.id)
                reasons = (Reason("CHECK_FAILED", _short(f"{type(error).__name__}: {error}"), blocks=False),)
        version = claim["run_version"] if loaded is None else loaded.run.version
        told = json.dumps([reason.json for reason in reasons], ensure_ascii=False)
        key = (claim["request_id"], self._lease.id, claim["fence"])
        while True:
            try:
                await pool.execute(Sql.end_check, *key, outcome_of(reasons), told, version)
                break
            except DATABASE_ERRORS as error:
                logger.warning("resume checks: not stored yet: %s: %s", type(error).__name__, error)
                await asyncio.sleep(_AGAIN)
        self._done += 1
        return True

    def _pins(self) -> list[str]:
        """Return what runs of this process's queues may be pinned to."""
        known = self._engine.changes.definitions
        ours = {d.id for d in known if d.queue in self._queues}
        return [pin for pin in known.pins if pin.partition("#")[0] in ours]

    async def _look(self, definition: Definition, loaded: Loaded, parts: str | None) -> tuple[Reason, ...]:
        run = loaded.run
        found = [*_fingerprint(definition, run, None if parts is None else json.loads(parts))]
        for reference in rests_on(run):
            if (reason := await self._artifact(run, reference)) is not None:
                found.append(reason)
        if not found and definition.revalidate is not None:
            own = await self._own(definition, loaded)
            found.extend([own] if own is not None else [])
        return tuple(found)

    async def _artifact(self, run: Run, reference: Artifact) -> Reason | None:
        keeping = self._tools.keeping
        if keeping is None:
            text = "MILEPOST_ARTIFACTS is not set for the worker that looked, so it has no store"
            return Reason("ARTIFACT_STORE_UNAVAILABLE", text, blocks=True)
        try:
            await require_recorded(keeping.pool, run.tenant, reference)
            async for _ in checked(keeping.store, reference):
                pass
        except (ArtifactMissing, ArtifactChanged, ArtifactStoreUnavailable) as error:
            return Reason(_CODES[type(error)], _short(error.text), blocks=True)
        return None

    async def _own(self, definition: Definition, loaded: Loaded) -> Reason | None:
        """Ask the saga's own check; one that cannot be made is a person's to look at, never passed over."""
        fn = definition.revalidate
        assert fn is not None, "asked only where there is one"
        try:
            async with asyncio.timeout(OWN_CHECK.total_seconds()):
                answer = await fn(self._context(definition, loaded))
        except Refused as error:
            return Reason(_short(error.code), _short(error.message or error.code), blocks=True)
        except DefinitionError as error:
            return Reason(error.code, _short(error.text), blocks=True)
        except Exception as error:
            told = classify(error, self._tools.verdicts)
            gone = told.verdict == "not_sent" or isinstance(error, UsageError)
            code = error.code if isinstance(error, UsageError) else told.code
            return Reason(code, _short(f"the check could not be made: {told.message}"), blocks=gone)
        if answer is None or answer == "":
            return None
        return Reason("CHECK_FOUND", _short(str(answer)), blocks=False)

    def _context(self, definition: Definition, loaded: Loaded) -> Context[Any]:
        run, tools = loaded.run, self._tools
        row = Step(name="revalidate", kind=StepKind.STEP, state=StepState.RUNNING, since=loaded.now)

        def check() -> None:
            tools.check_lease(self._lease.id)

        def use(kind: type[Any]) -> Any:
            check()
            return tools.clients(kind)

        async def beat(progress: Any) -> None:
            refusing("ctx.heartbeat")()

        keeping = tools.keeping
        return Context(
            definition,
            run,
            reader="revalidate",
            idempotency_key=f"{run.id}:revalidate",
            attempt=1,
            use=use,
            emitted=_Nothing(),
            should_stop=tools.stopping,
            beat=beat,
            purse=Purse(definition, None, run, None),
            artifacts=None if keeping is None else _Reading(keeping, run, row, check),
        )

    def health(self) -> Health:
        """Red while the database does not answer."""
        return Health(self._trouble is None, self._trouble or f"{self._done} runs looked at")


class _Nothing(list[Any]):
    """Where a check would emit."""

    def append(self, _: Any, /) -> None:
        """Refuse."""
        refusing("ctx.emit")()


class _Reading(CallArtifacts):
    """Artifacts for a check, which reads only."""

    async def put(self, *_: Any, **__: Any) -> Artifact:
        """Refuse."""
        refusing("ctx.artifact")()
        raise AssertionError("refused before")


def _fingerprint(definition: Definition, run: Run, parts: dict[str, Any] | None) -> Iterator[Reason]:
    """Compare what the run was started with to what this process makes of the same input."""
    if parts is None or definition.fingerprint is None:
        return
    try:
        now = of_input(definition, definition.decode_input(run.input))
    except Exception as error:
        yield Reason("FINGERPRINT_CHANGED", _short(f"it cannot be computed any more: {error}"), blocks=True)
        return
    changed = differing(parts, {} if now is None else now.parts)
    if changed:
        text = f"{', '.join(changed)}: no longer what the run was started with"
        yield Reason("FINGERPRINT_CHANGED", _short(text), blocks=True)


def _short(text: str) -> str:
    return clean(text)[:_LONGEST]
