"""Nothing waits for ever by accident."""

from base import Delivered, order

order.wait("delivered", Delivered, match=lambda v: v.input.id)  # expect: call-arg, call-arg
