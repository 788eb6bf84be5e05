"""The pure saga engine: definitions, state machine, policies, drawing. No clock, no database, no broker."""

from .context import Context, RunRef, View
from .definition import Definition, encode_result, operation_key
from .nodes import Node, Step, Undo, Wait
from .registry import Definitions
from .saga import Saga

__all__ = [
    "Context",
    "Definition",
    "Definitions",
    "Node",
    "RunRef",
    "Saga",
    "Step",
    "Undo",
    "View",
    "Wait",
    "encode_result",
    "operation_key",
]
