"""The tasks of `tiering_ingest`. Each opens the library, asks it one thing, says the result.

XCom carries counts and findings; positions and what was read are in the platform's own database.
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
    """Reads the brokers' metadata topic to the ends that it has now; pushes how many records came, and the findings.

    Without brokers in the settings there is nothing to read: skipped.
    """

    def execute(self, context: "Context") -> None:
        """Raises TieringError; IngestIncompleteError where a partition has to be tried again."""
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
        # A try after this one reads what this one left: what came before is to be told of all the same.
        known = context["ti"].xcom_pull(task_ids=self.task_id, key=RECORDS_KEY) or 0
        context["ti"].xcom_push(key=RECORDS_KEY, value=known + report.records + len(report.changes))
        context["ti"].xcom_push(key=FINDINGS_KEY, value=list(report.findings))
        if report.failed:
            raise IngestIncompleteError("; ".join(str(partition_result.failed) for partition_result in report.failed))


class IngestedOperator(BaseOperator):
    """Tells `outlet` that the remote log changed; skipped, and the asset not told, if nothing came."""

    template_fields: Sequence[str] = ("records",)

    def __init__(self, *, outlet: "Asset", records: str = _pulled(RECORDS_KEY), **kwargs: Any) -> None:
        super().__init__(outlets=[outlet], **kwargs)
        self.outlet = outlet
        self.records = records

    def execute(self, context: "Context") -> None:
        if not int(self.records or 0):
            raise AirflowSkipException("no record came")
        context["outlet_events"][self.outlet].extra = {"records": int(self.records)}


class IngestOutcomeOperator(BaseOperator):
    """The last task, whose state is the run's: it fails if a person has to look at something."""

    def execute(self, context: "Context") -> None:
        """Raises IngestFindingsError."""
        findings = context["ti"].xcom_pull(task_ids=INGEST_TASK_ID, key=FINDINGS_KEY) or []
        if findings:
            raise IngestFindingsError("\n".join(findings))
