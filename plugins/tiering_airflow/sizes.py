"""The tasks of `tiering_remote_log_sizes`.

The task that found findings logs them; the last task gets their number by XCom, and fails if there are any.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import filterfalse
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import BaseOperator

from include.tiering.presentation import as_text
from plugins.tiering_airflow import configuration
from plugins.tiering_airflow.errors import SizeDifferenceError, SparkJobError
from plugins.tiering_airflow.hook import TieringHook
from plugins.tiering_airflow.spark import ReaderJobOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

SIZES_TASK_ID: Final = "sizes"
FROM_STORAGE: Final = "from_storage"
COUNTED_KEY: Final = "tiering_counted"
FINDINGS: Final = f"{{{{ ti.xcom_pull(task_ids='{SIZES_TASK_ID}', key='{COUNTED_KEY}')['findings'] }}}}"


class RemoteLogSizesOperator(ReaderJobOperator):
    """Recounts remote log sizes in Spark and compares them with the counters, and with the store if the form says so.

    Pushes numbers for the next tasks, such as findings, duration of the recount and duplicate bytes by topic.
    """

    repeats_tasks = True

    def __init__(self, **kwargs: Any) -> None:
        arguments = ["--output", "{{ task.output_dir }}"]
        super().__init__(job="sizes.py", arguments=arguments, batch_id="sizes-{{ run_id }}", **kwargs)

    @property
    def output_dir(self) -> Path:
        return configuration.sizes_dir()

    def execute(self, context: "Context") -> None:
        """Run the task.

        Raises SparkJobError, SparkJobRetriableError or SettingError; findings do not fail this task.
        """
        summary = self.output_dir / "summary.json"
        summary.unlink(missing_ok=True)
        from_storage = context["params"][FROM_STORAGE]
        self.application_args = [*(self.application_args or ()), "--ranges", str(configuration.sizes_ranges())]
        if from_storage:
            self.application_args += ["--from-storage", from_storage]
        try:
            super().execute(context)
        except SparkJobError as error:
            if error.retriable or not summary.exists():
                raise
        found = json.loads(summary.read_text())
        lines = list(finding_lines(found))
        for line in (*lines, *warning_lines(found)):
            self.log.warning("%s", line)
        counted = {
            "findings": len(lines),
            "computation_ms": found["computation_ms"],
            "segments": found["segments"],
            "bytes": found["bytes"],
            "duplicates": duplicate_bytes(found["overlaps"]),
        }
        context["ti"].xcom_push(key=COUNTED_KEY, value=counted)


class SizeSummaryOperator(BaseOperator):
    """Logs sizes, waiting segments and costs as tables, and publishes metrics.

    Those of the recount are published only if the recount has ended.
    """

    def execute(self, context: "Context") -> None:
        from include.tiering.sizes.report import present_sizes

        counted = context["ti"].xcom_pull(task_ids=SIZES_TASK_ID, key=COUNTED_KEY)
        with TieringHook().open() as app:
            report = app.sizes.report()
            if counted is not None:
                app.sizes.publish_recount(
                    milliseconds=counted["computation_ms"],
                    differences=counted["findings"],
                    duplicate_bytes=counted["duplicates"],
                )
        for line in as_text(present_sizes(report)).splitlines():
            self.log.info("%s", line)


class SizeOutcomeOperator(BaseOperator):
    """The last task of a size run: it fails, and the run with it, if counters, rows and store do not agree."""

    template_fields: Sequence[str] = ("findings",)

    def __init__(
        self,
        *,
        findings: str = FINDINGS,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.findings = findings

    def execute(self, context: "Context") -> None:
        """Raise SizeDifferenceError if the run has findings."""
        if int(self.findings):
            raise SizeDifferenceError(f"{self.findings} findings: see the warnings of the task {SIZES_TASK_ID}")


def finding_lines(summary: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each difference that breaks a critical rule, and one for those that were not checked again."""
    from include.tiering.sizes.report import breaks_critical_rule

    stored = summary["stored"] or {"differences": (), "unsettled": 0}
    yield from _counter_lines(filter(breaks_critical_rule, summary["differences"]))
    yield from _stored_lines(filter(breaks_critical_rule, stored["differences"]))
    if stored["unsettled"]:
        yield f"at least {stored['unsettled']} more segments differ between store and rows, and were not checked again"


def warning_lines(summary: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each difference that breaks no critical rule, only rules that suite files turned into warnings.

    Suite files may also add rules of their own as warnings.
    """
    from include.tiering.sizes.report import breaks_critical_rule

    stored = summary["stored"] or {"differences": ()}
    yield from _counter_lines(filterfalse(breaks_critical_rule, summary["differences"]))
    yield from _stored_lines(filterfalse(breaks_critical_rule, stored["differences"]))


def _counter_lines(differences: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for item in differences:
        counters, recounted = item["counters"], item["recounted"]
        yield (
            f"{item['topic']}-{item['partition']} {item['state']}: the counters say {counters['bytes']} bytes in "
            f"{counters['segments']} segments, the rows {recounted['bytes']} bytes in {recounted['segments']}; "
            f"by leader epoch {counters['leader_epochs']} and {recounted['leader_epochs']} ({_rules(item)})"
        )


def _stored_lines(differences: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for item in differences:
        segments = ", ".join(f"{segment['segment_id']} {segment['kind']}" for segment in item["segments"])
        yield f"{item['topic']}-{item['partition']}: the store and the rows differ ({_rules(item)}): {segments}"


def duplicate_bytes(overlaps: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Add up duplicate bytes by topic."""
    by_topic: dict[str, int] = {}
    for item in overlaps:
        by_topic[item["topic"]] = by_topic.get(item["topic"], 0) + item["bytes"]
    return by_topic


def _rules(item: Mapping[str, Any]) -> str:
    return ", ".join(rule["rule"] for rule in item["rules"])
