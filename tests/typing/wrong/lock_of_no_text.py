"""A lock is named by a text of the input, and what follows when it is taken is one of two words."""

from base import Place
from milepost import Saga

right = Saga("right", version=1, input=Place, key=lambda o: o.id, lock=lambda o: f"place:{o.id}")
Saga("a", version=1, input=Place, key=lambda o: o.id, lock=lambda o: len(o.id))  # expect: arg-type, return-value
Saga("b", version=1, input=Place, key=lambda o: o.id, lock=lambda o: o.name)  # expect: attr-defined
Saga("c", version=1, input=Place, key=lambda o: o.id, lock=lambda o: o.id, if_locked="wait")  # expect: arg-type
