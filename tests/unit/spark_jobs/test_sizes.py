"""The job of sizes, and histories of sizes."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions

from include.tiering.cli.exit_codes import ExitCode
from include.tiering.errors import (
    RemoteMetadataError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RemoteStorageUnavailableError,
)
from include.tiering.model.segments import Uuid
from include.tiering.segments.stored_copies import Suspicion
from spark_jobs import sizes_listing
from spark_jobs.shared import Batches, TaskStoppedError
from spark_jobs.sizes import READ_RANGES, attempt, exit_code, keep_results, parse_arguments, unfinished_results
from spark_jobs.sizes_history import append_run
from spark_jobs.sizes_rows import MOST_OFFSETS, added_up, batch_of
from spark_jobs.task_errors import require_no_error

# A file for each run, one for each day that is over, none that is too old; whatever a crash left is cleaned up.

DAY_MS = 86_400_000
NOON_MS = 20_000 * DAY_MS + DAY_MS // 2


@pytest.fixture
def sizes(tmp_path: Path) -> Path:
    """What a run wrote: two rows in two files."""
    directory = tmp_path / "sizes"
    directory.mkdir()
    for number in range(2):
        pq.write_table(pa.table({"topic": ["orders"], "size_bytes": [number]}), directory / f"part-{number}.parquet")
    return directory


def files(history: Path) -> list[str]:
    return sorted(str(path.relative_to(history)) for path in history.rglob("*") if path.is_file())


def rows(history: Path) -> list[tuple[int, str, int]]:
    table = ds.dataset(history, format="parquet", partitioning="hive").to_table()
    at = table.column("run_at").cast(pa.int64()).to_pylist()
    return sorted(zip(at, table.column("day").to_pylist(), table.column("size_bytes").to_pylist(), strict=True))


def test_each_run_is_a_file_of_its_day(tmp_path: Path, sizes: Path) -> None:
    history = tmp_path / "history"
    first = append_run(history, sizes, NOON_MS, keep_days=10)
    append_run(history, sizes, NOON_MS + 1, keep_days=10)
    assert first == history / "day=2024-10-04" / f"{NOON_MS}.parquet"
    day = "2024-10-04"
    assert rows(history) == [(NOON_MS, day, 0), (NOON_MS, day, 1), (NOON_MS + 1, day, 0), (NOON_MS + 1, day, 1)]


def test_a_day_that_is_over_becomes_one_file(tmp_path: Path, sizes: Path) -> None:
    history = tmp_path / "history"
    for hour in range(3):
        append_run(history, sizes, NOON_MS + hour, keep_days=10)
    append_run(history, sizes, NOON_MS + DAY_MS, keep_days=10)
    assert files(history) == [
        f"day=2024-10-04/merged-{NOON_MS + 2}.parquet",
        f"day=2024-10-05/{NOON_MS + DAY_MS}.parquet",
    ]
    assert [row[0] for row in rows(history)] == [NOON_MS] * 2 + [NOON_MS + 1] * 2 + [NOON_MS + 2] * 2 + [
        NOON_MS + DAY_MS
    ] * 2


def test_days_that_are_too_old_go_and_nothing_else(tmp_path: Path, sizes: Path) -> None:
    history = tmp_path / "history"
    append_run(history, sizes, NOON_MS, keep_days=2)
    (history / "day=yesterday").mkdir()
    (history / "notes.txt").write_text("kept")
    append_run(history, sizes, NOON_MS + 2 * DAY_MS, keep_days=2)
    assert f"day=2024-10-04/{NOON_MS}.parquet" in files(history)
    append_run(history, sizes, NOON_MS + 3 * DAY_MS, keep_days=2)
    assert not (history / "day=2024-10-04").exists()
    assert (history / "day=yesterday").is_dir()
    assert (history / "notes.txt").exists()


def test_an_unfinished_file_is_not_read_and_goes(tmp_path: Path, sizes: Path) -> None:
    history = tmp_path / "history"
    append_run(history, sizes, NOON_MS, keep_days=10)
    begun = history / "day=2024-10-04" / ".123.parquet"
    begun.write_bytes(b"half a file")
    assert len(rows(history)) == 2
    append_run(history, sizes, NOON_MS + 1, keep_days=10)
    assert not begun.exists()


def test_runs_that_a_merge_holds_already_go(tmp_path: Path, sizes: Path) -> None:
    """Killed between the merge and the removal of what it merged."""
    history = tmp_path / "history"
    day = history / "day=2024-10-04"
    for hour in range(2):
        append_run(history, sizes, NOON_MS + hour, keep_days=10)
    saved = {path: path.read_bytes() for path in day.iterdir()}
    append_run(history, sizes, NOON_MS + DAY_MS, keep_days=10)
    for path, content in saved.items():
        path.write_bytes(content)
    append_run(history, sizes, NOON_MS + DAY_MS + 1, keep_days=10)
    assert [path.name for path in day.iterdir()] == [f"merged-{NOON_MS + 1}.parquet"]
    assert len([row for row in rows(history) if row[1] == "2024-10-04"]) == 4


def test_a_merge_that_a_later_merge_holds_already_goes(tmp_path: Path, sizes: Path) -> None:
    """Killed between the merge of a late run and the removal of the day's first merge."""
    history = tmp_path / "history"
    first = history / "day=2024-10-04" / f"merged-{NOON_MS + 1}.parquet"
    for run_at_ms in (NOON_MS, NOON_MS + 1, NOON_MS + DAY_MS):
        append_run(history, sizes, run_at_ms, keep_days=10)
    content = first.read_bytes()
    append_run(history, sizes, NOON_MS + 2, keep_days=10)
    append_run(history, sizes, NOON_MS + DAY_MS + 1, keep_days=10)
    first.write_bytes(content)
    append_run(history, sizes, NOON_MS + DAY_MS + 2, keep_days=10)
    assert [path.name for path in first.parent.iterdir()] == [f"merged-{NOON_MS + 2}.parquet"]
    assert len([row for row in rows(history) if row[1] == "2024-10-04"]) == 6


