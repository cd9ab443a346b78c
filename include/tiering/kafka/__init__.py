"""What comes from brokers: log directories, the logs of leaders, cluster, protocol, metadata topic."""
