"""What kept a task from going on, told as a row: the driver then knows whether another try can help."""

from collections.abc import Callable, Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, functions

from include.tiering.cli.exit_codes import ExitCode, code_of
from include.tiering.errors import TieringError

ERROR_COLUMNS: Final = ", error string, exit_code int"
_FIELDS: Final = (pa.field("error", pa.string()), pa.field("exit_code", pa.int32()))

Batches = Iterator[pa.RecordBatch]


class TaskStoppedError(TieringError):
    """A task could not go on; `exit_code` is what the job should end with."""

    def __init__(self, message: str, exit_code: ExitCode) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def telling(read: Callable[[Batches], Batches], schema: pa.Schema) -> Callable[[Batches], Batches]:
    """`read`, with the two columns of `ERROR_COLUMNS` after those of `schema`; a typed error is its last row."""

    def reading(batches: Batches) -> Batches:
        try:
            for batch in read(batches):
                yield _with(batch, None, None)
        except TieringError as error:
            row = pa.RecordBatch.from_arrays([pa.nulls(1, each.type) for each in schema], schema=schema)
            yield _with(row, f"{type(error).__name__}: {error}", int(code_of(error)))

    return reading


def without_errors(rows: DataFrame) -> DataFrame:
    """`rows` as they were read.

    Raises:
        TaskStoppedError: a task told of an error.
    """
    told = rows.where(functions.col("error").isNotNull()).select("error", "exit_code").head(1)
    if told:
        raise TaskStoppedError(told[0].error, ExitCode(told[0].exit_code))
    return rows.drop("error", "exit_code")


def _with(batch: pa.RecordBatch, error: str | None, exit_code: int | None) -> pa.RecordBatch:
    for field, value in zip(_FIELDS, (error, exit_code), strict=True):
        batch = batch.append_column(field, pa.array([value] * batch.num_rows, field.type))
    return batch
