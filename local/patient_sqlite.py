"""Lock timeout of Airflow's processes for its SQLite database; airflow.cfg names this module."""

CONNECT_ARGS = {"timeout": 60.0}
"""Timeout in seconds. The driver's default of 5 s is too short if a busy machine suspends a process for a moment."""
