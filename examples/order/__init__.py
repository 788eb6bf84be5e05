"""An order in full: stock, payment, packing, delivery, refunds that need a person, the last word to the customer."""
