"""Nodes of one saga are put together, a choice is a question, and a loop has a bound."""

from base import charge, elsewhere, order, ship
from milepost import all_of, loop, when

all_of(charge, elsewhere)  # expect: misc
when(lambda v: v.result(charge).id, ship)  # expect: arg-type, return-value
when(True, ship)  # expect: arg-type
loop(charge, until=lambda v: True)  # expect: call-arg
order.flow(all_of(elsewhere))  # expect: arg-type
