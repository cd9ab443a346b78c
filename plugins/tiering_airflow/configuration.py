"""Airflow's own configuration of this platform: the section `[tiering]` of airflow.cfg (`AIRFLOW__TIERING__...`).

These options concern Airflow only; everything about Kafka and remote storage is a setting of the library.

| option | default | meaning |
|---|---|---|
| copy_schedule | `*/10 * * * *` | when `tiering_copy` runs; empty: only when triggered |
| expiration_schedule | `5,35 * * * *` | when `tiering_expiration` runs; empty: only when triggered |
| expiration_approvers | unset | users who may approve plans, by commas; empty: all users whom Airflow lets answer |
| expiration_approval_hours | `24` | hours that an approval task of any DAG waits; then the plan counts as rejected |
| audit_schedule | `30 3 * * *` | when `tiering_audit` runs; empty: only when triggered |
| drill_schedule | `0 5 * * 6` | when `tiering_recovery_drill` runs; empty: only when triggered |
| handover_watch_schedule | `*/10 * * * *` | when `tiering_handover_watch` runs; see `ingest_schedule` |
| ingest_schedule | `*/5 * * * *` | when `tiering_ingest` runs; empty, or without brokers: only when triggered |
| quality_schedule | `30 2 * * *` | when `tiering_quality` runs; empty: only when triggered |
| sizes_schedule | `0 * * * *` | when `tiering_remote_log_sizes` runs; also when `tiering_remote_log` is updated |
| api_login_file | `$AIRFLOW_HOME/tiering-api-login.json` | login that reads pool sizes, readable by its owner only |
| work_dir | `$AIRFLOW_HOME/tiering` | scratch space of Spark jobs and the packed library |
| audit_dir | `audit` in work_dir | findings of the last audit; only the host of the task needs access to it |
| sizes_dir | `sizes` in work_dir | result of the last size run; only the host of the task needs access to it |
| audit_ranges | `8` | ranges in which `tiering_audit` reads segments, groups in which it writes findings |
| audit_parts | `16` | parts in which `tiering_audit` lists the store; a part, range or group is a task of Spark |
| sizes_ranges | `8` | ranges of segments, and parts of the listing, of `tiering_remote_log_sizes` |
| timezone | `UTC` | the time zone of all schedules, such as `Europe/Berlin` |
| task_timeout | `24h` | a task that runs longer fails and ends its Spark job; 7x for `copy`, `gate` of a handover |
| deadlines | unset | `DAG=DURATION` by commas: of each DAG named, in place of that in `alerts.DEADLINES` |
| notifiers | unset | who is told of failed runs and missed deadlines: JSON, see `alerts` |
| spark_class_archive | unset | JVM class archive that makes spark-submit start faster |
"""

import json
from collections.abc import Mapping
from configparser import InterpolationError
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo

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


class NotifierSetting(NamedTuple):
    """A notifier of Airflow: the dotted name of its class, and its arguments."""

    path: str
    arguments: Mapping[str, Any]


def notifiers() -> tuple[NotifierSetting, ...]:
    """Return the notifiers, without importing them. Raises SettingError; its text repeats none of the values."""
    text = _option("notifiers")
    if not text:
        return ()
    form = 'give a JSON list such as [{"class": "airflow.providers.smtp.notifications.smtp.SmtpNotifier"}]'
    try:
        entries = json.loads(text)
    except ValueError as error:
        raise SettingError(f"[tiering] notifiers is no JSON: {form}") from error
    if not isinstance(entries, list):
        raise SettingError(f"[tiering] notifiers is no list: {form}")
    found = []
    for number, entry in enumerate(entries, 1):
        known = isinstance(entry, dict) and entry.keys() <= {"class", "kwargs"}
        path = entry.get("class") if known else None
        arguments = entry.get("kwargs", {}) if known else None
        if not isinstance(path, str) or "." not in path or not isinstance(arguments, dict):
            raise SettingError(f"entry {number} of [tiering] notifiers has no class, or other members: {form}")
        found.append(NotifierSetting(path, arguments))
    return tuple(found)


def deadlines() -> Mapping[str, timedelta]:
    """Return the deadlines that are configured, by id of the DAG. Raises SettingError if one cannot be parsed."""
    found = {}
    for entry in filter(None, (part.strip() for part in _option("deadlines").split(","))):
        dag_id, separator, duration = (part.strip() for part in entry.partition("="))
        if not separator:
            raise SettingError(f"[tiering] deadlines has {entry!r}: give DAG=DURATION, such as tiering_copy=6h")
        found[dag_id] = _duration(f"the deadline of {dag_id} in [tiering] deadlines", duration)
    return found


