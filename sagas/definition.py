"""A saga's definition as data: what `Saga.flow` compiles, and what the state machine and the workers read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

from pydantic import BaseModel

from ..schemas.budget import Budget
from ..schemas.errors import UsageError
from ..schemas.options import OnFailure, Repeat, Retry, Then
from ..schemas.states import Level, Priority, Risk, StepKind
from . import codec, tree
from .context import View
from .inputs import InputUpcast, brought_up
from .model import Json
from .specs import ApprovalSpec, AsyncFn, ChildSpec, CommandSpec, EachSpec, ProbeSpec, UndoSpec, WaitSpec
from .words import APPROVAL_EXPIRED

if TYPE_CHECKING:
    pass

#: How long the settling repeat of a SAFE step without a probe goes on, as a probe does by default.
DEFAULT_GIVE_UP = timedelta(hours=1)


@dataclass(frozen=True, kw_only=True)
class Node:
    """One step, transactional step or wait.

    Attributes:
        repeat: SAFE for a transactional step and a wait.
        fn: The user's function; None for a wait.
        result: Class of the stored result; the event's class for a wait; None when nothing is returned.
        on_failure: Resolved; for a wait it follows a probe that says Failed, and is always PERSON.
        queue: Queue of its work topic.
        window: How long the other side remembers a key, from its first call; None for always.
        budget: What one try may spend.
        limits: Names of the rate limits that its calls, probes and undos count for.
        due: Of a timer, how long it waits, or the pure function that says until when.
    """

    name: str
    kind: StepKind
    repeat: Repeat
    retry: Retry
    attempt_timeout: timedelta
    on_failure: OnFailure
    queue: str
    result: type[BaseModel] | None
    fn: AsyncFn | None = None
    window: timedelta | None = None
    probe: ProbeSpec | None = None
    undo: UndoSpec | None = None
    no_undo: str | None = None
    irreversible: bool = False
    wait: WaitSpec | None = None
    limits: tuple[str, ...] = ()
    due: timedelta | Callable[[View[Any]], datetime] | None = None
    command: CommandSpec | None = None
    child: ChildSpec | None = None
    each: EachSpec | None = None
    budget: Budget | None = None
    approval: ApprovalSpec | None = None

    @property
    def acts(self) -> bool:
        """Whether it may leave something behind; what only waits does not."""
        return self.wait is None and self.due is None and self.approval is None

    @property
    def can_ask(self) -> bool:
        """Whether an unknown outcome can be settled by a machine: by its probe, or by repeating a SAFE call."""
        return self.probe is not None or (self.kind is StepKind.STEP and self.repeat is Repeat.SAFE)

    @property
    def give_up(self) -> timedelta:
        """How long an unknown outcome is asked for before a person is."""
        return DEFAULT_GIVE_UP if self.probe is None else self.probe.give_up

    @property
    def settle(self) -> timedelta:
        """How long after the doubted try's lease ended "Absent" begins to count."""
        return timedelta(0) if self.probe is None else self.probe.settle

    @property
    def compensates(self) -> bool:
        """Whether its failure or timeout makes the run undo what came before."""
        if self.wait is not None:
            return self.wait.on_timeout is Then.COMPENSATE
        if self.approval is not None:
            return Then.COMPENSATE in {self.approval.on_reject, self.approval.on_expiry}
        return self.on_failure is Then.COMPENSATE

    def undoes_after(self, code: str | None) -> bool:
        """Whether the run undoes what came before when this node has failed with a code."""
        if self.approval is None:
            return self.compensates
        expired = code == APPROVAL_EXPIRED
        return (self.approval.on_expiry if expired else self.approval.on_reject) is Then.COMPENSATE

    def decode(self, value: Json) -> Any:
        """Read a stored result as the declared class."""
        return None if self.result is None else codec.decode(self.result, value)


