"""Airflow's own configuration of this platform: the section `[tiering]` of airflow.cfg (`AIRFLOW__TIERING__...`).

These options concern Airflow only; everything about Kafka and remote storage is a setting of the library.

| option | default | meaning |
|---|---|---|
| copy_schedule | `*/10 * * * *` | when `tiering_copy` runs (UTC); empty: only when triggered |
| expiration_schedule | `5,35 * * * *` | when `tiering_expiration` runs (UTC); empty: only when triggered |
| expiration_approvers | unset | users who may approve plans, by commas; empty: all users whom Airflow lets answer |
| expiration_approval_hours | `24` | hours that an approval task of any DAG waits; then the plan counts as rejected |
| audit_schedule | `30 3 * * *` | when `tiering_audit` runs (UTC); empty: only when triggered |
| handover_watch_schedule | `*/10 * * * *` | when `tiering_handover_watch` runs (UTC), if brokers are set |
| ingest_schedule | `*/5 * * * *` | when `tiering_ingest` runs, if brokers are set (UTC); empty: only when triggered |
| quality_schedule | `30 2 * * *` | when `tiering_quality` runs (UTC); empty: only when triggered |
| sizes_schedule | `0 * * * *` | when `tiering_remote_log_sizes` runs (UTC) besides updates of its asset |
| api_login_file | `$AIRFLOW_HOME/tiering-api-login.json` | login that reads pool sizes, readable by its owner only |
| work_dir | `$AIRFLOW_HOME/tiering` | scratch space of Spark jobs and the packed library |
| audit_dir | `audit` in work_dir | listing and findings of the last audit; Spark's executors need access to it |
| sizes_dir | `sizes` in work_dir | result of the last size run; Spark's executors need access to it |
| spark_class_archive | unset | JVM class archive that makes spark-submit start faster |
"""

from datetime import timedelta
from pathlib import Path
from typing import Final

from airflow.configuration import get_airflow_home
from airflow.sdk.configuration import conf

from include.tiering.errors import SettingError
from include.tiering.units import without_suffix

_SECTION = "tiering"


_MOST_MAPPED: Final = 1_024
"""Airflow's default of `[core] max_map_length`."""


def require_mappable(setting: str, batches: int) -> None:
    """Check the most batches of a run before its plan is stored: Airflow fails a task that returns more.

    Raises:
        SettingError: Airflow maps a task to fewer batches.
    """
    most = conf.getint("core", "max_map_length", fallback=_MOST_MAPPED)
    if batches > most:
        raise SettingError(
            f"{setting} is {batches}, and Airflow maps a task to at most {most} batches ([core] max_map_length):"
            f" set {setting} to at most {most}, or raise max_map_length"
        )


def copy_schedule() -> str | None:
    return _option("copy_schedule", "*/10 * * * *") or None


def expiration_schedule() -> str | None:
    return _option("expiration_schedule", "5,35 * * * *") or None


def expiration_approvers() -> tuple[str, ...]:
    names = (name.strip() for name in _option("expiration_approvers").split(","))
    return tuple(name for name in names if name)


def expiration_approval_wait() -> timedelta:
    """Return how long an approval task of any DAG waits for an answer. Raises SettingError."""
    text = _option("expiration_approval_hours", "24")
    try:
        milliseconds = without_suffix(text, "milliseconds")
        wait = timedelta(hours=float(text)) if milliseconds == text else timedelta(milliseconds=int(milliseconds))
    except (ValueError, OverflowError):
        wait = timedelta()
    if wait <= timedelta():
        raise SettingError(
            f"[tiering] expiration_approval_hours is {text!r}: give a number of hours above 0, or such as 2d"
        )
    return wait


def audit_schedule() -> str | None:
    return _option("audit_schedule", "30 3 * * *") or None


def ingest_schedule() -> str | None:
    """Return the schedule; None if the option is empty, or if the library's settings name no brokers.

    The settings are read from the environment and the settings file when the DAG is parsed. Raises SettingError.
    """
    return _where_there_are_brokers("ingest_schedule", "*/5 * * * *")


def handover_watch_schedule() -> str | None:
    """Return the schedule of the watch; None under the same conditions as for `ingest_schedule`."""
    return _where_there_are_brokers("handover_watch_schedule", "*/10 * * * *")


def quality_schedule() -> str | None:
    return _option("quality_schedule", "30 2 * * *") or None


def sizes_schedule() -> str | None:
    return _option("sizes_schedule", "0 * * * *") or None


def copy_queues() -> tuple[str, ...]:
    """Return the queues in `log_dirs` of the library's settings, in their order.

    The settings are read when the DAG is parsed, as Airflow needs the queue of a task then, and only from the
    environment and the settings file. Raises SettingError.
    """
    from include.tiering.settings import load_settings

    return tuple(dict.fromkeys(log_dir.queue for log_dir in load_settings().log_dirs if log_dir.queue))


def api_base_url() -> str:
    """Return the URL of Airflow's API server from `[api] base_url`; without it, `http://localhost:8080`."""
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
    """Return the class archive; None if none is configured, or its file is missing: then jobs only start slower."""
    archive = _option("spark_class_archive")
    return Path(archive) if archive and Path(archive).is_file() else None


def _where_there_are_brokers(name: str, default: str) -> str | None:
    from include.tiering.settings import load_settings

    if load_settings().cluster.bootstrap_servers is None:
        return None
    return _option(name, default) or None


def _option(name: str, default: str = "") -> str:
    return str(conf.get(_SECTION, name, fallback=default)).strip()
