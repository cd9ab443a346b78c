"""The segment source that reads from leaders by Kafka's Fetch API."""
