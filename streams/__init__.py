"""Kafka and PostgreSQL plumbing: brokers, readers, transactions, tracing, lifecycle."""
