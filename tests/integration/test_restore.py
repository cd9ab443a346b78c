"""A restored directory has the files that real brokers had: real logs, real stores, every partition of them."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from include.tiering.app import App, open_app
from include.tiering.app.recovery import other_storage
from include.tiering.errors import ForeignStoreError, SettingError
from include.tiering.formats import checkpoints, indexes
from include.tiering.formats.record_columns import RecordColumns
from include.tiering.model.segments import Depth, TopicIdPartition, Verdict
from include.tiering.reading.plan_scan import Bound, BoundKind, PartitionScan, ScanRequest
from include.tiering.restoring.copy_elsewhere import OtherStorage
from include.tiering.restoring.forms import RestoreForm
from include.tiering.restoring.parquet_files import FILE_SCHEMA, MOST_OPEN
from include.tiering.restoring.plan import RestoreRequest
from include.tiering.restoring.report import RestoreReport
from include.tiering.restoring.restore_segments import HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS
from include.tiering.restoring.target import MANIFEST, RestoreStep
from include.tiering.settings import load_settings
from tests.doubles.broker_data import broker_data, expected
from tests.doubles.quotas import NoQuotas, SameLimiter
from tests.doubles.spark import NO_JAVA
from tests.doubles.stored_log import CountingLimiter
from tests.doubles.whole_logs import (
    WholeLogs,
    consumed,
    digest_of,
    digest_of_records,
    oracle_of,
    records_in,
)

pytestmark = pytest.mark.integration


def wanted_of(*partitions: TopicIdPartition, start: int | None = None, end: int | None = None) -> RestoreRequest:
    wanted = RestoreRequest(tuple(sorted(partitions, key=lambda each: each.partition)))
    if start is not None:
        wanted = replace(wanted, start=Bound(BoundKind.OFFSET, start))
    return wanted if end is None else replace(wanted, end=Bound(BoundKind.OFFSET, end))


def restored(logs: WholeLogs, directory: Path, wanted: RestoreRequest) -> RestoreReport:
    return logs.app.restoring.run(wanted, directory)


def by_topic(logs: WholeLogs) -> dict[str, list[TopicIdPartition]]:
    found: dict[str, list[TopicIdPartition]] = {}
    for partition in logs.logs:
        found.setdefault(partition.topic, []).append(partition)
    return found


def broker_directory(partition: TopicIdPartition) -> Path:
    facts = expected("public")["facts"]["topics"][partition.topic]["partitions"][str(partition.partition)]
    return broker_data("public") / "stopped" / f"broker-{facts['leader']}" / str(partition)


def log_of(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))


def test_every_file_is_that_of_the_broker(public: WholeLogs, tmp_path: Path) -> None:
    compared = 0
    for topic, partitions in by_topic(public).items():
        report = restored(public, tmp_path / topic, wanted_of(*partitions))
        assert report.is_complete, report
        for partition in partitions:
            ours, theirs = tmp_path / topic / str(partition), broker_directory(partition)
            for path in sorted(theirs.glob("*.log")):
                assert (ours / path.name).read_bytes() == path.read_bytes()
                base, index = int(path.stem), (ours / path.name).with_suffix(".txnindex")
                wanted = theirs / index.name
                has_entries = wanted.exists() and wanted.stat().st_size > 0
                assert (index.read_bytes() if index.exists() else b"") == (wanted.read_bytes() if has_entries else b"")
                times = [
                    indexes.parse_time_index(index.with_suffix(".timeindex").read_bytes(), base_offset=base)
                    for index in (ours / path.name, path)
                ]
                assert times[0].largest_timestamp_ms == times[1].largest_timestamp_ms
                compared += 1
            assert len(list(ours.glob("*.log"))) == len(list(theirs.glob("*.log")))
            newest = max(ours.glob("*.snapshot"))
            assert newest.read_bytes() == (theirs / newest.name).read_bytes()
            epochs = (ours / "leader-epoch-checkpoint").read_bytes()
            assert checkpoints.parse_leader_epochs(epochs) == checkpoints.parse_leader_epochs(
                (theirs / "leader-epoch-checkpoint").read_bytes()
            ).range(int(min(ours.glob("*.log")).stem), int(newest.stem))
            assert (ours / "partition.metadata").read_bytes() == (theirs / "partition.metadata").read_bytes()
    assert compared >= 60


def test_the_directory_is_a_log_directory_but_for_its_owner(public: WholeLogs, tmp_path: Path) -> None:
    partition = public.partition("trimmed")
    restored(public, tmp_path / "target", wanted_of(partition))
    offsets = {
        name: checkpoints.parse_offset_checkpoint((tmp_path / "target" / name).read_bytes())
        for name in (LOG_STARTS, RECOVERY_POINTS, HIGH_WATERMARKS)
    }
    facts = expected("public")["facts"]["topics"]["trimmed"]["partitions"]["0"]["offsets"]
    assert offsets[LOG_STARTS] == {("trimmed", 0): facts["earliest"]["offset"]} == {("trimmed", 0): 333}
    assert offsets[RECOVERY_POINTS] == offsets[HIGH_WATERMARKS] == {("trimmed", 0): facts["latest"]["offset"]}
    assert not list((tmp_path / "target").rglob("*.partial"))


def test_segments_of_a_broker_that_tiers(tiered: WholeLogs, tmp_path: Path) -> None:
    """Another layout, without manifests; the first segments lie below the log start offset in part."""
    for topic, partitions in by_topic(tiered).items():
        report = restored(tiered, tmp_path / topic, wanted_of(*partitions))
        assert report.is_complete, report
        for partition in partitions:
            found = oracle_of([log_of(tmp_path / topic / str(partition))])
            wanted = oracle_of(tiered.logs[partition])
            offsets = {each.record.offset for each in found}
            assert found == [each for each in wanted if each.record.offset in offsets]
            last_stored = wanted[-1].record.offset
            assert found[-1].record.offset == last_stored


def test_a_second_run_reads_nothing(public: WholeLogs, tmp_path: Path) -> None:
    wanted, counting = wanted_of(public.partition("orders")), CountingLimiter()
    service = public.app.restoring
    service.run(wanted, tmp_path / "target")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "target").rglob("*.log")}
    service._quotas, kept = SameLimiter(counting), service._quotas
    try:
        again = service.run(wanted, tmp_path / "target")
    finally:
        service._quotas = kept
    assert again.is_complete
    assert (again.plan.cost.segments, again.plan.cost.requests, counting.total_bytes) == (0, 0, 0)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "target").rglob("*.log")} == before


@pytest.mark.parametrize(("start", "end"), [(0, 1), (150, 640), (664, 665), (700, None), (None, 500)])
def test_offsets_are_restored_in_whole_batches(
    public: WholeLogs, tmp_path: Path, start: int | None, end: int | None
) -> None:
    partition = public.partition("orders")
    report = restored(public, tmp_path / "target", wanted_of(partition, start=start, end=end))
    assert report.is_complete
    whole = oracle_of(public.logs[partition])
    first, behind = 0 if start is None else start, whole[-1].record.offset + 1 if end is None else end
    found = [each.record for each in oracle_of([log_of(tmp_path / "target" / str(partition))])]
    assert [each for each in found if first <= each.offset < behind] == [
        each.record for each in whole if first <= each.record.offset < behind
    ]
    starts = checkpoints.parse_offset_checkpoint((tmp_path / "target" / LOG_STARTS).read_bytes())
    assert starts == {("orders", 0): first}
    ends = checkpoints.parse_offset_checkpoint((tmp_path / "target" / HIGH_WATERMARKS).read_bytes())
    assert ends == {("orders", 0): found[-1].offset + 1}
    snapshots = sorted(int(path.stem) for path in (tmp_path / "target" / str(partition)).glob("*.snapshot"))
    assert snapshots[-1] == found[-1].offset + 1


def test_a_cut_log_has_the_producers_of_its_end(public: WholeLogs, tmp_path: Path) -> None:
    """With an open transaction, as a broker would have found it at that offset."""
    partition = public.partition("payments.v1-eu")
    whole = oracle_of(public.logs[partition])
    first_open = next(each for each in whole if each.is_aborted)
    report = restored(public, tmp_path / "target", wanted_of(partition, end=first_open.record.offset + 1))
    assert report.is_complete
    directory = tmp_path / "target" / str(partition)
    entries = indexes.parse_producer_snapshot(max(directory.glob("*.snapshot")).read_bytes())
    ends = oracle_of([log_of(directory)])
    open_now = {each.producer_id for each in ends if each.outcome == ["open"]}
    assert first_open.producer_id in open_now
    assert {entry.producer_id for entry in entries if entry.has_open_transaction} == open_now


def test_times_choose_offsets(public: WholeLogs, tmp_path: Path) -> None:
    partition = public.partition("orders")
    records = [each.record for each in oracle_of(public.logs[partition])]
    middle = records[len(records) // 2]
    wanted = RestoreRequest((partition,), start=Bound(BoundKind.TIMESTAMP, middle.timestamp_ms))
    first = next(each.offset for each in records if each.timestamp_ms >= middle.timestamp_ms)
    restored(public, tmp_path / "target", wanted)
    starts = checkpoints.parse_offset_checkpoint((tmp_path / "target" / LOG_STARTS).read_bytes())
    assert starts == {("orders", 0): first}


def test_a_segment_that_is_not_served_is_named(public: WholeLogs, tmp_path: Path) -> None:
    partition = public.partition("orders")
    metadata = public.app.adapters.stores.metadata
    second = metadata.list_segments(partition)[1].metadata
    metadata.record_verdict(second.remote_log_segment_id, Verdict.NONE)
    try:
        report = restored(public, tmp_path / "target", wanted_of(partition))
    finally:
        metadata.record_verdict(second.remote_log_segment_id, Verdict.PASSED)
    assert not report.is_complete
    assert any("verdict is none" in sentence for sentence in report.plan.said)
    again = restored(public, tmp_path / "target", wanted_of(partition))
    assert again.is_complete
    assert log_of(tmp_path / "target" / str(partition)) == b"".join(public.logs[partition])


def test_a_damaged_segment_is_named_and_nothing_of_it_is_left(public: WholeLogs, tmp_path: Path) -> None:
    """Whatever byte is wrong: of a batch, of its header, of an index, or the log of another segment."""
    partition = public.partition("payments.v1-eu")
    rows = public.app.adapters.stores.metadata.list_segments(partition)
    segment = next(row.metadata for row in rows if not row.metadata.txn_index_empty)
    store = Path(str(public.config.parent / "store"))
    for number, (suffix, position) in enumerate([("log", -1), ("log", 20), ("log", 3), ("indexes", -9)]):
        (path,) = store.rglob(f"*{segment.remote_log_segment_id.id}.{suffix}")
        intact = path.read_bytes()
        damaged = bytearray(intact)
        damaged[position] ^= 0x10
        path.chmod(0o600)
        path.write_bytes(damaged)
        target = tmp_path / f"target-{number}"
        try:
            report = restored(public, target, wanted_of(partition))
        finally:
            path.write_bytes(intact)
        (failed,) = report.failed
        assert failed.part.segment == segment
        assert not report.is_complete
        assert not (target / str(partition) / f"{segment.start_offset:020d}.log").exists()
        assert not (target / str(partition) / "leader-epoch-checkpoint").exists()
        assert not (target / LOG_STARTS).exists()
        assert restored(public, target, wanted_of(partition)).is_complete
        assert log_of(target / str(partition)) == b"".join(public.logs[partition])


def test_a_target_that_holds_something_else_is_refused(public: WholeLogs, tmp_path: Path) -> None:
    wanted, target = wanted_of(public.partition("orders")), tmp_path / "target"
    (target / "orders-0").mkdir(parents=True)
    with pytest.raises(SettingError, match="holds something else"):
        restored(public, target, wanted)
    (target / "orders-0").rmdir()
    restored(public, target, wanted)
    with pytest.raises(SettingError, match="holds another restore: its end"):
        restored(public, target, wanted_of(public.partition("orders"), end=100))
    (tmp_path / "link").symlink_to(target)
    with pytest.raises(SettingError, match="is no directory"):
        restored(public, tmp_path / "link", wanted)


def test_a_file_that_is_in_the_way_is_kept(public: WholeLogs, tmp_path: Path) -> None:
    wanted, target = wanted_of(public.partition("orders")), tmp_path / "target"
    restored(public, target, wanted_of(public.partition("orders")))
    lines = (target / MANIFEST).read_text().splitlines(keepends=True)
    (target / MANIFEST).write_text("".join(lines[:-1]))
    lost = json.loads(lines[-1])
    with pytest.raises(SettingError, match="exists already"):
        restored(public, target, wanted)
    (log,) = (name for name in lost["files"] if name.endswith(".log"))
    assert (target / log).stat().st_size == lost["files"][log]


def test_a_torn_line_of_the_manifest_counts_for_nothing(public: WholeLogs, tmp_path: Path) -> None:
    wanted, target = wanted_of(public.partition("audit_log")), tmp_path / "target"
    restored(public, target, wanted)
    content = (target / MANIFEST).read_bytes()
    last = json.loads(content.splitlines()[-1])
    for name in last["files"]:
        (target / name).unlink()
    (target / MANIFEST).write_bytes(content[:-20])
    assert restored(public, target, wanted).is_complete
    assert (target / MANIFEST).read_bytes() == content
    assert log_of(target / "audit_log-0") == b"".join(public.logs[public.partition("audit_log")])


# Parquet.


def rows_of(directory: Path) -> pa.Table:
    """All files below a directory, as a reader that knows partitions reads them, in the order of offsets."""
    files = sorted(directory.glob("date=*/*.parquet"))
    tables = [pq.read_table(path, partitioning=None) for path in files]
    assert {table.schema for table in tables} <= {FILE_SCHEMA.remove_metadata()}
    for path, table in zip(files, tables, strict=True):
        days = {time.date().isoformat() for time in table.column("timestamp").to_pylist()}
        assert days == {path.parent.name.removeprefix("date=")}
    return pa.concat_tables(tables).sort_by("offset") if tables else FILE_SCHEMA.empty_table()


def columns(*partitions: TopicIdPartition, committed: bool = False) -> RestoreRequest:
    return replace(wanted_of(*partitions), form=RestoreForm.PARQUET, committed=committed)


@pytest.mark.parametrize("committed", [False, True], ids=["read_uncommitted", "read_committed"])
def test_parquet_files_have_what_consumers_got(public: WholeLogs, tmp_path: Path, committed: bool) -> None:
    for partition in public.logs:
        target = tmp_path / str(partition)
        report = restored(public, target, columns(partition, committed=committed))
        assert all(not each.left for each in report.partitions), report
        found = rows_of(target)
        wanted = consumed("public", partition, committed=committed)
        assert digest_of(found.to_batches()) == wanted, partition
        done = report.partitions[0].done.values()
        assert sum(part.records for part in done) == wanted.records


def test_records_of_many_dates_are_in_their_directories(public: WholeLogs, tmp_path: Path) -> None:
    partition = public.partition("sensor-old")
    restored(public, tmp_path / "target", columns(partition))
    dates = sorted(path.name for path in (tmp_path / "target").glob("date=*"))
    assert len(dates) > MOST_OPEN
    assert dates[0] == "date=1970-01-01"


def test_a_range_of_offsets_is_exact_in_parquet(public: WholeLogs, tmp_path: Path) -> None:
    wanted = replace(
        columns(public.partition("orders")), start=Bound(BoundKind.OFFSET, 150), end=Bound(BoundKind.OFFSET, 641)
    )
    restored(public, tmp_path / "target", wanted)
    offsets = rows_of(tmp_path / "target").column("offset").to_pylist()
    assert offsets == list(range(150, 641))
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "target").rglob("*.parquet")}
    again = restored(public, tmp_path / "target", wanted)
    assert (again.is_complete, again.plan.cost.segments) == (True, 0)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "target").rglob("*.parquet")} == before


def test_a_damaged_segment_leaves_no_parquet_file(public: WholeLogs, tmp_path: Path) -> None:
    partition = public.partition("audit_log", 1)
    segment = public.app.adapters.stores.metadata.list_segments(partition)[0].metadata
    (path,) = (public.config.parent / "store").rglob(f"*{segment.remote_log_segment_id.id}.log")
    intact = path.read_bytes()
    path.chmod(0o600)
    path.write_bytes(intact[:-1] + bytes([intact[-1] ^ 1]))
    try:
        report = restored(public, tmp_path / "target", columns(partition))
    finally:
        path.write_bytes(intact)
    assert [failed.part.segment for failed in report.failed] == [segment]
    # Spark takes each file in a directory of a date for one of the table, whatever its suffix.
    assert not list((tmp_path / "target").glob(f"date=*/audit_log-1-{segment.start_offset:020d}-*"))


@NO_JAVA
def test_spark_reads_parquet_files_by_date(public: WholeLogs, tmp_path: Path, spark: SparkSession) -> None:
    """While the manifest lies beside them; with the date as a column, which prunes."""
    partition = public.partition("payments.v1-eu")
    restored(public, tmp_path / "target", columns(partition, committed=True))
    frame = spark.read.parquet(str(tmp_path / "target"))
    assert dict(frame.dtypes)["date"] == "date"
    assert frame.drop("date").schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    table = frame.drop("date").orderBy("offset").toArrow()
    assert digest_of(table.to_batches()) == consumed("public", partition, committed=True)
    assert frame.where("date <> to_date(timestamp)").count() == 0


# Another remote storage.


def other_config(directory: Path, **options: str) -> Path:
    config = directory / "other.toml"
    lines = [f'{name} = "{value}"' for name, value in options.items()]
    config.write_text("\n".join(["[remote_storage]", f'url = "{(directory / "elsewhere").as_uri()}"', *lines]))
    return config


def moved(logs: WholeLogs, directory: Path, *partitions: TopicIdPartition, other: OtherStorage) -> RestoreReport:
    wanted = replace(wanted_of(*partitions), form=RestoreForm.STORAGE, place=other.place)
    return logs.app.restoring.run(wanted, directory / "work", other=other)


@contextmanager
def rebuilt(directory: Path, config: Path) -> Iterator[App]:
    """The other storage, with metadata that were made from it alone."""
    settings = load_settings(
        config, {"metadata.url": f"sqlite:///{directory}/rebuilt.sqlite"}, {"HOME": str(directory)}
    )
    with open_app(settings, quotas=NoQuotas()) as app:
        app.recovery.rebuild(app.recovery.plan_rebuild(), author="test")
        assert app.verification.verify_run(depth=Depth.DEEP).failed == ()
        yield app


@pytest.mark.parametrize("committed", [False, True], ids=["read_uncommitted", "read_committed"])
@pytest.mark.parametrize(("source", "topic"), [("public", "payments.v1-eu"), ("tiered", "tier.tx")])
def test_another_storage_can_be_rebuilt_and_read(
    source: str, topic: str, committed: bool, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """From Aiven's layout, and from that of Kafka's LocalTieredStorage, into Aiven's, compressed."""
    logs: WholeLogs = request.getfixturevalue(source)
    partition = logs.partition(topic)
    config = other_config(tmp_path, layout="aiven", compression_enabled="true")
    other = other_storage(config, {})
    report = moved(logs, tmp_path, partition, other=other)
    assert report.is_complete, report
    again = moved(logs, tmp_path, partition, other=other)
    assert (again.is_complete, again.plan.cost.segments) == (True, 0)
    assert sorted(path.name for path in (tmp_path / "work").iterdir()) == [MANIFEST]
    with rebuilt(tmp_path, config) as app:
        ids = {row.metadata.remote_log_segment_id for row in app.adapters.stores.metadata.list_segments(partition)}
        assert ids == {part.segment.remote_log_segment_id for part in report.partitions[0].parts}
        plan = app.reading.plan_scan(ScanRequest((PartitionScan(partition),), committed=committed))
        columns_of = RecordColumns(partition.topic, partition.partition, include_headers=True)
        batches = [batch for task in plan.tasks for batch in app.reading.scan(task, columns_of)]
        first = report.partitions[0].offsets.first
        found = digest_of_records(each for batch in batches for each in records_in(batch) if each.offset >= first)
        assert found == consumed(source, partition, committed=committed)