def task_timeout() -> timedelta:
    """Return how long a task may run; waiting in the triggerer or for a person does not count.

    Raises:
        SettingError: the option is no duration above 0.
    """
    return _duration("[tiering] task_timeout", _option("task_timeout", "24h"))


def timezone() -> str:
    """Return the name of the time zone of the schedules. Raises SettingError if there is no such time zone."""
    name = _option("timezone", "UTC") or "UTC"
    _zone(name)
    return name


def start_date() -> datetime:
    """Return the start date of every DAG: Airflow reads the time zone of a DAG's schedule from it."""
    return datetime(2025, 1, 1, tzinfo=_zone(timezone()))


def copy_schedule() -> str | None:
    return _option("copy_schedule", "*/10 * * * *") or None


def expiration_schedule() -> str | None:
    return _option("expiration_schedule", "5,35 * * * *") or None


def expiration_approvers() -> tuple[str, ...]:
    names = (name.strip() for name in _option("expiration_approvers").split(","))
    return tuple(name for name in names if name)


def expiration_approval_wait() -> timedelta:
    """Return how long an approval task of any DAG waits for an answer. Raises SettingError unless it is above 0."""
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

    The settings are read from the environment and the settings file when the DAG is parsed.

    Raises:
        SettingError: the settings cannot be read, or are not accepted.
    """
    return _where_there_are_brokers("ingest_schedule", "*/5 * * * *")


def handover_watch_schedule() -> str | None:
    """Return the schedule of the watch; None under the same conditions as for `ingest_schedule`."""
    return _where_there_are_brokers("handover_watch_schedule", "*/10 * * * *")


def quality_schedule() -> str | None:
    return _option("quality_schedule", "30 2 * * *") or None


def drill_schedule() -> str | None:
    return _option("drill_schedule", "0 5 * * 6") or None


def sizes_schedule() -> str | None:
    return _option("sizes_schedule", "0 * * * *") or None


def copy_queues() -> tuple[str, ...]:
    """Return the queues in `log_dirs` of the library's settings, in their order.

    The settings are read when the DAG is parsed, as Airflow needs the queue of a task then, and only from the
    environment and the settings file. Raises SettingError if they cannot be read, or are not accepted.
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


def audit_ranges() -> int:
    return _number("audit_ranges", 8)


def audit_parts() -> int:
    return _number("audit_parts", 16)


def sizes_ranges() -> int:
    return _number("sizes_ranges", 8)


def spark_class_archive() -> Path | None:
    """Return the class archive; None if none is configured, or its file is missing: then jobs only start slower."""
    archive = _option("spark_class_archive")
    return Path(archive) if archive and Path(archive).is_file() else None


def _zone(name: str) -> tzinfo:
    # A file is read for every other zone.
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError) as error:
        raise SettingError(f"[tiering] timezone is {name!r}: give a name such as Europe/Berlin, or UTC") from error


def _duration(name: str, text: str) -> timedelta:
    try:
        found = timedelta(milliseconds=int(without_suffix(text, "milliseconds"))) if not text.isdigit() else timedelta()
    except (ValueError, OverflowError):
        found = timedelta()
    if found <= timedelta():
        raise SettingError(f"{name} is {text!r}: give a duration above 0 with its unit, such as 90m, 6h or 2d")
    return found


def _number(name: str, default: int) -> int:
    """Return an option that must be a number of 1 or more. Raises SettingError if it is not."""
    text = _option(name, str(default)) or str(default)
    if not (text.isascii() and text.isdigit() and int(text) >= 1):
        raise SettingError(f"[tiering] {name} is {text!r}: give a number of 1 or more")
    return int(text)


def _where_there_are_brokers(name: str, default: str) -> str | None:
    from include.tiering.settings import load_settings

    if load_settings().cluster.bootstrap_servers is None:
        return None
    return _option(name, default) or None


def _option(name: str, default: str = "") -> str:
    """Return the text of an option. Raises SettingError; its text does not repeat the value."""
    try:
        return str(conf.get(_SECTION, name, fallback=default)).strip()
    except InterpolationError:
        raise SettingError(
            f"[tiering] {name} has a % that airflow.cfg does not allow: write %% there for each %, or set"
            f" AIRFLOW__TIERING__{name.upper()}, where a % is only one"
        ) from None
