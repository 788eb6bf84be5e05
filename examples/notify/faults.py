"""What goes wrong with which notification: by its number, so that every run meets the same faults.

Twenty in a row hold every fault at least once.
"""

from __future__ import annotations

from enum import StrEnum


class SendFault(StrEnum):
    """How the provider treats the first call for a notification."""

    NONE = "none"
    REFUSES = "refuses"
    """422, nothing sent."""
    LATE = "late"
    """Sends, and answers after the service has given up waiting."""
    SILENT = "silent"
    """Sends, and drops the connection instead of answering."""
    LOST = "lost"
    """Drops the connection without having sent anything."""


class HookFault(StrEnum):
    """How the provider reports what became of a message."""

    NONE = "none"
    NEVER = "never"
    """Delivers and says nothing: it has to be asked."""
    EARLY = "early"
    """Reports before it answers the call that sent it."""
    LATE = "late"
    """Reports after the service has asked."""
    TWICE = "twice"
    """Reports under one id, twice."""
    AGAIN = "again"
    """Reports twice, under two ids."""
    FORGED = "forged"
    """Before the real report a stranger sends one with a signature of his own."""


_SEND = {3: SendFault.REFUSES, 5: SendFault.LATE, 7: SendFault.SILENT, 15: SendFault.LATE, 19: SendFault.LOST}
_HOOK = {
    1: HookFault.NEVER,
    2: HookFault.EARLY,
    4: HookFault.TWICE,
    7: HookFault.EARLY,
    8: HookFault.FORGED,
    9: HookFault.LATE,
    14: HookFault.AGAIN,
    15: HookFault.TWICE,
}
#: Numbers whose message comes back, because nobody has that address.
_BOUNCES = frozenset({6, 12})


def number_of(notification: str) -> int:
    """Return its number: the digits its id ends with, 0 without any."""
    digits = notification[len(notification.rstrip("0123456789")) :]
    return int(digits or 0)


def send_fault(notification: str) -> SendFault:
    """Return how the provider treats its first call."""
    return _SEND.get(number_of(notification) % 20, SendFault.NONE)


def hook_fault(notification: str) -> HookFault:
    """Return how the provider reports its outcome."""
    return _HOOK.get(number_of(notification) % 20, HookFault.NONE)


def bounces(notification: str) -> bool:
    """Tell whether its message cannot be delivered."""
    return number_of(notification) % 20 in _BOUNCES
