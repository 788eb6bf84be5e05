"""Only an Event can be awaited."""

from datetime import timedelta

from base import Charge, order
from milepost import Then

order.wait(  # expect: type-var
    "paid",
    Charge,
    match=lambda v: v.input.id,
    timeout=timedelta(days=1),
    on_timeout=Then.PERSON,
)
