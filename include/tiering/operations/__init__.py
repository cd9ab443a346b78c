"""Set up a deployment, check and diagnose it, show its status, and change its brokers' configs or its store's owner."""
