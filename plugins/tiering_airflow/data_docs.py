"""The data docs in Airflow: their directory, publication by a run, and links to pages.

Users who may read the logs of a DAG's tasks may read its reports. Reports contain names of topics and messages of
stores.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict
from urllib.parse import quote, urlsplit

from airflow.sdk import BaseOperator, BaseOperatorLink

from include.tiering.verification.data_docs import DataDocs
from include.tiering.verification.quality_run import FirstLine, RunSummary, anchor_of
from plugins.tiering_airflow import configuration
from plugins.tiering_airflow.errors import QualityGateError

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.types import TaskInstanceKey

    from include.tiering.settings import TieringSettings
    from include.tiering.verification.quality_run import QualityRun

URL_PREFIX: Final = "/tiering/quality"
MAX_FAILED_SEGMENT_TASKS: Final = 20


class FailedSegment(TypedDict):
    """Arguments of one `FailedSegmentOperator`; `line` is shown in the list of tasks."""

    line: str
    segment_id: str


def data_docs(settings: "TieringSettings") -> DataDocs:
    docs = settings.data_docs
    root = Path(docs.path) if docs.path is not None else configuration.work_dir() / "data-docs"
    return DataDocs(root, keep_runs=docs.keep_runs, keep_days=docs.keep_days)


def report_url(dag_id: str, run_id: str, segment_id: str | None = None) -> str:
    """Return the URL of a run's page in this Airflow, at the line of a segment if `segment_id` is given."""
    base = urlsplit(configuration.api_base_url())
    return f"{base.scheme}://{base.netloc}{report_path(dag_id, run_id, segment_id)}"


def report_path(dag_id: str, run_id: str, segment_id: str | None = None) -> str:
    """Return `report_url` without the server, for links in pages of Airflow, which may have several host names."""
    prefix = urlsplit(configuration.api_base_url()).path.rstrip("/")
    page = f"{prefix}{URL_PREFIX}/dags/{quote(dag_id, '')}/runs/{quote(run_id, '')}"
    return page if segment_id is None else f"{page}#{anchor_of(segment_id)}"


def publish(docs: DataDocs, run: "QualityRun") -> RunSummary:
    """Write the page of a DAG run, and return its summary."""
    docs.publish(run)
    return RunSummary.of(run)


def error_of(summary: RunSummary, lines: Iterable[str]) -> QualityGateError:
    """Return the error of a task.

    Its message has the summary with the URL of the report, `lines`, the first failed segments, each with the URL of its
    line in the report, and how many more segments failed.
    """
    url = report_url(summary.origin, summary.run_id)
    failed = [f"{line} {url}#{anchor_of(line.segment_id)}" for line in summary.first_lines]
    more = summary.failed_segments - len(failed)
    rest = [f"and {more} more segments: {url}"] if more > 0 else []
    return QualityGateError("\n".join([f"{summary.sentence}. Report: {url}", *lines, *failed, *rest]))


def failed_segments(summary: RunSummary) -> list[FailedSegment]:
    """Return the arguments of `FailedSegmentOperator` for the first `MAX_FAILED_SEGMENT_TASKS` failed segments."""
    return [
        FailedSegment(line=short_line(line), segment_id=line.segment_id)
        for line in summary.first_lines[:MAX_FAILED_SEGMENT_TASKS]
    ]


def short_line(line: FirstLine) -> str:
    return f"{line.partition} from {line.start_offset}: {line.ids}"


class QualityReportLink(BaseOperatorLink):
    """Links a task to the page of its run, and a `FailedSegmentOperator` to its segment's line on that page."""

    name = "Quality report"

    def get_link(self, operator: BaseOperator, *, ti_key: "TaskInstanceKey") -> str:
        return report_path(ti_key.dag_id, ti_key.run_id, getattr(operator, "segment_id", None))


class FailedSegmentOperator(BaseOperator):
    """A task for one failed segment: the list of tasks shows `line`, and the link leads to the segment in the report.

    Map it over `failed_segments` with `map_index_template="{{ task.line }}"`.
    """

    operator_extra_links = (QualityReportLink(),)

    def __init__(self, *, line: str, segment_id: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.line = line
        self.segment_id = segment_id

    def execute(self, context: "Context") -> None:
        """Always raise QualityGateError."""
        self.log.error("%s, segment %s", self.line, self.segment_id)
        self.log.error("Report: %s", report_url(self.dag_id, context["run_id"], self.segment_id))
        raise QualityGateError(f"{self.line}, segment {self.segment_id}")