@dataclass(frozen=True, kw_only=True)
class Definition:
    """A compiled saga.

    Attributes:
        key: Business key of an input; one run per (tenant, saga, key).
        deadline: When a run with that input has to stop; asked once, at its start.
        active_timeout: Longest time that a run may be PENDING or RUNNING in all.
        lock: Resource that a run with that input has for itself; asked once, at its start.
        if_locked: What becomes of a run whose resource another run has.
        flow: The nodes as a tree: what comes after, beside and instead of what.
        controls: Of its choices and loops, what their rows are read with.
        budget: What a run may spend.
        auto_repair: Up to which level runs are repaired without asking a person.
        priority: How soon a run's work is taken, or what says so of its input; asked once, at its start.
        fingerprint: What a run with that input rests on; asked at its start.
        severity: How bad it is when a run of it goes wrong.
        revalidate: The saga's own check before a run goes on that stood in front of a person.
        shape: Fingerprint of what is pinned: names, kinds, order, result and input schemas.
        policy: Fingerprint of what may change under a run: retries, timeouts, repeat, queues.
        upcasts: How older inputs are brought up, from version 1 on.
        outline: What the two are fingerprints of, as JSON: {"shape": ..., "policy": ...}.
    """

    name: str
    version: int
    input: type[BaseModel]
    key: Callable[[Any], str]
    queue: str
    nodes: tuple[Node, ...]
    flow: tree.Series
    controls: tuple[Node, ...] = ()
    deadline: Callable[[Any], datetime] | None = None
    active_timeout: timedelta | None = None
    lock: Callable[[Any], str] | None = None
    if_locked: Literal["queue", "reject"] = "queue"
    priority: Priority | Callable[[Any], Priority] = Priority.NORMAL
    auto_repair: Level = Level.SAFE_RETRY
    fingerprint: Callable[[Any], Mapping[str, Json]] | None = None
    revalidate: AsyncFn | None = None
    budget: Budget | None = None
    severity: Risk = Risk.MEDIUM
    shape: str = field(default="")
    policy: str = field(default="")
    upcasts: tuple[InputUpcast, ...] = ()
    outline: Json = None

    @property
    def title(self) -> str:
        """Name and version for people: "order v1"."""
        return f"{self.name} v{self.version}"

    @property
    def id(self) -> str:
        """Name and version for machines: "order/1"."""
        return f"{self.name}/{self.version}"

    @property
    def flow_text(self) -> str:
        """The nodes in order, for people."""
        return tree.text(self.flow)

    @cached_property
    def _by_name(self) -> dict[str, Node]:
        return {node.name: node for node in (*self.nodes, *self.controls)}

    @cached_property
    def _by_undo(self) -> dict[str, Node]:
        return {node.undo.name: node for node in self.nodes if node.undo is not None}

    @cached_property
    def approved_by(self) -> dict[str, tuple[str, ...]]:
        """Of each node that may be the first after an approval, the names of those approvals."""
        found: dict[str, tuple[str, ...]] = {}
        for node in self.nodes if any(node.approval is not None for node in self.nodes) else ():
            for name in tree.next_after(self.flow, node.name) if node.approval is not None else ():
                found[name] = (*found.get(name, ()), node.name)
        return found

    @cached_property
    def has_budgets(self) -> bool:
        """Whether it or one of its nodes has a budget."""
        return self.budget is not None or any(node.budget is not None for node in self.nodes)

    def node(self, name: str) -> Node | None:
        """Return the step, wait, approval, choice or loop of that name."""
        return self._by_name.get(name)

    def undone_by(self, name: str) -> Node | None:
        """Return the step that the undo of that name undoes."""
        return self._by_undo.get(name)

    @property
    def input_version(self) -> int:
        """Version of the input class: 1 until there are upcasters."""
        return len(self.upcasts) + 1

    @property
    def oldest_input(self) -> type[BaseModel]:
        """Class of version 1 of the input, which the shape is about."""
        return self.upcasts[0].old if self.upcasts else self.input

    def decode_input(self, value: Json, version: int | None = None) -> BaseModel:
        """Read a stored input of a version (None: the present one) as the saga's input class."""
        return brought_up(self, value, self.input_version if version is None else version)

    def encode_input(self, value: BaseModel) -> tuple[Json, bytes]:
        """Return the input as JSON, and the SHA-256 of its canonical JSON.

        Raises:
            UsageError: MP340 for another class, MP342 when it cannot be stored.
        """
        if not isinstance(value, self.input):
            raise UsageError(
                "MP340",
                f"{self.title} takes {self.input.__name__}, not {type(value).__name__}. Pass its own input class.",
            )
        encoded, canonical = codec.encode_both(self.input, value, f"{self.title}: input")
        return encoded, codec.digest_of(canonical)

    def key_of(self, value: BaseModel) -> str:
        """Return the business key of an input.

        Raises:
            UsageError: MP343 when it is no text of 1 to 512 characters that can be stored.
        """
        key = self.key(value)
        problem = text_problem(key, longest=512)
        if problem:
            raise UsageError(
                "MP343", f"{self.title}: key= returned {key!r}, which {problem}. Return a short, stable text."
            )
        return key

    def summary(self) -> str:
        """Counts for people: "order v1: 7 steps, 2 undos, 2 probes"."""
        undos = sum(node.undo is not None for node in self.nodes)
        probes = sum(node.probe is not None for node in self.nodes)
        amounts = {"step": len(self.nodes), "undo": undos, "probe": probes}
        words = [f"{amount} {noun}{'' if amount == 1 else 's'}" for noun, amount in amounts.items()]
        return f"{self.title}: {', '.join(words)}"


def text_problem(value: object, *, longest: int) -> str:
    """Say what keeps a value from being a stored key (no text, empty, too long, unfit characters), or ''."""
    if not isinstance(value, str):
        return f"is no text but {type(value).__name__}"
    if not value:
        return "is empty"
    if len(value) > longest:
        return f"is longer than {longest} characters"
    if "\x00" in value:
        return "holds the character U+0000"
    if any("\ud800" <= character <= "\udfff" for character in value):
        return "holds a lone surrogate"
    return ""


def encode_result(definition: Definition, node: Node, value: Any) -> Json:
    """Return what a step returned as the JSON to store; see `result_of`."""
    return result_of(definition, node, value)[0]


def result_of(definition: Definition, node: Node, value: Any) -> tuple[Json, int]:
    """Return what a step returned as the JSON to store, and its size in bytes.

    Raises:
        UsageError: MP341 when it is not of the declared class, MP342 when it cannot be stored.
    """
    place = f"{definition.title}, step {node.name}: result"
    if node.result is not None and isinstance(value, node.result):
        encoded, canonical = codec.encode_both(node.result, value, place)
        return encoded, len(canonical)
    if node.result is None and value is None:
        return None, len(codec.canonical_json(None))
    declared = "None" if node.result is None else node.result.__name__
    raise UsageError(
        "MP341",
        f"{place} is {type(value).__name__}, but the step declares {declared}. Return what the annotation says.",
    )


def operation_key(run: UUID, step: str, iteration: str = "", *, undo: bool = False) -> str:
    """Return the idempotency key of a step in a round, or of its undo; the same for every try."""
    place = f"{run}:{step}#{iteration}" if iteration else f"{run}:{step}"
    return f"{place}:undo" if undo else place