def test_a_recount_without_segments_is_an_empty_run(tmp_path: Path) -> None:
    empty = tmp_path / "sizes"
    empty.mkdir()
    pq.write_table(pa.table({"topic": pa.array([], pa.string())}), empty / "part-0.parquet")
    written = append_run(tmp_path / "history", empty, NOON_MS, keep_days=10)
    assert pq.read_table(written).num_rows == 0


# The arguments of the size job, and an output that cannot be written.


def test_ranges_have_a_default_and_are_read():
    assert parse_arguments(["--output", "d"]).ranges == READ_RANGES
    assert parse_arguments(["--output", "d", "--ranges", "1"]).ranges == 1


@pytest.mark.parametrize("ranges", ["0", "-1", "many"])
def test_unusable_ranges_are_a_usage_error(ranges: str):
    with pytest.raises(SystemExit) as ended:
        parse_arguments(["--output", "d", f"--ranges={ranges}"])
    assert ended.value.code == 2


def test_an_output_that_cannot_be_written_is_named(tmp_path: Path):
    (tmp_path / "file").touch()
    options = parse_arguments(["--output", str(tmp_path / "file" / "sizes")])
    no_session: Any = None
    refused = attempt(no_session, options)
    assert refused["exit_code"] == 2
    assert str(tmp_path / "file" / "sizes") in refused["error"]


@pytest.mark.parametrize(
    ("start", "end", "offsets"),
    [(5, 5, 1), (0, MOST_OFFSETS - 1, MOST_OFFSETS), (0, MOST_OFFSETS, MOST_OFFSETS), (0, 2**63 - 1, MOST_OFFSETS)],
)
def test_a_segment_counts_no_more_offsets_than_it_can_have(start: int, end: int, offsets: int) -> None:
    row = {"topic_id": "a", "partition": 0, "state": 1, "leader_epochs": "0", "size_bytes": 7}
    table = pa.Table.from_pylist([{**row, "start_offset": start, "end_offset": end}])
    assert added_up(table).column("offsets").to_pylist() == [offsets]


# The results of the rules outlive a run; only critical rules make a run fail.


def test_results_of_the_newest_runs_are_kept(tmp_path: Path) -> None:
    made = []
    for now_ms in (9, 10, 100, 1000):
        # A run that did not get to its end leaves nothing that the next one counts, and removes nothing.
        for _ in range(2):
            unfinished = unfinished_results(tmp_path)
            assert not unfinished.exists()
            unfinished.mkdir()
        made.append(keep_results(unfinished, now_ms, keep_runs=3))
    assert sorted(made[0].parent.iterdir()) == made[1:]
    assert list(tmp_path.iterdir()) == [made[0].parent]
    unfinished_results(tmp_path).mkdir()
    newest = keep_results(tmp_path / "results.unfinished", 1001, keep_runs=1)
    assert list(newest.parent.iterdir()) == [newest]


