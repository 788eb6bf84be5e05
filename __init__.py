"""Milepost: durable business processes over PostgreSQL and Apache Kafka."""
