"""The tasks of `tiering_ingest`: read the brokers' metadata topic, update the asset, and fail if there are findings.

XCom carries counts and findings; positions and ingested metadata are in the platform's own database.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowSkipException

from include.tiering.metadata_sync.report import present_ingest
from include.tiering.presentation import as_text
from plugins.tiering_airflow.errors import IngestFindingsError, IngestIncompleteError
from plugins.tiering_airflow.hook import TieringHook

if TYPE_CHECKING:
    from airflow.sdk import Asset, Context

INGEST_TASK_ID: Final = "ingest"
FROM_BEGINNING: Final = "from_beginning"
RECORDS_KEY: Final = "tiering_records"
FINDINGS_KEY: Final = "tiering_findings"


def _pulled(key: str) -> str:
    return f"{{{{ ti.xcom_pull(task_ids='{INGEST_TASK_ID}', key='{key}') or '' }}}}"


class IngestOperator(BaseOperator):
    """Reads the brokers' metadata topic up to its current end; pushes the number of records and changes, and findings.

    Skipped if the settings name no brokers.
    """

    def execute(self, context: "Context") -> None:
        """Run the task. Raises TieringError; IngestIncompleteError if a partition was not read to its end."""
        author = f"{self.dag_id} {context['run_id']}"
        with TieringHook().open() as app:
            if not app.adapters.has_brokers:
                raise AirflowSkipException("cluster.bootstrap_servers is not set: there is no metadata topic to read")
            if context["params"][FROM_BEGINNING]:
                app.ingestion.read_again(author=author)
            report = app.ingestion.run(author=author)
        for line in as_text(present_ingest(report)).splitlines():
            self.log.info("%s", line)
        for finding in report.findings:
            self.log.warning("%s", finding)
        # A retry reads only the rest, so the count of the previous tries is added.
        known = context["ti"].xcom_pull(task_ids=self.task_id, key=RECORDS_KEY) or 0
        context["ti"].xcom_push(key=RECORDS_KEY, value=known + report.records + len(report.changes))
        context["ti"].xcom_push(key=FINDINGS_KEY, value=list(report.findings))
        if report.failed:
            raise IngestIncompleteError("; ".join(str(partition_result.failed) for partition_result in report.failed))


class IngestedOperator(BaseOperator):
    """Updates the asset `outlet`, as the remote log changed; if there are no new records, it is skipped instead."""

    template_fields: Sequence[str] = ("records",)

    def __init__(self, *, outlet: "Asset", records: str = _pulled(RECORDS_KEY), **kwargs: Any) -> None:
        super().__init__(outlets=[outlet], **kwargs)
        self.outlet = outlet
        self.records = records

    def execute(self, context: "Context") -> None:
        if not int(self.records or 0):
            raise AirflowSkipException("there are no new records")
        context["outlet_events"][self.outlet].extra = {"records": int(self.records)}


class IngestOutcomeOperator(BaseOperator):
    """The last task: it fails, and the run with it, if there are findings for a person."""

    def execute(self, context: "Context") -> None:
        """Raise IngestFindingsError, with the findings, if there are any."""
        findings = context["ti"].xcom_pull(task_ids=INGEST_TASK_ID, key=FINDINGS_KEY) or []
        if findings:
            raise IngestFindingsError("\n".join(findings))
