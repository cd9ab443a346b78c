"""What one DAG of the platform makes and another one waits for."""

from typing import Final

from airflow.sdk import Asset

REMOTE_LOG: Final = Asset("tiering_remote_log")
