"""What the demo shows: progress while it runs, then tables for people."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from .traffic import Kill
from .verdict import BOOKS, Verdict

#: Findings shown one by one; the file has all of them.
SHOWN = 40


def progress_bar(console: Console) -> Progress:
    """Return a bar with a count and the elapsed time."""
    return Progress(
        TextColumn("{task.description:<22}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    )


def last_line(verdict: Verdict, kills: int) -> str:
    """Return the line that sums the demo up."""
    lost, duplicated = verdict.count("lost"), verdict.count("duplicated")
    return (
        f"demo {'ok' if not faults(verdict, kills) else 'failed'}: {verdict.orders} orders, "
        f"{verdict.completed} completed, {verdict.compensated} compensated, {verdict.timed_out} timed out, "
        f"{kills} kills, {lost} lost, {duplicated} duplicated"
    )


def faults(verdict: Verdict, kills: int) -> list[str]:
    """Return everything that keeps the demo from being ok, in words."""
    found = [f"{item.kind}: {item.company}, {item.order_id}: {item.text}" for item in verdict.findings]
    ended = verdict.completed + verdict.compensated + verdict.timed_out
    if ended != verdict.orders:
        found.append(f"{verdict.orders - ended} of {verdict.orders} orders neither completed nor compensated")
    if kills != 3:
        found.append(f"{kills} kills instead of 3")
    for count, what in (
        (verdict.completed, "completed"),
        (verdict.compensated, "compensated for a refusal"),
        (verdict.timed_out, "timed out waiting for its delivery"),
    ):
        if not count:
            found.append(f"no order {what}, so the demo shows nothing about that")
    return found


def show(console: Console, verdict: Verdict, kills: Sequence[Kill]) -> None:
    """Print the tables, and what is wrong, if anything is."""
    console.print(_ledgers(verdict))
    console.print(_outcomes(verdict))
    for kill in kills:
        console.print(f"  SIGKILL {kill.process}, pid {kill.pid}, after {kill.placed} orders: {kill.work}")
    wrong = faults(verdict, len(kills))
    for line in wrong[:SHOWN]:
        console.print(f"  {line}", style="bold red", markup=False)
    if len(wrong) > SHOWN:
        console.print(f"  … and {len(wrong) - SHOWN} more, see the file", style="bold red")


def _ledgers(verdict: Verdict) -> Table:
    table = Table(title="what really happened", box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for head, right in (
        ("book of", False),
        ("effect", False),
        ("rows", True),
        ("lost", True),
        ("duplicated", True),
    ):
        table.add_column(head, justify="right" if right else "left")
    for kind, company in BOOKS.items():
        wrong = [item for item in verdict.findings if item.company == company and item.text.startswith(kind)]
        lost = sum(item.kind == "lost" for item in wrong)
        table.add_row(
            company, kind, str(verdict.effects.get(kind, 0)), _count(lost), _count(len(wrong) - lost)
        )
    return table


def _outcomes(verdict: Verdict) -> Table:
    table = Table(title="how the orders ended", box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    table.add_column("outcome")
    table.add_column("orders", justify="right")
    table.add_column("what it takes to count")
    rows = (
        ("completed", verdict.completed, "reserved, charged, shipped, delivered, booked, closed: once each"),
        (
            "compensated",
            verdict.compensated,
            "refused by the bank or the carrier; all that was done is undone, once",
        ),
        ("timed out", verdict.timed_out, "no delivery in time; released, refunded and called back, once"),
    )
    for name, count, words in rows:
        table.add_row(name, str(count), words)
    return table


def _count(number: int) -> str:
    return f"[bold red]{number}[/]" if number else "[dim]0[/]"
