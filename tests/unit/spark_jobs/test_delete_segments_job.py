"""What a deleting batch's result becomes. Spark itself is met in the integration tests."""

import pytest

from include.tiering.cli.exit_codes import ExitCode
from include.tiering.expiration.delete_segments import DeleteResult, FailedDeletion
from include.tiering.runs.batch import BatchEnd
from include.tiering.runs.deletion_run import DeletionItem, DeletionOutcome
from spark_jobs.expiration import outcome_of, parse_arguments
from tests.doubles.segments import partition_of, planned_deletion, segment_of

_PLANNED = planned_deletion(segment_of(partition_of(), 1, 0, 9, size_bytes=100))


def result(*failures: bool, ended: BatchEnd = BatchEnd.NO_WORK) -> DeleteResult:
    """One deleted segment and a failed one per argument, which says whether it is retriable."""
    item = DeletionItem(_PLANNED, DeletionOutcome.FAILED, "RemoteStorageError", "refused")
    return DeleteResult((_PLANNED,), tuple(FailedDeletion(item, one) for one in failures), 1.23456, ended)


def test_an_outcome_has_counts_and_no_names() -> None:
    assert outcome_of(result(False)) == {
        "exit_code": 1,
        "deleted": 1,
        "failed": 1,
        "bytes": 100,
        "seconds": 1.235,
        "ended": "no work left",
    }


@pytest.mark.parametrize(
    ("batch", "code"),
    [
        (result(), ExitCode.DONE),
        (result(ended=BatchEnd.SURPLUS), ExitCode.DONE),
        (result(ended=BatchEnd.STOPPED), ExitCode.RETRY),
        (result(True, True), ExitCode.RETRY),
        (result(True, False), ExitCode.FINDINGS),
    ],
)
def test_exit_codes(batch: DeleteResult, code: ExitCode) -> None:
    assert outcome_of(batch)["exit_code"] == code


def test_run_and_batch_must_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        parse_arguments(["--run-id", "run"])
    assert refused.value.code == ExitCode.USAGE
    assert "--batch-id" in capsys.readouterr().err
