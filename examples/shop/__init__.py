"""A shop with a bank, a warehouse and a carrier: what Milepost is for, in one example that runs."""
