"""A tombstone deletes what a key held, so it has one; and it is of an event."""

from base import Delivered, Place
from milepost import Tombstone

Tombstone(Delivered, key="p")
Tombstone(Delivered)  # expect: call-arg
Tombstone(Delivered, key=None)  # expect: arg-type
Tombstone(Place, key="p")  # expect: arg-type
