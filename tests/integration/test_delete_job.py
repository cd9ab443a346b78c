"""One batch of expiration as a Spark task."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from include.tiering.app import open_app
from include.tiering.cli.exit_codes import ExitCode
from include.tiering.runs.deletion_run import DeletionOutcome
from spark_jobs.batch import run_once
from spark_jobs.expiration import batch_task
from spark_jobs.task_settings import TaskSettings
from tests.doubles.archive import Archive, settings_of
from tests.doubles.spark import NO_JAVA

pytestmark = NO_JAVA


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    archive = Archive.of(tmp_path)
    archive.copy()
    archive.set(retention_bytes=100_000)
    return archive


def test_a_released_run_is_deleted_by_one_task(archive: Archive, spark: SparkSession) -> None:
    with archive.open() as app:
        plan = app.expiration.plan("run")
        app.expiration.apply_limits("run")
    outcome = run_once(spark.sparkContext, batch_task("run", "run/0", None, TaskSettings.of_driver(archive.config)))
    assert (outcome["exit_code"], outcome["deleted"]) == (ExitCode.DONE, plan.segments)
    with open_app(settings_of(archive.config)) as app:
        assert {item.outcome for item in app.adapters.stores.deletions.items("run")} == {DeletionOutcome.DELETED}
    archive.require_no_other_objects()


def test_a_run_that_is_not_released_is_refused(archive: Archive, spark: SparkSession) -> None:
    with archive.open() as app:
        app.expiration.plan("run")
    before = archive.remote()
    outcome = run_once(spark.sparkContext, batch_task("run", "run/0", None, TaskSettings.of_driver(archive.config)))
    assert outcome["exit_code"] == ExitCode.FINDINGS
    assert outcome["error"].startswith("ApprovalRequiredError")
    assert archive.remote() == before