@pytest.mark.parametrize(
    ("severities", "stored", "code"),
    [
        ([], None, 0),
        (["critical"], None, 1),
        (["warning"], None, 0),
        (["warning"], ["warning"], 0),
        ([], ["warning", "critical"], 1),
    ],
)
def test_a_warning_is_reported_and_fails_no_run(severities: list[str], stored: list[str] | None, code: int) -> None:
    def differences(of: list[str]) -> list[dict[str, Any]]:
        return [{"rules": [{"rule": "own", "severity": severity} for severity in of]}] if of else []

    summary = {
        "differences": differences(severities),
        "stored": None if stored is None else {"differences": differences(stored), "unsettled": 0},
    }
    assert exit_code(summary) == code


@pytest.mark.parametrize("epochs", ["", "x:0", "0:x", "0:0,", "0:0;1:5", "-1:0"])
def test_a_damaged_list_of_leader_epochs_is_refused_with_its_segment(epochs: str) -> None:
    rows = [("topic", 0, 1, 5, 0, 9, "0:0", "first"), ("topic", 0, 1, 5, 10, 19, epochs, "second")]
    with pytest.raises(RemoteMetadataError, match=rf"segment second has the leader epochs '{epochs}'"):
        batch_of(rows)


# A manifest that cannot be read makes its segment a suspect; a store that does not answer ends the job, for a retry.


@dataclass
class _Compared:
    """Stands for the rows beside the listing: one FINISHED segment."""

    suspicion: Suspicion | None
    columns: tuple[str, ...] = ()

    def where(self, _: Any) -> "_Compared":
        return self

    def select(self, *columns: str) -> "_Compared":
        self.columns = columns
        return self

    def mapInArrow(self, check: Callable[[Batches], Batches], columns: str) -> list[dict[str, Any]]:  # noqa: N802
        suspicion = None if self.suspicion is None else self.suspicion.value
        values = ("orders", *SEGMENT_KEY, suspicion, 0, 9, 7, 5, "0:0")
        rows = pa.RecordBatch.from_pylist([dict(zip(self.columns, values, strict=True))])
        found = [row for batch in check(iter([rows])) for row in batch.to_pylist()]
        assert all(list(row) == [column.split()[0] for column in columns.split(",")] for row in found)
        return found


TOPIC_ID = Uuid.parse("AQIDBAUGBwgJCgsMDQ4PEA")
SEGMENT_KEY = (str(TOPIC_ID), 3, "__79_Pv6-fj39vX08_Lx8A")


def _suspects(
    monkeypatch: pytest.MonkeyPatch, error: RemoteStorageError, listed: Suspicion | None = None
) -> list[dict[str, Any]]:
    def fail(_: object) -> bytes:
        raise error

    app = SimpleNamespace(adapters=SimpleNamespace(storage=SimpleNamespace(fetch_manifest=fail)))
    settings: Any = SimpleNamespace(open_app=lambda: nullcontext(app))
    # Spark makes columns only in a session.
    monkeypatch.setattr(functions, "col", lambda _: SimpleNamespace(isNotNull=lambda: None))
    compared: Any = _Compared(listed)
    found: Any = sizes_listing.suspects(compared, {TOPIC_ID: "orders"}, settings, with_manifests=True)
    rows: list[dict[str, Any]] = found
    return rows


@pytest.mark.parametrize(
    ("listed", "error", "suspicion"),
    [
        (None, RemoteResourceNotFoundError("gone"), Suspicion.MISSING),
        (None, RemoteStorageError("no manifest has a gigabyte"), Suspicion.UNREADABLE),
        # It is checked again for all that may be wrong, its length included.
        (Suspicion.OTHER_SIZE, RemoteStorageError("no manifest has a gigabyte"), Suspicion.OTHER_SIZE),
    ],
)
def test_a_manifest_that_cannot_be_read_makes_its_segment_a_suspect(monkeypatch, listed, error, suspicion) -> None:
    (found,) = _suspects(monkeypatch, error, listed)
    assert (found["topic"], *(found[name] for name in ("topic_id", "partition", "segment_id"))) == (
        "orders",
        *SEGMENT_KEY,
    )
    assert (found["suspicion"], found["error"]) == (suspicion.value, None)


def test_a_store_that_does_not_answer_is_worth_a_retry(monkeypatch) -> None:
    (found,) = _suspects(monkeypatch, RemoteStorageUnavailableError("503"))
    assert (found["suspicion"], found["exit_code"]) == (None, ExitCode.RETRY)
    assert found["error"] == "RemoteStorageUnavailableError: 503"
    with pytest.raises(TaskStoppedError, match="503"):
        require_no_error([SimpleNamespace(**found)])
