"""Exchange segment metadata with the brokers' metadata topic."""
