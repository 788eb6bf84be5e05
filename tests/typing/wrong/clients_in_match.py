"""A match lambda is pure: it has no clients."""

from datetime import timedelta

from base import Delivered, order
from milepost import Then

order.wait(
    "delivered",
    Delivered,
    match=lambda v: str(v.use(dict)),  # expect: attr-defined
    timeout=timedelta(days=1),
    on_timeout=Then.PERSON,
)
