"""Segments in the log directories of running brokers, read without disturbing the brokers."""
