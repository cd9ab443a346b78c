"""Who is told when a run fails or misses its deadline: notifiers of Airflow, all configured in `[tiering] notifiers`.

The option is a JSON list; each entry has the `class` of a notifier and its arguments, `kwargs`:

    [{"class": "airflow.providers.smtp.notifications.smtp.SmtpNotifier",
      "kwargs": {"smtp_conn_id": "smtp_default", "from_email": "airflow@example.com", "to": "oncall@example.com",
                 "subject": "{{ tiering_subject }}", "html_content": "{{ tiering_message }}"}}]

Passwords belong in the Airflow connection that a notifier names. Classes are imported when there is something to send,
not when a DAG is parsed, and the arguments are in no DAG. Notifiers get two more variables for their templates:
`tiering_subject`, and `tiering_message`, which has the error or its kind, and the address of the run.

A wrong option stops no run, as who is told is no part of the work: the DAG processor logs it, the task `ready` of each
run warns of it, also of a class that cannot be imported, and `tiering_handover_watch` fails.

A failed run is told once, whatever number of its tasks failed. `tiering_handover_watch` has one task; its message
contains the error, which names each topic and the command to call. Every later run sends the message again, until no
handover stands still.

A deadline counts from the time when the run was queued, so it also tells of runs that wait: for readiness, for slots of
a pool, for cores of Spark, or for a person. It ends nothing; `[tiering] task_timeout` does.
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from importlib import import_module
from inspect import signature
from typing import Any, Final
from urllib.parse import quote

from airflow.sdk import BaseNotifier, DagRunState
from airflow.sdk.definitions.callback import AsyncCallback
from airflow.sdk.definitions.deadline import DeadlineAlert, DeadlineReference

from include.tiering.errors import SettingError
from plugins.tiering_airflow import configuration

DEADLINES: Final[Mapping[str, timedelta]] = {
    "tiering_audit": timedelta(hours=12),
    "tiering_configs": timedelta(hours=1),
    "tiering_copy": timedelta(hours=6),
    "tiering_expiration": timedelta(hours=6),
    "tiering_handover": timedelta(days=7),
    "tiering_handover_watch": timedelta(hours=1),
    "tiering_ingest": timedelta(hours=2),
    "tiering_quality": timedelta(hours=12),
    "tiering_recovery_drill": timedelta(hours=12),
    "tiering_remote_log_sizes": timedelta(hours=6),
    "tiering_restore": timedelta(hours=24),
}
"""The deadline of each DAG, without the time that a person has for an approval."""
_ASKS_A_PERSON: Final = frozenset({"tiering_audit", "tiering_expiration", "tiering_handover"})
_LONGEST_CAUSE: Final = 2_000
_ENDED: Final = frozenset({DagRunState.FAILED, DagRunState.SUCCESS})

_log = logging.getLogger(__name__)


def dag_arguments(dag_id: str) -> dict[str, Any]:
    """Return the arguments of a DAG that tell of its failed runs and missed deadlines; what is wrong, is logged."""
    for problem in _wrong_options():
        _log.error("%s", problem)
    if not _has_notifiers():
        # Without notifiers there is nobody to tell. `dag.test` of Airflow 3.3 cannot run a DAG that has a deadline.
        return {}
    deadline = DeadlineAlert(
        reference=DeadlineReference.DAGRUN_QUEUED_AT,
        interval=_interval(dag_id),
        callback=AsyncCallback(deadline_missed),
    )
    return {"deadline": deadline, **_on_failure()}


def _interval(dag_id: str) -> timedelta:
    with suppress(SettingError):
        if dag_id in (configured := _deadlines()):
            return configured[dag_id]
    return DEADLINES[dag_id] + (configuration.expiration_approval_wait() if dag_id in _ASKS_A_PERSON else timedelta())


def _deadlines() -> Mapping[str, timedelta]:
    configured = configuration.deadlines()
    if unknown := sorted(configured.keys() - DEADLINES.keys()):
        raise SettingError(f"[tiering] deadlines names {unknown[0]}, which is none of {', '.join(DEADLINES)}")
    return configured


def _has_notifiers() -> bool:
    """Return whether there are notifiers. If the option is wrong there are: their call says what is wrong."""
    try:
        return bool(configuration.notifiers())
    except SettingError:
        return True


def _wrong_options() -> Iterator[str]:
    for read in (configuration.notifiers, _deadlines):
        try:
            read()
        except SettingError as error:
            yield str(error)


def problems() -> tuple[str, ...]:
    """Return why failed runs or missed deadlines would not be told, one line each; no line has arguments' values.

    The classes of the notifiers are imported, but no notifier is made.
    """
    found = list(_wrong_options())
    with suppress(SettingError):
        for number, notifier in enumerate(configuration.notifiers(), 1):
            if (problem := _problem_of(notifier)) is not None:
                found.append(f"entry {number} of [tiering] notifiers, {notifier.path}: {problem}")
    return tuple(found)


def _problem_of(notifier: configuration.NotifierSetting) -> str | None:
    try:
        kind = _class_of(notifier)
        if not (isinstance(kind, type) and issubclass(kind, BaseNotifier)):
            return "is no notifier of Airflow"
        signature(kind).bind(**notifier.arguments)
    # A module may raise anything when it is imported.
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}"
    return None


def watch_arguments(dag_id: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arguments of a DAG with one task, and of this task, whose error is part of the message."""
    arguments = dag_arguments(dag_id)
    arguments.pop("on_failure_callback", None)
    return arguments, _on_failure()


