"""The fields of a DAG's form that choose partitions, and the scope of a run with these fields.

The sensor and its trigger, the scans of queues and the plan of a copy all ask this module, so they mean the same
partitions. To add a field, read it in both functions; `RunScope` says what it means.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.sdk import Context

    from include.tiering.copying.run_scope import RunScope


def form_of(context: "Context") -> dict[str, Any]:
    """Return the fields of the run's form that choose partitions, None if one is empty or absent.

    They are arguments of the trigger as well, so Airflow stores them.
    """
    params = context.get("params") or {}
    return {"topics": list(params.get("topics") or ()) or None}


def scope_of(form: Mapping[str, Any]) -> "RunScope":
    """Return which partitions a run with these fields takes."""
    from include.tiering.copying.run_scope import RunScope

    return RunScope(tuple(form.get("topics") or ()))
