"""The history of remote log sizes: Parquet files, with a directory for each UTC day and a file for each run.

    day=2026-11-21/1795274298000.parquet           one run, named by its time (UTC milliseconds)
    day=2026-11-20/merged-1795218898000.parquet    the runs of a past day in one file, named by the last of them

Readers of such a partitioned directory get the column `day` from the directories' names, and ignore files whose names
begin with a dot.

| step | a crash after it leaves | who cleans up |
|---|---|---|
| 1 write a run to a file with a dot | that file | the next run removes it |
| 2 rename it | the run, complete | |
| 3 write a day's merge to a file with a dot | that file | the next run removes it |
| 4 rename it | the day twice, in its runs and in its merge | the next run removes what the merge covers |
| 5 remove the day's runs | some of these runs | the next run removes them |
| 6 remove days that are too old | a part of such a day | the next run removes it |
"""

import shutil
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

_DAY: Final = "day="
_MERGED: Final = "merged-"
_SUFFIX: Final = ".parquet"
_RUN_AT: Final = pa.field("run_at", pa.timestamp("ms", tz="UTC"), nullable=False)


def append_run(directory: Path, sizes: Path, run_at_ms: int, *, keep_days: int) -> Path:
    """Add the sizes of one run (a Parquet directory), merge past days, remove days older than `keep_days`.

    Returns the file of the run. Memory holds one batch of rows.

    Raises:
        OSError: the directory cannot be written.
    """
    today = datetime.fromtimestamp(run_at_ms / 1000, UTC).date()
    day = directory / f"{_DAY}{today.isoformat()}"
    target = day / f"{run_at_ms}{_SUFFIX}"
    _write(target, _stamped(ds.dataset(sizes, format="parquet"), run_at_ms))
    for found, when in _days(directory):
        if when < today - timedelta(days=keep_days):
            shutil.rmtree(found)
            continue
        _sweep(found, target)
        if when < today:
            _merge(found)
    return target


def _stamped(sizes: ds.Dataset, run_at_ms: int) -> Iterator[pa.RecordBatch]:
    schema = sizes.schema.insert(0, _RUN_AT)
    yield pa.RecordBatch.from_pylist([], schema=schema)
    for batch in sizes.to_batches():
        run_at = pa.array([run_at_ms], _RUN_AT.type).take(pa.array([0] * batch.num_rows, pa.int32()))
        yield pa.RecordBatch.from_arrays([run_at, *batch.columns], schema=schema)


def _write(target: Path, batches: Iterable[pa.RecordBatch]) -> None:
    """Write a file that appears under its name only when it is complete. The first batch defines the schema."""
    target.parent.mkdir(parents=True, exist_ok=True)
    begun = target.with_name(f".{target.name}")
    rest = iter(batches)
    first = next(rest)
    with pq.ParquetWriter(begun, first.schema, compression="zstd") as writer:
        writer.write_batch(first)
        for batch in rest:
            writer.write_batch(batch)
    begun.rename(target)


def _days(directory: Path) -> Iterator[tuple[Path, date]]:
    """Yield the directories of days, the oldest first; ignore other files."""
    for found in sorted(directory.glob(f"{_DAY}*")):
        try:
            yield found, date.fromisoformat(found.name.removeprefix(_DAY))
        except ValueError:
            continue


def _sweep(day: Path, running: Path) -> None:
    """Remove incomplete files, and runs and merges that a later merge contains already, except `running`."""
    for begun in day.glob(f".*{_SUFFIX}"):
        begun.unlink()
    merges = sorted(day.glob(f"{_MERGED}*{_SUFFIX}"), key=_run_at_ms)
    contained = [run for run in _runs(day) if merges and _run_at_ms(run) <= _run_at_ms(merges[-1])]
    for file in {*merges[:-1], *contained} - {running}:
        file.unlink()


def _merge(day: Path) -> None:
    files = [*sorted(day.glob(f"{_MERGED}*{_SUFFIX}")), *_runs(day)]
    if len(files) < 2:
        return
    whole: ds.Dataset = ds.dataset([str(file) for file in files], format="parquet")
    target = day / f"{_MERGED}{max(map(_run_at_ms, files))}{_SUFFIX}"
    _write(target, _all_of(whole))
    for file in files:
        if file != target:
            file.unlink()


def _all_of(dataset: ds.Dataset) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pylist([], schema=dataset.schema)
    yield from dataset.to_batches()


def _runs(day: Path) -> Sequence[Path]:
    return sorted(file for file in day.glob(f"[0-9]*{_SUFFIX}") if file.stem.isdigit())


def _run_at_ms(file: Path) -> int:
    text = file.stem.removeprefix(_MERGED)
    return int(text) if text.isdigit() else -1
