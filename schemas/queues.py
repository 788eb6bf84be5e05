"""Numbers for single queues, as settings hold them: "reports=4,default=200"."""

from __future__ import annotations


def queue_numbers(text: str) -> dict[str, int]:
    """Read numbers by queue.

    Raises:
        ValueError: In words that go on after the variable's name.
    """
    found: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, number = (piece.strip() for piece in part.partition("="))
        if not name or not equals or not number.isascii() or not number.isdigit():
            raise ValueError(f'write a queue and a number, such as "reports=4,default=200"; {part!r} is none')
        if name in found:
            raise ValueError(f"queue {name} is named twice")
        found[name] = int(number)
    return found


def check_numbers(text: str) -> str:
    """Return the text as it is, when it can be read.

    Raises:
        ValueError: Otherwise.
    """
    queue_numbers(text)
    return text
