"""Measure planned segments in Spark tasks, which get shares of about equal bytes.

Each task opens the library in its own process, and its reads are charged to that process's allocation of the fetch
quota. A task that stops with a TieringError returns the error as a row, so that the driver can decide whether to retry;
any other exception fails the Spark job. A segment whose private key is missing does not stop the others. Measures are
sent as JSON, so that `verification.measures` alone defines their columns, and no Spark schema repeats them.
"""

import heapq
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession

from include.tiering.cli.exit_codes import ExitCode, code_of
from include.tiering.errors import TieringError
from include.tiering.model.segments import Depth
from include.tiering.verification.measures import SegmentMeasure
from include.tiering.verification.verify_planned import MeasureAll, ToMeasure
from include.tiering.verification.verify_segments import LockedSegment
from spark_jobs.shared import ParentWatch, TaskStoppedError
from spark_jobs.task_settings import TaskSettings

ROWS: Final = "measure string, locked string, error string, exit_code int"
_ROW: Final = pa.schema(
    [("measure", pa.string()), ("locked", pa.string()), ("error", pa.string()), ("exit_code", pa.int32())]
)


def measured_by_tasks(session: SparkSession, *, tasks: int, settings: TaskSettings) -> MeasureAll:
    """Return a function that measures a group of segments in at most `tasks` tasks with about equal bytes.

    The returned function raises TaskStoppedError if a task stops with a TieringError; any other exception of a task
    fails the Spark job.
    """

    def measure_all(wanted: Sequence[ToMeasure]) -> Iterable[SegmentMeasure | LockedSegment]:
        shares = spread(wanted, tasks)
        if not shares:
            return []

        def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            mine = [
                planned for batch in batches for number in batch.column("id").to_pylist() for planned in shares[number]
            ]
            if mine:
                with ParentWatch():
                    yield from _measured(mine, settings)

        found = session.range(0, len(shares), 1, numPartitions=len(shares)).mapInArrow(read, ROWS).collect()
        for row in found:
            if row.error is not None:
                raise TaskStoppedError(row.error, ExitCode(row.exit_code))
        return [
            measure_from_json(row.measure) if row.locked is None else LockedSegment(**json.loads(row.locked))
            for row in found
        ]

    return measure_all


def _measured(mine: Sequence[ToMeasure], settings: TaskSettings) -> Iterator[pa.RecordBatch]:
    try:
        with settings.open_app() as app:
            for measure in app.verification.measure_all(mine):
                if isinstance(measure, LockedSegment):
                    yield _row(locked=json.dumps(asdict(measure)))
                else:
                    yield _row(measure=measure_to_json(measure))
    except TieringError as error:
        yield _row(error=f"{type(error).__name__}: {error}", exit_code=int(code_of(error)))


def _row(**values: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([dict.fromkeys(_ROW.names) | values], schema=_ROW)


def measure_to_json(measure: SegmentMeasure) -> str:
    return json.dumps(asdict(measure))


def measure_from_json(text: str) -> SegmentMeasure:
    values: dict[str, Any] = json.loads(text)
    remarks = tuple((column, sentence) for column, sentence in values.pop("remarks"))
    return SegmentMeasure(**values | {"depth": Depth(values["depth"])}, remarks=remarks)


def spread(wanted: Sequence[ToMeasure], tasks: int) -> list[list[ToMeasure]]:
    """Divide segments into at most `tasks` shares of about the same bytes.

    No share is empty, and the segments of a share are in the order in which they were given. They are assigned from the
    largest to the smallest, each to the share with the fewest bytes so far. So the bytes of two shares differ by at
    most those of one segment.
    """
    loads = [(0, number) for number in range(tasks)]
    task_of: dict[int, int] = {}
    for position in sorted(range(len(wanted)), key=lambda each: -wanted[each].planned_bytes):
        load_bytes, number = loads[0]
        task_of[position] = number
        heapq.heapreplace(loads, (load_bytes + wanted[position].planned_bytes, number))
    shares: list[list[ToMeasure]] = [[] for _ in range(tasks)]
    for position, planned in enumerate(wanted):
        shares[task_of[position]].append(planned)
    return [share for share in shares if share]
