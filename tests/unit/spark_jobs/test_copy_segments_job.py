"""What a batch's result becomes: counts and an exit code. Spark itself is met in the integration tests."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest

from include.tiering.cli.exit_codes import ExitCode
from include.tiering.copying.copy_batch import BatchResult, UncopiedSegment
from include.tiering.copying.copy_segment import CopiedSegment
from include.tiering.errors import SettingError
from include.tiering.runs.batch import BatchEnd
from include.tiering.runs.contract import PlannedSegment, SegmentOutcome, WorkItem
from spark_jobs.batch import run_job, run_once
from spark_jobs.copying import batch_task, outcome_of, parse_arguments
from spark_jobs.task_settings import TaskSettings
from tests.doubles.stored_log import some_metadata

_PARTITION = some_metadata(1).topic_id_partition
_COPIED = CopiedSegment(some_metadata(1).remote_log_segment_id, 0, 24, size_bytes=100, sent_bytes=130)
_FAILED = WorkItem(_PARTITION, PlannedSegment(25, 49, 100), SegmentOutcome.FAILED, error="CorruptFileError")


def result(*failures: bool, ended: BatchEnd = BatchEnd.NO_WORK) -> BatchResult:
    """One copied segment and a failed one per argument, which says whether it is retriable."""
    failed = tuple(UncopiedSegment(_FAILED, retriable) for retriable in failures)
    return BatchResult((_COPIED,), failed, sent_bytes=130, seconds=1.23456, ended=ended)


def test_an_outcome_has_counts_and_no_names() -> None:
    assert outcome_of(result(False)) == {
        "exit_code": 1,
        "copied": 1,
        "failed": 1,
        "throttled": 0,
        "bytes": 100,
        "sent_bytes": 130,
        "seconds": 1.235,
        "ended": "no work left",
    }


@pytest.mark.parametrize(
    ("batch", "code"),
    [
        (result(), ExitCode.DONE),
        (result(ended=BatchEnd.TIME_OVER), ExitCode.DONE),
        (result(ended=BatchEnd.SURPLUS), ExitCode.DONE),
        (result(ended=BatchEnd.STOPPED), ExitCode.RETRY),
        (result(True), ExitCode.RETRY),
        (result(True, True), ExitCode.RETRY),
        (result(False), ExitCode.FINDINGS),
        (result(True, False), ExitCode.FINDINGS),
        (result(False, ended=BatchEnd.STOPPED), ExitCode.FINDINGS),
    ],
)
def test_exit_codes(batch: BatchResult, code: ExitCode) -> None:
    assert outcome_of(batch)["exit_code"] == code


def test_a_batch_that_left_throttled_partitions_is_done() -> None:
    partition = _FAILED.topic_id_partition
    outcome = outcome_of(dataclasses.replace(result(ended=BatchEnd.TIME_OVER), throttled=(partition,)))
    assert (outcome["exit_code"], outcome["throttled"]) == (ExitCode.DONE, 1)


def test_an_empty_batch_is_done() -> None:
    assert outcome_of(dataclasses.replace(result(), copied=()))["exit_code"] == ExitCode.DONE


def test_a_session_that_may_repeat_the_task_never_gets_it() -> None:
    session: Any = SimpleNamespace(conf=SimpleNamespace(get={"spark.speculation": "true"}.get))
    with pytest.raises(SettingError, match=r"spark\.speculation"):
        run_once(session, batch_task("run", "0.1", None, TaskSettings({})))


def test_run_and_batch_must_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        parse_arguments(["--run-id", "run"])
    assert refused.value.code == ExitCode.USAGE
    assert "--batch-id" in capsys.readouterr().err


def test_a_batch_ends_before_it_sends_its_settings_in_clear_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://spark.example:15002/;token=s3cret")
    options = parse_arguments(["--run-id", "r", "--batch-id", "r/0"])
    unread: Any = lambda _: pytest.fail("it read its settings")  # noqa: E731
    assert run_job("copy", options, unread) == ExitCode.USAGE
    printed = capsys.readouterr().out
    assert "use_ssl=true" in printed
    assert "s3cret" not in printed
