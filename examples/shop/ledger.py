"""The durable, append-only book of one company: a row for every effect that really happened there.

SQLite with synchronous=FULL: an effect is on disk before anybody is told of it, whatever is killed then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import (
    Column,
    Index,
    Integer,
    MetaData,
    StaticPool,
    String,
    Table,
    create_engine,
    event,
    exists,
    func,
    literal,
    select,
)
from sqlalchemy.dialects.sqlite import insert


@dataclass(frozen=True, slots=True)
class Effect:
    """One thing that happened at a company.

    Attributes:
        id: Its number there, such as "charge-17".
        kind: "charge", "refund", "reserve", "release", "ship", "cancel" …
        reference: What the caller named it by (idempotency key or reference).
        order_id: The order it belongs to.
        subject: For an undo, the id of what it undoes; for a reservation the goods.
        amount: Money as decimal text, '' where there is none.
    """

    id: str
    kind: str
    reference: str
    order_id: str
    subject: str = ""
    amount: str = ""


@dataclass(frozen=True, slots=True)
class Limit:
    """How many effects of one kind and subject may stand at a time.

    Attributes:
        most: So many; None for any number.
        back: Kind of the effects that take one away; their subject is its id.
    """

    most: int | None
    back: str


class LimitReached(Exception):
    """So many stand already; nothing was booked."""


class Ledger:
    """Book effects and read them back.

    Args:
        path: The file; made when missing.
        once: Kinds of which one reference is booked only once. A second booking finds the first.
    """

    def __init__(self, path: Path, *, once: Collection[str] = ()) -> None:
        self._once = frozenset(once)
        self._lock = asyncio.Lock()
        self._table = Table(
            "effect",
            MetaData(),
            Column("n", Integer, primary_key=True),
            *(
                Column(name, String, nullable=False)
                for name in ("kind", "reference", "order_id", "subject", "amount")
            ),
        )
        Index(
            "effect_once",
            self._table.c.kind,
            self._table.c.reference,
            unique=True,
            sqlite_where=self._table.c.kind.in_(sorted(self._once)),
        )
        self._engine = create_engine(
            f"sqlite:///{path}", poolclass=StaticPool, connect_args={"check_same_thread": False}
        )
        event.listen(self._engine, "connect", _durable)
        self._table.metadata.create_all(self._engine)

    async def book(
        self,
        kind: str,
        reference: str,
        order_id: str,
        *,
        subject: str = "",
        amount: str = "",
        limit: Limit | None = None,
    ) -> tuple[Effect, bool]:
        """Write an effect and wait until it is on disk.

        Returns:
            The effect, and whether it is new; False only for a kind that is booked once per reference.

        Raises:
            LimitReached: It would be one too many; counted in the transaction that books it.
        """
        row = {
            "kind": kind,
            "reference": reference,
            "order_id": order_id,
            "subject": subject,
            "amount": amount,
        }
        async with self._lock:
            return await asyncio.to_thread(self._book, row, limit)

    async def find(
        self,
        kind: str,
        *,
        reference: str | None = None,
        subject: str | None = None,
        number: str | None = None,
    ) -> list[Effect]:
        """Return the effects of a kind, oldest first.

        Args:
            reference: Only those named so by the caller.
            subject: Only those that undo this id.
            number: Only the one whose id or printed number ends in these digits, after a dash.
        """
        query = self._select(kind)
        if reference is not None:
            query = query.where(self._table.c.reference == reference)
        if subject is not None:
            query = query.where(self._table.c.subject == subject)
        if number is not None:
            digits = number.rpartition("-")[2]
            query = query.where(self._table.c.n == (int(digits) if digits.isdecimal() else 0))
        async with self._lock:
            return await asyncio.to_thread(self._read, query)

    def all(self) -> list[Effect]:
        """Return every effect, oldest first."""
        return self._read(self._select(None))

    def close(self) -> None:
        """Close the file."""
        self._engine.dispose()

    def _select(self, kind: str | None) -> Any:
        query = select(self._table).order_by(self._table.c.n)
        return query if kind is None else query.where(self._table.c.kind == kind)

    def _book(self, row: dict[str, str], limit: Limit | None) -> tuple[Effect, bool]:
        statement = insert(self._table).values(row)
        if row["kind"] in self._once:
            statement = statement.on_conflict_do_nothing()
        with self._engine.begin() as connection:
            number = connection.execute(statement.returning(self._table.c.n)).scalar()
            most = None if number is None or limit is None else limit.most
            if (
                limit
                and most is not None
                and connection.execute(self._standing(row, limit)).scalar_one() > most
            ):
                raise LimitReached(row["subject"])
        if number is not None:
            return _effect({"n": number, **row}), True
        query = self._select(row["kind"]).where(self._table.c.reference == row["reference"])
        return self._read(query)[0], False

    def _standing(self, row: dict[str, str], limit: Limit) -> Any:
        done, back = self._table, self._table.alias()
        taken = exists().where(
            back.c.kind == limit.back, back.c.subject == literal(f"{row['kind']}-").concat(done.c.n)
        )
        same = (done.c.kind == row["kind"], done.c.subject == row["subject"])
        return select(func.count()).select_from(done).where(*same, ~taken)

    def _read(self, query: Any) -> list[Effect]:
        with self._engine.connect() as connection:
            return [_effect(dict(row)) for row in connection.execute(query).mappings()]


def _effect(row: dict[str, Any]) -> Effect:
    return Effect(id=f"{row['kind']}-{row.pop('n')}", **row)


def _durable(connection: Any, _record: Any) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.close()
