"""How long Airflow's processes wait for each other's writes to its SQLite database; airflow.cfg names this module."""

CONNECT_ARGS = {"timeout": 60.0}
"""Seconds. The driver's own 5 are over when a process stands still for a moment on a busy machine."""
