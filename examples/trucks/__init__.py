"""A requester in Python, and a participant in another language that knows nothing of Milepost."""
