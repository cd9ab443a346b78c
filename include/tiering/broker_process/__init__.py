"""A throw-away Kafka broker: its jars, its process, and the sample of a topic in its log directory."""
