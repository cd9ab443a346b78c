"""Kafka Tiering Operations: bulk work of Kafka's tiered storage, off the brokers."""

__version__ = "0.1.0"
