"""Files that tasks write, in one process: their names, and whose error is told of a task that stops."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from include.tiering.app import App
from include.tiering.cli.exit_codes import ExitCode
from include.tiering.errors import MetadataUnavailableError
from spark_jobs.shared import Batches, TaskStoppedError
from spark_jobs.task_files import write_files
from spark_jobs.task_settings import TaskSettings

_SCHEMA: Final = pa.schema([("number", pa.int64())])


@dataclass
class Tasks:
    """Stands for what `mapInArrow` makes: one task has all the work."""

    length: int
    rows: Any = None

    def mapInArrow(self, function: Callable[[Batches], Batches], _: str) -> "Tasks":  # noqa: N802 - Spark's name
        numbers = pa.record_batch({"id": pa.array(range(self.length), pa.int64())})
        self.rows = (SimpleNamespace(**row) for batch in function(iter([numbers])) for row in batch.to_pylist())
        return self

    def collect(self) -> list[Any]:
        return list(self.rows)


@dataclass
class Session:
    application: str = "local-1"

    @property
    def sparkContext(self) -> Any:  # noqa: N802 - Spark's name
        return SimpleNamespace(applicationId=self.application)

    def range(self, _: int, end: int, *__: int, **___: Any) -> Tasks:
        return Tasks(end)


def batches(*numbers: int) -> Batches:
    for number in numbers:
        yield pa.record_batch([pa.array([number])], schema=_SCHEMA)


def written(
    tmp_path: Path, read: Callable[[App, int], Batches], work: list[int], application: str = "local-1"
) -> list[Path]:
    config = tmp_path / "tiering.toml"
    session: Any = Session(application)
    return write_files(session, work, tmp_path / "numbers", _SCHEMA, read, settings=TaskSettings.of_driver(config))


@pytest.fixture(autouse=True)
def config(tmp_path: Path) -> Path:
    """A task opens the library with it, which connects to nothing."""
    settings = tmp_path / "tiering.toml"
    settings.write_text(f'metadata.url = "sqlite:///{tmp_path / "metadata.sqlite"}"\n')
    return settings


def test_each_piece_of_work_with_rows_is_a_file(tmp_path: Path) -> None:
    files = written(tmp_path, lambda _, most: batches(*range(most)), [3, 0, 2])
    assert sorted((tmp_path / "numbers").iterdir()) == files
    assert [pq.read_table(file).column("number").to_pylist() for file in files] == [[0, 1, 2], [0, 1]]


def test_a_job_never_gives_a_file_the_name_that_one_of_an_earlier_job_has(tmp_path: Path) -> None:
    """Attempts are numbered anew in each job, and an executor of the earlier job may still write."""
    (earlier,) = written(tmp_path, lambda *_: batches(1), [1], "app-20260101-0001")
    (later,) = written(tmp_path, lambda *_: batches(2), [1], "app-20260101-0002")
    assert earlier != later
    assert not earlier.exists()


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    def without_its_directory(_: App, __: int) -> Batches:
        shutil.rmtree(tmp_path / "numbers")
        return batches(1)

    expected = r"numbers/00000-\S+\.parquet cannot be written by a task of Spark: .*No such file"
    with pytest.raises(TaskStoppedError, match=expected) as stopped:
        written(tmp_path, without_its_directory, [1])
    assert stopped.value.exit_code is ExitCode.USAGE


def test_an_error_of_reading_is_not_taken_for_one_of_writing(tmp_path: Path) -> None:
    def unreadable(_: App, __: int) -> Batches:
        yield from batches(1)
        raise OSError(5, "Input/output error")

    with pytest.raises(OSError, match="Input/output error"):
        written(tmp_path, unreadable, [1])


def test_no_file_of_a_task_that_stopped_is_returned(tmp_path: Path) -> None:
    def stopping(_: App, number: int) -> Batches:
        yield from batches(number)
        if number == 2:
            raise MetadataUnavailableError("the database does not answer")

    with pytest.raises(TaskStoppedError, match="MetadataUnavailableError: the database does not answer") as stopped:
        written(tmp_path, stopping, [1, 2, 3])
    assert stopped.value.exit_code is ExitCode.RETRY
