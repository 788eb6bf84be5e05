"""Publishing, and the relay that moves the outbox to Kafka."""
