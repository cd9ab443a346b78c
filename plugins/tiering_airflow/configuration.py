"""Airflow's own configuration of this platform: the section `[tiering]` of airflow.cfg (`AIRFLOW__TIERING__...`).

What is said here concerns Airflow alone; everything about Kafka and remote storage is a setting of the library.

| option | default | meaning |
|---|---|---|
| copy_schedule | `*/10 * * * *` | when `tiering_copy` runs; empty: only when asked |
| expiration_schedule | `5,35 * * * *` | when `tiering_expiration` runs; empty: only when asked |
| expiration_approvers | unset | user ids with commas: who may approve; empty: whoever may answer in this Airflow |
| expiration_approval_hours | `24` | how long an expiration waits for an approval; then it is rejected |
| audit_schedule | `30 3 * * *` | when `tiering_audit` runs (UTC); empty: only when asked |
| handover_watch_schedule | `*/10 * * * *` | when `tiering_handover_watch` runs, if there are brokers as above |
| ingest_schedule | `*/5 * * * *` | when `tiering_ingest` runs where brokers are set (UTC); empty: only when asked |
| quality_schedule | `30 2 * * *` | when `tiering_quality` runs (UTC); empty: only when asked |
| sizes_schedule | `0 * * * *` | when `tiering_remote_log_sizes` runs beside copies (UTC); empty: after copies alone |
| api_login_file | `$AIRFLOW_HOME/tiering-api-login.json` | login that reads pool sizes, private to its owner |
| work_dir | `$AIRFLOW_HOME/tiering` | scratch space of Spark jobs and the packed library |
| audit_dir | `audit` in work_dir | what the last audit listed and found; Spark's executors must see it too |
| sizes_dir | `sizes` in work_dir | result of the last size run; Spark's executors must see it too |
| spark_class_archive | unset | JVM class archive that makes spark-submit start faster |
"""

from datetime import timedelta
from pathlib import Path

from airflow.configuration import get_airflow_home
from airflow.sdk.configuration import conf

from include.tiering.errors import SettingError

_SECTION = "tiering"


def copy_schedule() -> str | None:
    return _option("copy_schedule", "*/10 * * * *") or None


def expiration_schedule() -> str | None:
    return _option("expiration_schedule", "5,35 * * * *") or None


def expiration_approvers() -> tuple[str, ...]:
    names = (name.strip() for name in _option("expiration_approvers").split(","))
    return tuple(name for name in names if name)


def expiration_approval_wait() -> timedelta:
    """Raises SettingError."""
    text = _option("expiration_approval_hours", "24")
    try:
        wait = timedelta(hours=float(text))
    except (ValueError, OverflowError):
        wait = timedelta()
    if wait <= timedelta():
        raise SettingError(f"[tiering] expiration_approval_hours is {text!r}: give a number of hours above 0")
    return wait


def audit_schedule() -> str | None:
    return _option("audit_schedule", "30 3 * * *") or None


def ingest_schedule() -> str | None:
    """None where the library's settings name no brokers, too: read when the DAG is parsed, from the environment and the
    settings file. Raises SettingError."""
    return _where_there_are_brokers("ingest_schedule", "*/5 * * * *")


def handover_watch_schedule() -> str | None:
    """As `ingest_schedule`."""
    return _where_there_are_brokers("handover_watch_schedule", "*/10 * * * *")


def quality_schedule() -> str | None:
    return _option("quality_schedule", "30 2 * * *") or None


def sizes_schedule() -> str | None:
    return _option("sizes_schedule", "0 * * * *") or None


def copy_queues() -> tuple[str, ...]:
    """Queues that `log_dirs` of the library's settings name, in their order.

    Read when the DAG is parsed, since Airflow wants a task's queue then: from the environment and the settings file,
    nothing else. Raises SettingError.
    """
    from include.tiering.settings import load_settings

    return tuple(dict.fromkeys(log_dir.queue for log_dir in load_settings().log_dirs if log_dir.queue))


def api_base_url() -> str:
    """Where Airflow's own tasks look for the API server, with Airflow's own default."""
    return str(conf.get("api", "base_url", fallback=None) or "http://localhost:8080")


def api_login_file() -> Path:
    return Path(_option("api_login_file") or Path(get_airflow_home(), "tiering-api-login.json"))


def work_dir() -> Path:
    return Path(_option("work_dir") or Path(get_airflow_home(), "tiering"))


def audit_dir() -> Path:
    return Path(_option("audit_dir") or work_dir() / "audit")


def sizes_dir() -> Path:
    return Path(_option("sizes_dir") or work_dir() / "sizes")


def spark_class_archive() -> Path | None:
    """None unless one is configured and exists: without it a job starts slower, no more."""
    archive = _option("spark_class_archive")
    return Path(archive) if archive and Path(archive).is_file() else None


def _where_there_are_brokers(name: str, default: str) -> str | None:
    from include.tiering.settings import load_settings

    if load_settings().cluster.bootstrap_servers is None:
        return None
    return _option(name, default) or None


def _option(name: str, default: str = "") -> str:
    return str(conf.get(_SECTION, name, fallback=default)).strip()