def test_what_a_crash_left_elsewhere_is_written_again(public: WholeLogs, tmp_path: Path) -> None:
    partition, other = public.partition("audit_log"), other_storage(other_config(tmp_path), {})

    class Died(BaseException):
        """In place of a SIGKILL."""

    def die(step: str) -> None:
        if step == RestoreStep.WRITTEN:
            raise Died

    wanted = replace(wanted_of(partition), form=RestoreForm.STORAGE, place=other.place)
    with pytest.raises(Died):
        public.app.restoring.run(wanted, tmp_path / "work", other=other, observe=die)
    assert list((tmp_path / "elsewhere").rglob("*.log"))
    assert moved(public, tmp_path, partition, other=other).is_complete


def test_what_is_gone_elsewhere_is_copied_again(public: WholeLogs, tmp_path: Path) -> None:
    """Somebody has removed an object of what was copied; then everything, the marker too."""
    partition, other = public.partition("orders"), other_storage(other_config(tmp_path), {})
    assert moved(public, tmp_path, partition, other=other).is_complete
    elsewhere = tmp_path / "elsewhere"
    stored = {path: path.read_bytes() for path in elsewhere.rglob("*") if path.suffix == ".log"}
    next(iter(stored)).unlink()
    wanted = replace(wanted_of(partition), form=RestoreForm.STORAGE, place=other.place)
    assert public.app.restoring.plan(wanted, tmp_path / "work", other=other).cost.segments == 1
    again = moved(public, tmp_path, partition, other=other)
    assert (again.is_complete, again.plan.cost.segments) == (True, 1)
    for path in elsewhere.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    again = moved(public, tmp_path, partition, other=other_storage(other_config(tmp_path), {}))
    assert (again.is_complete, again.plan.cost.segments) == (True, len(stored))
    assert {path: path.read_bytes() for path in elsewhere.rglob("*") if path.suffix == ".log"} == stored


def test_a_place_that_holds_something_else_is_refused(public: WholeLogs, tmp_path: Path) -> None:
    partition, other = public.partition("orders"), other_storage(other_config(tmp_path), {})
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "other").write_text("something")
    with pytest.raises(ForeignStoreError, match="needs an empty place"):
        moved(public, tmp_path, partition, other=other)
    (tmp_path / "elsewhere" / "other").unlink()
    assert moved(public, tmp_path, partition, other=other).is_complete
    with pytest.raises(ForeignStoreError, match="not this restore"):
        moved(public, tmp_path / "second", partition, other=other)
    (tmp_path / "work" / MANIFEST).unlink()
    with pytest.raises(ForeignStoreError, match="not this restore"):
        moved(public, tmp_path, partition, other=other)  # As on another host, with a directory of the same path.
    own = public.app.adapters.place
    with pytest.raises(SettingError, match="overlaps the storage"):
        public.app.restoring.requested("orders", form=RestoreForm.STORAGE, place=own)
