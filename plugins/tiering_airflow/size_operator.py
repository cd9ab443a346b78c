"""The task of `tiering_remote_log_sizes`."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from include.tiering.reports.sizes import present_sizes
from include.tiering.reports.text import as_text
from plugins.tiering_airflow import configuration
from plugins.tiering_airflow.errors import SizeDifferenceError, SparkJobError
from plugins.tiering_airflow.hook import TieringHook
from plugins.tiering_airflow.spark import SparkJobOperator

if TYPE_CHECKING:
    from airflow.sdk import Context


class RemoteLogSizesOperator(SparkJobOperator):
    """Recounts the remote log size in Spark, logs the counters as a table, fails if the two differ."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(job="remote_log_sizes_job.py", arguments=["--output", "{{ task.output_dir }}"], **kwargs)

    @property
    def output_dir(self) -> Path:
        return configuration.sizes_dir()

    def execute(self, context: "Context") -> None:
        """Raises SizeDifferenceError with one line per difference, SparkJobError, SparkJobRetriableError."""
        summary = self.output_dir / "summary.json"
        summary.unlink(missing_ok=True)
        try:
            super().execute(context)
        except SparkJobError as error:
            lines = list(difference_lines(summary))
            if error.retriable or not lines:
                raise
            raise SizeDifferenceError(f"{len(lines)} partitions differ:\n" + "\n".join(lines)) from error
        finally:
            self._log_counters()

    def _log_counters(self) -> None:
        with TieringHook().open() as tiering:
            for line in as_text(present_sizes(tiering.sizes())).splitlines():
                self.log.info("%s", line)


def difference_lines(summary: Path) -> Iterator[str]:
    """From the job's summary; nothing if the job did not get as far as writing one."""
    if not summary.exists():
        return
    for item in json.loads(summary.read_text())["differences"]:
        counters, recounted = item["counters"], item["recounted"]
        yield (
            f"{item['topic']}-{item['partition']}: the counters say {counters['bytes']} bytes in "
            f"{counters['segments']} segments, the rows {recounted['bytes']} bytes in {recounted['segments']}; "
            f"by leader epoch {counters['leader_epochs']} and {recounted['leader_epochs']}"
        )
