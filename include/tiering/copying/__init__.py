"""Copy rolled segments into the remote store."""
