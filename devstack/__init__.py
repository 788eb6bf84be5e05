"""Local PostgreSQL, Kafka and Jaeger for demo and tests."""
