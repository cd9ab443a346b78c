"""The brake of audits: what no metadata knows goes only after a person approved the plan, and sees first what it is.

The rules of expiration are asked as well (share of a topic, with a floor, within 24 hours); what they say is shown with
the question. A plan that names segments which metadata knows by now is said to be stale: it would remove less.
"""

from collections.abc import Sequence
from typing import Final

from include.tiering.audit.removal_contract import RemovalStore, RemovalTotals
from include.tiering.runs.brake import WINDOW_MS, BrakeLimits, BrakeReport, TopicAction, excesses

ALWAYS: Final = "what no metadata knows is removed only with an approval"


def apply_removal_brake(run_id: str, removals: RemovalStore, limits: BrakeLimits, *, author: str) -> BrakeReport:
    """Judge a stored plan and record the answer with the run: it needs an approval, always.

    Raises:
        StateConflictError: no such run was planned.
    """
    run, totals = removals.run(run_id), removals.totals(run_id, window_ms=WINDOW_MS)
    actions = tuple(map(_action, totals))
    reasons = (ALWAYS, *excesses(actions, limits).values(), *_known(totals)) if totals else ()
    detail = "; ".join(reasons) or "nothing to remove"
    removals.record_brake(run_id, needs_approval=bool(reasons), detail=detail, author=author)
    return BrakeReport(run_id, run.plan_hash, actions, reasons, run.approval, frozenset(one.topic_id for one in totals))


def _action(totals: RemovalTotals) -> TopicAction:
    """What is removed counts beside what is FINISHED: the share is of all that the topic occupies."""
    occupied_bytes = totals.remote_bytes + totals.planned_bytes
    return TopicAction(totals.topic_id, totals.topic, totals.planned_bytes, totals.recent_bytes, occupied_bytes)


def _known(totals: Sequence[RemovalTotals]) -> list[str]:
    return [
        f"{one.topic}: {one.known_objects} of {one.planned_objects} are of segments that metadata knows now, and stay"
        for one in totals
        if one.known_objects
    ]
