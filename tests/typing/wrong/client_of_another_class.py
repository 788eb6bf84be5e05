"""A factory provides what it is registered for."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from base import service


class Bank: ...


class Carrier: ...


@asynccontextmanager
async def connect() -> AsyncIterator[Carrier]:
    yield Carrier()


service.provide(Bank, connect)  # expect: arg-type
