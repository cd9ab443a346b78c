"""Kafka Tiering Operations: bulk work of Kafka's tiered storage, off the brokers.

docs/architecture.md says what each package holds, and explains the words that have a meaning of their own here.
"""

__version__ = "0.1.0"
