"""Lock timeout of Airflow's processes for its SQLite database; airflow.cfg names this module."""

CONNECT_ARGS = {"timeout": 60.0}
"""Seconds. The driver's default of 5 is too short if a process is suspended for a moment on a busy machine."""
