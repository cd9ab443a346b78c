"""What comes from brokers: log directories, cluster, protocol, metadata topic."""
