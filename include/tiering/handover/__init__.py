"""Hand topics over to their brokers."""
