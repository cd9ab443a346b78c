"""Errors of tasks as rows: a task that stops with a TieringError returns it, so that the driver can decide on a retry.

An exception would reach the driver as one of Spark, without its kind.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa

from include.tiering.cli.exit_codes import ExitCode, code_of
from include.tiering.errors import TieringError
from spark_jobs.shared import Batches, TaskStoppedError

ERROR_COLUMNS: Final = ", error string, exit_code int"
_FIELDS: Final = (pa.field("error", pa.string()), pa.field("exit_code", pa.int32()))


def telling(read: Callable[[Batches], Batches], schema: pa.Schema) -> Callable[[Batches], Batches]:
    """Wrap `read`: its rows get `ERROR_COLUMNS` after those of `schema`, and a TieringError becomes the last row."""

    def reading(batches: Batches) -> Batches:
        try:
            for batch in read(batches):
                yield _with(batch, None, None)
        except TaskStoppedError as error:
            yield _with(_nulls(schema), str(error), error.exit_code)
        except TieringError as error:
            yield _with(_nulls(schema), f"{type(error).__name__}: {error}", code_of(error))

    return reading


def require_no_error(rows: Sequence[Any]) -> None:
    """Raise TaskStoppedError if one of the rows, which have `ERROR_COLUMNS`, has an error."""
    for row in rows:
        if row.error is not None:
            raise TaskStoppedError(row.error, ExitCode(row.exit_code))


def _nulls(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(1, each.type) for each in schema], schema=schema)


def _with(batch: pa.RecordBatch, error: str | None, exit_code: ExitCode | None) -> pa.RecordBatch:
    for field, value in zip(_FIELDS, (error, None if exit_code is None else int(exit_code)), strict=True):
        batch = batch.append_column(field, pa.array([value] * batch.num_rows, field.type))
    return batch
