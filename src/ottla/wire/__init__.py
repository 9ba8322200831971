"""Kafka's bytes to messages and back. No I/O."""
