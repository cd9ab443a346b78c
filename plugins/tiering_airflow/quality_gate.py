"""The gate of `tiering_copy`: what a run copied is judged before anybody is told of it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowSkipException

from include.tiering.model.segment_metadata import Depth
from include.tiering.runs.contract import SegmentOutcome, WorkItem
from include.tiering.verification.quality_run import QualityRun
from plugins.tiering_airflow.hook import TieringHook
from plugins.tiering_airflow.operators import PLANNED_RUN
from plugins.tiering_airflow.quality_pages import QualityReportLink, data_docs, error_of, publish, report_url

if TYPE_CHECKING:
    from airflow.sdk import Context

_DEPTH: Final = Depth.SHALLOW


class QualityGateOperator(BaseOperator):
    """Judges every segment that this run copied, publishes its report, and fails with one line per segment that is not
    as it must be.

    Skipped if nothing was planned.
    """

    template_fields: Sequence[str] = ("planned_run_id",)
    operator_extra_links = (QualityReportLink(),)

    def __init__(self, *, planned_run_id: str = PLANNED_RUN, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.planned_run_id = planned_run_id

    def execute(self, context: "Context") -> dict[str, int]:
        """Raises QualityGateError."""
        if not self.planned_run_id:
            raise AirflowSkipException("nothing was planned")
        run_id = context["run_id"]
        with TieringHook().open() as app:
            docs, began_at_ms = data_docs(app.settings), app.adapters.clock.now_ms()
            results = docs.begin(self.dag_id, run_id)
            verified = app.verification.verify_run(self.planned_run_id, depth=_DEPTH, results_dir=results)
            not_copied = [_line(item) for item in app.copying.run_report(self.planned_run_id).of(SegmentOutcome.FAILED)]
            run = QualityRun(
                origin=self.dag_id,
                run_id=run_id,
                depth=_DEPTH,
                began_at_ms=began_at_ms,
                ended_at_ms=app.adapters.clock.now_ms(),
                segments=verified.segments,
                bytes_read=verified.bytes_read,
                failed=verified.failed,
                warnings=verified.warnings,
                remarks=not_copied,
            )
        summary = publish(docs, run)
        if not summary.is_right:
            raise error_of(summary, not_copied)
        self.log.info("%s. Report: %s", summary.sentence, report_url(self.dag_id, run_id))
        return {"segments": verified.segments}


def _line(item: WorkItem) -> str:
    return f"{item.topic_id_partition} from offset {item.segment.base_offset}: not copied: {item.message}"
