"""The programs here are read by mypy, not run by pytest."""

collect_ignore = ["quickstart", "wrong"]
