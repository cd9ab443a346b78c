"""The job that verifies on a real Spark: what it reads, what it finds, and what a lost task leaves."""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from include.tiering.app import App, open_app
from include.tiering.cli.exit_codes import ExitCode
from include.tiering.configs.config_store import ALL_BROKERS
from include.tiering.configs.pools import READER_POOL
from include.tiering.model.segments import Depth, Verdict
from include.tiering.runs.batch import BatchEnd
from include.tiering.verification import verify_planned
from include.tiering.verification.plan import VerificationOutcome, VerificationSample
from include.tiering.verification.rules import Severity
from include.tiering.verification.sql_verifications import SqlVerificationStore
from include.tiering.verification.verify_planned import ToMeasure
from spark_jobs import verification
from spark_jobs.shared import SURPLUS_EXIT_CODE, TaskStoppedError
from spark_jobs.task_settings import TaskSettings
from spark_jobs.verification import attempt, parse_arguments
from tests.doubles.archive import RUN_ID, planned_run, settings_of
from tests.doubles.spark import NO_JAVA

pytestmark = NO_JAVA

RUN = "verify-1"
FETCH_QUOTA = "tiering.fetch.total.max.bytes.per.second"


@dataclass
class Copied:
    """Two topics of real brokers, copied and not verified yet."""

    directory: Path
    config: Path
    spark: SparkSession

    def open(self):
        return open_app(settings_of(self.config))

    def plan(self, app: App, depth: Depth = Depth.DEEP) -> int:
        plan = app.verification.plan(RUN, VerificationSample(due=True), depth=depth)
        return len(plan.planned)

    def verify(self, *arguments: str, config: Path | None = None) -> dict[str, Any]:
        options = ["--run-id", RUN, "--tasks", "3", "--config", str(config or self.config), *arguments]
        return attempt(self.spark, parse_arguments(options))

    def log_of(self, segment_id: object) -> Path:
        (found,) = self.directory.rglob(f"*{segment_id}.log")
        return found


