"""Notifications through a provider that neither dedupes nor always answers: each is sent once."""
