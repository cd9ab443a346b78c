"""Start DAG runs through Airflow's REST API and wait for them."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar
from uuid import uuid4

from include.tiering.configs.airflow_api import AirflowApi
from local.platform import PlatformError
from plugins.tiering_airflow.errors import AirflowApiError, AirflowApiUnavailableError

_T = TypeVar("_T")
_POLL_SECONDS: Final = 1.0
_TRIGGER_SECONDS: Final = 180.0
_ENDED: Final = frozenset({"success", "failed"})


@dataclass(frozen=True, slots=True)
class DagRun:
    """One run that has ended."""

    dag_id: str
    run_id: str
    state: str


def wait_for_dag(api: AirflowApi, dag_id: str, *, seconds: float) -> None:
    """Wait until the dag-processor has parsed the DAG. Raises PlatformError if it has not after `seconds`."""

    for _ in _ticks(seconds):
        if _asked(api.get, f"/dags/{dag_id}") is not None:
            return
    raise PlatformError(f"Airflow has not parsed the DAG {dag_id} after {seconds:.0f} s")


def trigger(
    api: AirflowApi,
    dag_id: str,
    conf: dict[str, Any],
    *,
    seconds: float = _TRIGGER_SECONDS,
    on_wait: Callable[[str], None] = lambda _: None,
) -> str:
    """Trigger a run; return its id. While Airflow does not answer, ask for the same run again, and tell `on_wait`.

    Raises:
        PlatformError: Airflow has not answered in time.
        AirflowApiError: Airflow refuses the run.
    """
    run_id, last = f"local__{uuid4()}", "no attempt was made"
    body = {"logical_date": None, "conf": conf, "dag_run_id": run_id}
    for attempt, _ in enumerate(_ticks(seconds)):
        try:
            return str(api.post(f"/dags/{dag_id}/dagRuns", body)["dag_run_id"])
        except AirflowApiError as error:
            # The answer of an earlier attempt may be lost, although the run was created.
            is_unanswered = isinstance(error, AirflowApiUnavailableError)
            if (is_unanswered or attempt) and _asked(_run, api, dag_id, run_id) is not None:
                return run_id
            if not is_unanswered:
                raise
            last = str(error)
            on_wait(f"{dag_id} is not triggered yet: {last}")
    raise PlatformError(f"{dag_id} could not be triggered within {seconds:.0f} s: {last}")


def wait_for_run(
    api: AirflowApi, dag_id: str, run_id: str | None, *, seconds: float, on_change: Callable[[str], None]
) -> DagRun:
    """Wait until the run has ended (without `run_id`: the newest run). `on_change` gets changes of its tasks' states.

    Raises:
        PlatformError: there is no such run, or it has not ended in time.
    """
    picture = "no run yet"
    for _ in _ticks(seconds):
        run = _asked(_run, api, dag_id, run_id)
        if run is None:
            continue
        seen = _asked(_picture, api, dag_id, run["dag_run_id"])
        if seen is not None and seen != picture:
            picture = seen
            on_change(picture)
        if run["state"] in _ENDED:
            return DagRun(dag_id, run["dag_run_id"], run["state"])
    raise PlatformError(f"{dag_id} has not ended after {seconds:.0f} s: {picture}")


def errors_of(logs: Path, run: DagRun) -> Iterator[str]:
    """Yield the errors that the tasks of a run logged, one line each, `task: message: exception and its text`."""
    for file in sorted((logs / f"dag_id={run.dag_id}" / f"run_id={run.run_id}").rglob("attempt=*.log")):
        for line in file.read_text(errors="replace").splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if record.get("level") in ("error", "critical"):
                details = record.get("error_detail") or [{}]
                what = f"{details[0].get('exc_type', '')} {details[0].get('exc_value', '')}".strip()
                yield f"{file.parent.name.removeprefix('task_id=')}: {record.get('event')}: {what}"


def _run(api: AirflowApi, dag_id: str, run_id: str | None) -> dict[str, Any] | None:
    if run_id is not None:
        return dict(api.get(f"/dags/{dag_id}/dagRuns/{run_id}"))
    newest = api.get(f"/dags/{dag_id}/dagRuns", order_by="-run_after", limit="1")["dag_runs"]
    return dict(newest[0]) if newest else None


def _picture(api: AirflowApi, dag_id: str, run_id: str) -> str:
    """Return the states of a run's tasks, such as `ready success, copy running 2 queued`, in the API's order.

    In this text one instance of the task `copy` is running, and two are queued. A task is left out while no instance of
    it has a state.
    """
    counts: dict[str, dict[str, int]] = {}
    instances = api.get(f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances")["task_instances"]
    for instance in instances:
        of_task = counts.setdefault(instance["task_id"], {})
        state = instance["state"] or "waiting"
        of_task[state] = of_task.get(state, 0) + 1
    begun = {task: states for task, states in counts.items() if set(states) != {"waiting"}}
    return ", ".join(f"{task} {_words(states)}" for task, states in begun.items()) or "queued"


def _words(states: dict[str, int]) -> str:
    return " ".join(state if number == 1 else f"{number} {state}" for state, number in states.items())


def _asked(question: Callable[..., _T], *arguments: Any) -> _T | None:
    """Return the response; None if the API does not answer, or refuses the request, as for a DAG not parsed yet."""
    try:
        return question(*arguments)
    except AirflowApiError:
        return None


def _ticks(seconds: float) -> Iterator[None]:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        yield
        time.sleep(_POLL_SECONDS)