@pytest.fixture
def copied(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Copied:
    config = planned_run(tmp_path, topics='["payments*", "audit_log"]')
    monkeypatch.setenv("HOME", str(tmp_path))
    with open_app(settings_of(config)) as app:
        app.copying.run_batch(RUN_ID, "inline")
    return Copied(tmp_path, config, spark)


def outcomes(app: App) -> dict[str, int]:
    return {
        str(total.outcome): total.segments for total in app.adapters.stores.verifications.totals(RUN) if total.segments
    }


def test_tasks_read_what_the_plan_said_under_one_quota(copied: Copied) -> None:
    with copied.open() as app:
        planned = copied.plan(app)
        log_bytes = sum(size.size_bytes for size in app.sizes.partition_sizes())
        app.configs.alter(ALL_BROKERS, {FETCH_QUOTA: str(log_bytes // 2)}, author="test")
        app.adapters.stores.pool_mirror.record(READER_POOL, 1, seen=None, author="test")
        outcome = copied.verify("--pool", READER_POOL)
        assert (outcome["exit_code"], outcome["segments"], outcome["failed"]) == (ExitCode.DONE, planned, 0)
        assert outcomes(app) == {"passed": planned}
        (total,) = (one for one in app.adapters.stores.verifications.totals(RUN) if one.segments)
        # Every byte of each log, and its indexes; three tasks together took the time that one stream would have.
        assert log_bytes < outcome["bytes_read"] == total.read_bytes
        assert 0.9 < total.planned_bytes / total.read_bytes < 1.1
        assert outcome["seconds"] > 1
        (progress,) = app.adapters.stores.work.progress(RUN)
        assert progress.finished
        assert {total.verdict for total in app.adapters.stores.metadata.verdict_totals() if total.segments} == {
            Verdict.PASSED
        }


def test_a_job_whose_pool_has_become_too_small_ends_after_its_group(
    copied: Copied, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a batch of its pool: 1 slot, and 0 after the first group."""
    monkeypatch.setattr(verify_planned, "GROUP_SEGMENTS", 1)
    with copied.open() as app:
        planned, stores = copied.plan(app), app.adapters.stores
        stores.pool_mirror.record(READER_POOL, 1, seen=None, author="test")
        seen: list[list[str]] = []
        record = SqlVerificationStore.record

        def shrinks(store: SqlVerificationStore, *given: Any) -> None:
            record(store, *given)
            seen.append(list(stores.work.live_batches(READER_POOL)))
            stores.pool_mirror.record(READER_POOL, 0, seen=1, author="test")

        monkeypatch.setattr(SqlVerificationStore, "record", shrinks)
        outcome = copied.verify("--pool", READER_POOL)
        assert (outcome["exit_code"], outcome["segments"]) == (SURPLUS_EXIT_CODE, 1)
        assert outcome["ended"] == BatchEnd.SURPLUS.value
        assert (seen, stores.work.live_batches(READER_POOL)) == ([[RUN]], [])
        assert outcomes(app) == {"passed": 1, "planned": planned - 1}
        stores.pool_mirror.record(READER_POOL, 1, seen=0, author="test")
        monkeypatch.setattr(SqlVerificationStore, "record", record)
        rest = copied.verify("--pool", READER_POOL)
        assert (rest["segments"], rest["ended"]) == (planned - 1, BatchEnd.NO_WORK.value)


def test_a_damaged_byte_is_found_where_the_store_knows_nothing_of_it(copied: Copied) -> None:
    results = copied.directory / "results"
    with copied.open() as app:
        planned = copied.plan(app)
        victim = app.adapters.stores.verifications.pending(RUN, at_most=planned)[planned // 2].segment_id
        log = copied.log_of(victim.id)
        content = bytearray(log.read_bytes())
        content[len(content) // 2] ^= 1
        log.write_bytes(content)
        outcome = copied.verify("--results-dir", str(results))
        assert (outcome["exit_code"], outcome["segments"], outcome["failed"]) == (ExitCode.FINDINGS, planned, 1)
        assert outcomes(app) == {"passed": planned - 1, "failed": 1}
        found = app.verification.findings_of(RUN)
        assert {finding.segment_id for _, finding in found} == {str(victim.id)}
        assert Severity.CRITICAL in {severity for severity, _ in found}
        assert app.adapters.stores.metadata.segment(victim).verdict is Verdict.FAILED
        assert list(results.rglob("*.json"))
        # Nothing is left: another try reads nothing and finds nothing.
        again = copied.verify()
        assert (again["exit_code"], again["segments"], again["bytes_read"]) == (ExitCode.DONE, 0, 0)


def test_a_task_that_cannot_go_on_leaves_the_plan_as_it_was(copied: Copied, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = copied.directory / "elsewhere.toml"
    elsewhere.write_text(f'[metadata]\nurl = "sqlite:///{copied.directory}/nothing.sqlite"')
    with copied.open() as app:
        planned = copied.plan(app, Depth.SHALLOW)
        options = parse_arguments(["--run-id", RUN])
        of_elsewhere = TaskSettings.of_driver(elsewhere)
        monkeypatch.setattr(TaskSettings, "of_app", lambda _: of_elsewhere)
        with pytest.raises(TaskStoppedError, match="MetadataUnavailableError") as stopped:
            verification.verify(copied.spark, app, options)
        assert stopped.value.exit_code == ExitCode.RETRY
        assert outcomes(app) == {"planned": planned}


def test_a_task_that_is_killed_is_worth_another_try(copied: Copied, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            os.kill(os.getpid(), signal.SIGKILL)
            yield batch

    def by_killed_tasks(session: SparkSession, **_: Any) -> Callable[[Sequence[ToMeasure]], Any]:
        return lambda wanted: session.range(1).mapInArrow(killed, "id bigint").collect()

    with copied.open() as app:
        planned = copied.plan(app, Depth.SHALLOW)
        with monkeypatch.context() as patched:
            patched.setattr(verification, "measured_by_tasks", by_killed_tasks)
            assert copied.verify()["exit_code"] == ExitCode.RETRY
        assert outcomes(app) == {str(VerificationOutcome.PLANNED): planned}
        assert copied.verify()["segments"] == planned
