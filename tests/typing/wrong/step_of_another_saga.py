"""A step of a saga with another input does not fit into this flow."""

from base import charge, elsewhere, order, ship

order.flow(charge, ship, elsewhere)  # expect: arg-type
