"""These tests share a database per module."""

from tests.support.swept import database_url, kept_database

__all__ = ["database_url", "kept_database"]