def _on_failure() -> dict[str, Any]:
    return {"on_failure_callback": run_failed} if _has_notifiers() else {}


def run_failed(context: Mapping[str, Any]) -> None:
    """Tell all notifiers that a run failed. Airflow calls this with the context of the run, or of its one task."""
    cause = str(context.get("exception") or context.get("reason") or "the log of its tasks says why")
    _tell(context, "failed", cause[:_LONGEST_CAUSE])


async def deadline_missed(context: Mapping[str, Any]) -> None:
    """Tell all notifiers that a run has not ended before its deadline. Airflow calls this in the triggerer."""
    run = context.get("dag_run")
    # Airflow drops the deadline of a run that succeeds, but keeps that of a run that failed or that a person marked.
    if isinstance(run, Mapping) and run.get("state") in _ENDED:
        _log.info("the run %s of %s has ended (%s)", run["dag_run_id"], run["dag_id"], run["state"])
        return
    # Notifiers may block, and some have no asynchronous form.
    await asyncio.to_thread(_tell, context, "missed its deadline", "it has not ended: look at what it waits for")


def _tell(context: Mapping[str, Any], event: str, cause: str) -> None:
    """Tell each notifier, also after one that failed. Raises ExceptionGroup: not all were told."""
    run = context.get("dag_run")
    # In the context of a deadline the run is an answer of Airflow's API, where its id has another name.
    if isinstance(run, Mapping):
        dag_id, run_id = run["dag_id"], run["dag_run_id"]
    elif run is not None:
        dag_id, run_id = run.dag_id, run.run_id
    else:
        dag_id, run_id = getattr(context.get("dag"), "dag_id", "?"), context.get("run_id", "?")
    subject = f"{dag_id} {event}"
    address = f"{configuration.api_base_url().rstrip('/')}/dags/{quote(dag_id)}/runs/{quote(run_id)}"
    words = {"tiering_subject": subject, "tiering_message": f"{subject}: {cause} ({address})"}
    _log.error("%s", words["tiering_message"])
    failed: list[Exception] = []
    for notifier in configuration.notifiers():
        try:
            _class_of(notifier)(**notifier.arguments)({**context, **words})
        # Whatever a notifier raises, the others have to be told.
        except Exception as error:  # noqa: BLE001
            _log.exception("Notifier %s has told nobody", notifier.path)
            failed.append(error)
    if failed:
        raise ExceptionGroup("not all notifiers were told", failed)


def _class_of(notifier: configuration.NotifierSetting) -> Any:
    module, _, name = notifier.path.rpartition(".")
    return getattr(import_module(module), name)
