"""What `plan` and `copy` share: run ids, the topics that were asked for, and the outcome of a run in one value."""

import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from include.tiering.errors import SettingError

if TYPE_CHECKING:
    from include.tiering.app import App
    from include.tiering.copying.copy_batch import BatchResult
    from include.tiering.copying.plan import CopyPlan
    from include.tiering.copying.report import CopyRun
    from include.tiering.runs.contract import WorkItem
    from include.tiering.settings import TieringSettings


def new_run_id() -> str:
    """`cli-20260131T235959Z-1a2b3c`: unique, and sorts by time."""
    return f"cli-{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"


def require_topics(settings: "TieringSettings") -> None:
    """Nothing is tiered unless asked for. Raises SettingError."""
    if not settings.topics.include:
        raise SettingError(
            "no topic is asked for: name some with --topic (a pattern such as 'orders*', or '*' for all), "
            'or set topics.include, for example topics.include = ["*"]'
        )


def copy_run(app: "App", plan: "CopyPlan", results: "Sequence[BatchResult]") -> "CopyRun":
    """The planned segments as they stand; failures that the plan may take up again count as failed here."""
    from include.tiering.copying.report import CopyRun
    from include.tiering.runs.batch import BatchEnd
    from include.tiering.runs.contract import SegmentOutcome

    items = app.adapters.stores.work.items(plan.run_id)
    failed = {_key(failure.item): failure.item for result in results for failure in result.failed}
    merged = [failed.get(_key(item), item) if item.outcome is SegmentOutcome.PLANNED else item for item in items]
    seconds = sum(result.seconds for result in results)
    left = app.copying.left_work(merged, ended_early=bool(results) and results[-1].ended is not BatchEnd.NO_WORK)
    return CopyRun(plan.run_id, merged, seconds, plan.held_back, plan.errors, plan.notes, left)


def _key(item: "WorkItem") -> tuple[object, int]:
    return item.topic_id_partition, item.segment.base_offset
