"""`service.once`: an effect outside that happens once for its key, with the stored answer for whoever asks again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Generic, NoReturn

from ..inbox.operation_model import (
    Act,
    Asked,
    Decision,
    Ending,
    Name,
    Operation,
    OperationState,
    decide,
    operation_key,
)
from ..inbox.operations import Hold, Operations
from ..sagas.facts import FOR_GOOD
from ..sagas.words import BAD_ANSWER, OUTCOME_UNKNOWN, WORKER_LOST, bad_answer, clean, clean_code
from ..schemas.errors import OutcomeUnknown, Refused, UsageError
from ..schemas.options import Absent, Failed, Found, InProgress, Probe, R, Repeat
from ..streams.tracing import span
from .classify import Classified, classify
from .engine import DATABASE_ERRORS
from .held import Held, LeaseGone
from .operation_results import Results
from .operation_words import in_progress, key_reused, not_begun, not_stored, outcome_unknown

if TYPE_CHECKING:
    from .app import Milepost

logger = logging.getLogger("milepost")

#: How often a record that changes under our eyes is read anew.
READS = 5


@dataclass(frozen=True, kw_only=True)
class Once(Generic[R]):
    """One call of `Milepost.once`; see there.

    Args:
        name: Tenant, kind and key.
        asked: What is asked for.
    """

    service: Milepost
    operations: Operations
    name: Name
    asked: Asked
    results: Results[R]
    do: Callable[[str], Awaitable[R]]
    probe: Callable[[str], Awaitable[Probe[R]]] | None
    settle: timedelta
    keep: timedelta

    @property
    def place(self) -> str:
        """What the operation is called in texts."""
        return self.results.place

    async def run(self) -> R:
        """Do it, or say what became of it."""
        with span(f"once {self.name[1]}", attributes={"milepost.operation.key": self.name[2]}):
            before = self.service.clock.monotonic()
            try:
                hold = await self.operations.begin(self.name, self.asked, self.keep)
                if hold is None:
                    return await self._known()
            except DATABASE_ERRORS as error:
                raise not_begun(self.place, error) from error
            return await self._act(self._held(hold, before))

    async def _known(self) -> R:
        """Follow the record; again when somebody changes it meanwhile."""
        for _ in range(READS):
            before = self.service.clock.monotonic()
            found = await self.operations.read(self.name)
            record, now = found if found is not None else (None, None)
            decision = (
                Decision(Act.BEGIN) if record is None or now is None else decide(record, self.asked, now)
            )
            if record is None:
                hold = await self.operations.begin(self.name, self.asked, self.keep)
            elif decision.act in {Act.BEGIN, Act.TRY, Act.ASK}:
                hold = await self._claimed(record, decision)
            elif decision.act is Act.LOST:
                await self._mark_lost(record)
                continue
            else:
                return self._told(record, decision)
            if hold is not None:
                return await self._go_on(self._held(hold, before), decision)
        raise in_progress(self.place, timedelta(seconds=1))

    async def _claimed(self, record: Operation, decision: Decision) -> Hold | None:
        if decision.act is Act.BEGIN:
            return await self.operations.claim_anew(self.name, record, self.asked, self.keep)
        asking = decision.doubt_at if decision.act is Act.ASK else None
        return await self.operations.claim(self.name, record, self.asked.repeat, self.keep, doubt_at=asking)

    async def _mark_lost(self, record: Operation) -> None:
        words = "the lease of whoever did it ended, and it may not be repeated"
        if await self.operations.mark_lost(self.name, record, WORKER_LOST, words):
            logger.error("MP462 %s: nobody knows whether it took effect; a person has to look", self.place)

    def _told(self, record: Operation, decision: Decision) -> R:
        """Answer from the record alone."""
        if decision.act is Act.ANSWER:
            return self.results.decoded(record)
        if decision.act is Act.REFUSE:
            raise Refused(record.code or OUTCOME_UNKNOWN, record.message or "")
        if decision.act is Act.REUSED:
            raise key_reused(self.place, record.state)
        if decision.act is Act.WAIT:
            raise in_progress(self.place, decision.retry_after)
        raise self._unknown(record.code or OUTCOME_UNKNOWN, decision.retry_after, record.message)

    async def _go_on(self, held: Held, decision: Decision) -> R:
        if decision.act is Act.ASK and decision.doubt_at is not None:
            return await self._ask(held, decision)
        return await self._act(held, decision.doubt_at)

    # --- doing ------------------------------------------------------------------------------------------

    async def _act(self, held: Held, doubt_at: datetime | None = None) -> R:
        """Call `do`, and store what came of it.

        Args:
            doubt_at: When earlier tries ended whose effect nobody knows: one that is not sent says nothing about them.
        """
        try:
            value = await held.run(lambda: self.do(operation_key(self.name)))
            ending = self.results.success(value, self.keep)
        except Refused as refused:
            await self._refuse(held, refused)
        except (Exception, asyncio.CancelledError) as error:
            await self._failed(held, error, doubt_at)
        await self._store(held, ending)
        return value

    async def _failed(self, held: Held, error: BaseException, doubt_at: datetime | None) -> NoReturn:
        """Store what an exception of `do` means for its effect, and raise what the caller is to know."""
        found = self._classified(error)
        if found.verdict in FOR_GOOD:
            await self._refuse(held, Refused(found.code, found.message), error)
        sent = found.verdict != "not_sent"
        again = not sent or self.asked.repeat is Repeat.SAFE
        state = OperationState.PENDING if again else OperationState.UNKNOWN
        await self._store(
            held,
            Ending(
                state=state,
                keep=self.keep,
                doubt=sent or doubt_at is not None,
                doubt_at=None if sent else doubt_at,
                code=clean_code(found.code),
                message=clean(found.message),
            ),
            quietly=True,
        )
        if again or isinstance(error, asyncio.CancelledError | UsageError):
            if isinstance(error, LeaseGone):
                raise in_progress(self.place, timedelta(seconds=1)) from error
            raise error
        logger.error("MP462 %s: %s %s", self.place, found.code, type(error).__name__)
        raise self._unknown(found.code, self.settle if self.probe else None) from error

    async def _refuse(self, held: Held, refused: Refused, cause: BaseException | None = None) -> NoReturn:
        """Store a definite no, and raise it as it will be raised again."""
        code, message = clean_code(refused.code), clean(refused.message)
        ending = Ending(state=OperationState.FAILED_FINAL, keep=self.keep, code=code, message=message)
        await self._store(held, ending)
        raise Refused(code, message) from cause or refused

    def _classified(self, error: BaseException) -> Classified:
        if isinstance(error, asyncio.CancelledError):
            return Classified("unknown", "CALLER_CANCELLED", "the caller was cancelled while it ran")
        if isinstance(error, LeaseGone):
            return Classified("unknown" if error.begun else "not_sent", WORKER_LOST, "its lease ran out")
        if isinstance(error, UsageError):
            return Classified("unknown", error.code, error.text)
        return classify(error, self.service.verdicts)

    # --- asking -----------------------------------------------------------------------------------------

    async def _ask(self, held: Held, decision: Decision) -> R:
        """Ask the probe what became of an earlier try."""
        assert self.probe is not None, "checked before anything was claimed"
        probe = self.probe
        try:
            answer: object = await held.run(lambda: probe(operation_key(self.name)))
        except (Exception, asyncio.CancelledError) as error:
            found = self._classified(error)
            await self._still_unknown(held, decision, timedelta(0), found.code, found.message)
            if isinstance(error, asyncio.CancelledError):
                raise
            raise self._unknown(found.code, None) from error
        match answer:
            case Found():
                return await self._found(held, decision, answer.value)
            case Failed():
                await self._refuse(held, Refused(answer.code, "the probe said so"))
            case InProgress():
                pause, code = answer.ask_again, "PROBE_IN_PROGRESS"
            case Absent():
                pause, code = await self._until_settled(decision), "NOT_SETTLED"
                if pause <= timedelta(0):
                    return await self._repeat(held)
            case _:
                pause, code = timedelta(0), BAD_ANSWER
        said = bad_answer(answer) if code == BAD_ANSWER else f"the probe said {type(answer).__name__}"
        await self._still_unknown(held, decision, pause, code, said)
        raise self._unknown(code, pause, said)

    async def _found(self, held: Held, decision: Decision, value: R) -> R:
        try:
            ending = self.results.success(value, self.keep)
        except UsageError as error:
            await self._still_unknown(held, decision, timedelta(0), error.code, error.text)
            raise
        await self._store(held, ending)
        return value

    async def _until_settled(self, decision: Decision) -> timedelta:
        """Return how long "absent" does not count yet, by the database's clock."""
        found = await self.operations.read(self.name)
        if found is None or decision.doubt_at is None:
            return self.settle
        return decision.doubt_at + self.settle - found[1]

    async def _repeat(self, held: Held) -> R:
        """Nothing happened and nothing can come any more: do it."""
        if not await held.absent():
            raise in_progress(self.place, timedelta(seconds=1))
        return await self._act(held)

    async def _still_unknown(
        self, held: Held, decision: Decision, pause: timedelta, code: str, message: str
    ) -> None:
        ending = Ending(
            state=OperationState.UNKNOWN,
            ask_after=pause,
            doubt=True,
            doubt_at=decision.doubt_at,
            code=clean_code(code),
            message=clean(message),
        )
        await self._store(held, ending, quietly=True)

    # --- storing ----------------------------------------------------------------------------------------

    async def _store(self, held: Held, ending: Ending, *, quietly: bool = False) -> None:
        """Store an ending.

        Args:
            quietly: Say what cannot be stored in the log only, because another error is being raised; the lease then
                ends by itself.

        Raises:
            ConnectError: MP468 when it could not be stored.
            OutcomeUnknown: MP462 when somebody else has taken the operation over.
        """
        try:
            stored = await held.finish(ending)
        except DATABASE_ERRORS as error:
            logger.error("MP468 %s ended %s, which could not be stored", self.place, ending.state)
            if quietly:
                return
            raise not_stored(self.place, ending.state, error) from error
        if not stored and not quietly:
            logger.error("MP462 %s ended %s after it was taken over", self.place, ending.state)
            raise self._unknown(WORKER_LOST, None)

    def _held(self, hold: Hold, before: float) -> Held:
        return Held(self.operations, hold, self.service.clock, before)

    def _unknown(self, code: str, after: timedelta | None, said: str | None = None) -> OutcomeUnknown:
        why = f"{code}: {said}" if said and code == BAD_ANSWER else code
        return outcome_unknown(self.place, why, after, asked=self.probe is not None)
