"""Each kind of damage to real segments shows in the rule that is there for it."""

import dataclasses
import os
from collections import Counter
from pathlib import Path
from typing import Any

import google_crc32c
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from include.tiering.errors import (
    RemoteAccessDeniedError,
    RemoteStorageError,
    RemoteStorageUnavailableError,
    SendingStoppedError,
)
from include.tiering.formats import indexes
from include.tiering.formats.record_batch import HEADER_SIZE, iter_headers
from include.tiering.model.histories import OffsetRange, SkippedOffsets
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.ownership import SegmentOrigin
from include.tiering.model.segments import Depth, IndexType, RemoteLogSegmentMetadata
from include.tiering.quotas.contract import UnlimitedBytes
from include.tiering.remote_storage.file.store import FileObjectStore
from include.tiering.remote_storage.layouts.local_tiered_storage import LocalTieredStorageLayout
from include.tiering.remote_storage.object_store import ObjectStat
from include.tiering.remote_storage.segment_storage import SegmentStorage
from include.tiering.segments.contract import SegmentRow
from include.tiering.units import MIB
from include.tiering.verification.measure_segment import measure_segment
from include.tiering.verification.measures import SegmentMeasure
from include.tiering.verification.rules import RULES, explain
from tests.doubles.memory_source import BytesSource
from tests.doubles.partial import Partial
from tests.doubles.plain_evaluator import PlainEvaluator
from tests.doubles.stored_log import CopiedPartition, CountingLimiter, copied_partition


@pytest.fixture
def partition(tmp_path: Path) -> CopiedPartition:
    return copied_partition(tmp_path, segments=3)


def measured(
    partition: CopiedPartition,
    row: SegmentRow,
    previous: RemoteLogSegmentMetadata | None = None,
    depth: Depth = Depth.SHALLOW,
) -> SegmentMeasure:
    return measure_segment(row, previous=previous, storage=partition.storage, limiter=UnlimitedBytes(), depth=depth)


def broken(measure: SegmentMeasure) -> set[str]:
    return {breach.rule.rule_id for breach in PlainEvaluator().evaluate([measure])}


def with_metadata(row: SegmentRow, **changes: Any) -> SegmentRow:
    return dataclasses.replace(row, metadata=dataclasses.replace(row.metadata, **changes))


def test_every_column_of_a_rule_is_filled_at_its_depths_and_no_other(partition: CopiedPartition) -> None:
    for depth in Depth:
        measure = measured(partition, partition.rows[1], depth=depth)
        asked = {column for rule in RULES if depth in rule.depths for column in rule.check.columns}
        of_all_rules = {column for rule in RULES for column in rule.check.columns}
        assert {c for c in of_all_rules if getattr(measure, c) is not None} - {"max_timestamp_ms"} == asked - {
            "max_timestamp_ms"
        }


@pytest.mark.parametrize("depth", Depth)
def test_every_byte_that_is_read_is_charged_first(partition: CopiedPartition, depth: Depth) -> None:
    row, limiter = partition.rows[1], CountingLimiter()
    measure = measure_segment(row, previous=None, storage=partition.storage, limiter=limiter, depth=depth)
    sizes = {s: partition.object_path(row, s).stat().st_size for s in ("log", "indexes", "rsm-manifest")}
    assert measure.bytes_read == limiter.total_bytes
    if depth is Depth.DEEP:
        assert measure.bytes_read == sum(sizes.values())


def test_a_deep_measure_reads_each_byte_once(partition: CopiedPartition, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []

    def counting_pread(fd: int, size_bytes: int, position: int) -> bytes:
        block = os_pread(fd, size_bytes, position)
        taken.append(len(block))
        return block

    os_pread = os.pread
    monkeypatch.setattr(os, "pread", counting_pread)
    measure = measured(partition, partition.rows[1], depth=Depth.DEEP)
    assert measure.bytes_read == sum(taken)


def test_a_shallow_measure_of_a_large_log_reads_its_ends(tmp_path: Path) -> None:
    copied = copied_partition(tmp_path, "bigrecs-0")
    row = max(copied.rows, key=lambda row: row.metadata.segment_size_bytes)
    measure = measured(copied, row)
    small = sum(copied.object_path(row, suffix).stat().st_size for suffix in ("indexes", "rsm-manifest"))
    index = indexes.parse_offset_index(copied.storage.fetch_index(row.metadata, IndexType.OFFSET), base_offset=0)
    head = int.from_bytes(copied.object_path(row, "log").read_bytes()[8:12], "big") + 12
    tail = row.metadata.segment_size_bytes - int(index.positions[-1])
    assert measure.bytes_read == small + HEADER_SIZE + head + tail < row.metadata.segment_size_bytes


@pytest.mark.parametrize(
    ("at", "field", "rules"),
    [
        ("first", (0, bytes(8)), {"Q251"}),
        ("first", (12, b"\0\0\0\x05"), {"Q251"}),
        ("first", (16, b"\x01"), {"Q251"}),
        ("first", (8, b"\x7f\xff\xff\xff"), {"Q251"}),
        ("first", (8, b"\xff\xff\xff\xff"), {"Q251"}),
        ("first", (40, b"\xff"), {"Q251"}),
        ("last", (0, bytes(8)), {"Q252"}),
        ("last", (12, b"\0\0\0\x05"), {"Q252"}),
        ("last", (8, b"\0\0\0\x40"), {"Q252"}),
        ("last", (40, b"\xff"), {"Q252"}),
    ],
)
def test_a_shallow_measure_fails_the_batches_at_both_ends(
    partition: CopiedPartition, at: str, field: tuple[int, bytes], rules: set[str]
) -> None:
    """Even where the source's checksum is that of the damaged log."""
    row = partition.rows[1]
    path = partition.object_path(row, "log")
    log = path.read_bytes()
    starts = [batch.position for batch in iter_headers(BytesSource(log))]
    position = {"first": 0, "last": starts[-1]}[at] + field[0]
    path.write_bytes(log[:position] + field[1] + log[position + len(field[1]) :])
    rotten = dataclasses.replace(row, log_crc32c=google_crc32c.value(path.read_bytes()))
    assert broken(measured(partition, rotten)) == rules


def test_an_offset_index_without_entries_has_the_log_read_to_its_end(tmp_path: Path) -> None:
    copied = copied_partition(tmp_path, "bigrecs-0", segments=1)
    (row,) = copied.rows
    index = copied.storage.fetch_index(row.metadata, IndexType.OFFSET)
    path = copied.object_path(row, "indexes")
    path.write_bytes(bytes(len(index)) + path.read_bytes()[len(index) :])
    measure = measured(copied, row)
    assert broken(measure) == {"Q201"}
    assert measure.bytes_read > row.metadata.segment_size_bytes


def test_a_limiter_that_stops_is_no_measure(partition: CopiedPartition) -> None:
    limiter = CountingLimiter(allowance=2000, error=SendingStoppedError("paused"))
    with pytest.raises(SendingStoppedError):
        measure_segment(partition.rows[1], previous=None, storage=partition.storage, limiter=limiter, depth=Depth.DEEP)


def test_a_flipped_byte_of_the_log_is_another_checksum(partition: CopiedPartition) -> None:
    path = partition.object_path(partition.rows[1], "log")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert broken(measured(partition, partition.rows[1])) == {"Q102"}
    assert broken(measured(partition, partition.rows[1], depth=Depth.DEEP)) == {"Q102", "Q262"}


def test_a_short_log_is_another_length_and_checksum(partition: CopiedPartition) -> None:
    path = partition.object_path(partition.rows[1], "log")
    path.write_bytes(path.read_bytes()[:-1])
    assert broken(measured(partition, partition.rows[1])) == {"Q101", "Q102", "Q252"}


def test_a_missing_log_is_not_measured_and_fails(partition: CopiedPartition) -> None:
    partition.object_path(partition.rows[1], "log").unlink()
    measure = measured(partition, partition.rows[1])
    assert measure.stored_log_size_bytes is None
    assert broken(measure) == {"Q101", "Q102", "Q106", "Q251", "Q252"}
    deep = measured(partition, partition.rows[1], depth=Depth.DEEP)
    of_the_log = {rule.rule_id for rule in RULES if rule.check.column.startswith(("log_", "read_"))}
    assert of_the_log <= broken(deep)
    assert "not in the store" in dict(deep.remarks)["stored_log_size_bytes"]


def test_brokers_that_do_not_say_whether_the_transaction_index_is_empty_contradict_nothing(
    partition: CopiedPartition,
) -> None:
    row = next(row for row in partition.rows if row.metadata.txn_index_empty)
    unsaid = dataclasses.replace(row.metadata, txn_index_empty=False)
    of_a_broker = dataclasses.replace(row, metadata=unsaid, log_crc32c=None)
    assert "Q224" in broken(measured(partition, dataclasses.replace(row, metadata=unsaid)))
    assert "Q224" not in broken(measured(partition, of_a_broker))
    full = next(row for row in partition.rows if not row.metadata.txn_index_empty)
    wrong = dataclasses.replace(full.metadata, txn_index_empty=True)
    assert "Q224" in broken(measured(partition, dataclasses.replace(full, metadata=wrong, log_crc32c=None)))


def test_a_checksum_that_nobody_recorded_fails(partition: CopiedPartition) -> None:
    row = dataclasses.replace(partition.rows[1], log_crc32c=None)
    (breach,) = PlainEvaluator().evaluate([measured(partition, row)])
    assert breach.rule.rule_id == "Q102"
    assert "log_crc32c is not known" in explain(breach.rule, breach.measure)


def test_a_deep_measure_needs_no_recorded_checksum(partition: CopiedPartition) -> None:
    row = dataclasses.replace(partition.rows[1], log_crc32c=None)
    measure = measured(partition, row, depth=Depth.DEEP)
    assert broken(measure) == set()
    assert measure.log_crc32c == partition.rows[1].log_crc32c


@pytest.mark.parametrize("suffix", ["rsm-manifest", "indexes"])
def test_a_missing_object_fails_whatever_is_read_from_it(partition: CopiedPartition, suffix: str) -> None:
    partition.object_path(partition.rows[1], suffix).unlink()
    found = broken(measured(partition, partition.rows[1]))
    assert {"Q201", "Q203", "Q211", "Q231", "Q241"} <= found
    assert ("Q104" in found) == (suffix == "rsm-manifest")
    assert not found & {"Q101", "Q102"}


def test_a_manifest_that_is_not_json_fails(partition: CopiedPartition) -> None:
    partition.object_path(partition.rows[1], "rsm-manifest").write_bytes(b"{")
    measure = measured(partition, partition.rows[1])
    assert "Q104" in broken(measure)
    assert "could not be measured" in dict(measure.remarks)["manifest_differences"]


def test_a_manifest_of_other_offsets_names_the_fields(partition: CopiedPartition) -> None:
    path = partition.object_path(partition.rows[0], "rsm-manifest")
    path.write_bytes(path.read_bytes().replace(b'"endOffset":119', b'"endOffset":118'))
    measure = measured(partition, partition.rows[0])
    assert broken(measure) == {"Q104"}
    assert dict(measure.remarks)["manifest_differences"].endswith("end_offset")


def test_an_index_byte_that_changed_after_the_copy_is_found_by_its_index(partition: CopiedPartition) -> None:
    row = partition.rows[1]
    path = partition.object_path(row, "indexes")
    content = bytearray(path.read_bytes())
    content[4:8] = (row.metadata.segment_size_bytes).to_bytes(4, "big")
    path.write_bytes(content)
    found = broken(measured(partition, row))
    assert {"Q202", "Q203"} <= found <= {"Q103", "Q202", "Q203"}


def test_a_producer_snapshot_with_a_wrong_crc_fails(partition: CopiedPartition) -> None:
    row = partition.rows[1]
    path = partition.object_path(row, "indexes")
    content = bytearray(path.read_bytes())
    content[16 + 12 + 20] ^= 1  # behind the offset index (16 bytes) and the time index (12): inside the snapshot
    path.write_bytes(content)
    assert "Q231" in broken(measured(partition, row))


def test_metadata_that_denies_its_transactions_is_a_contradiction(partition: CopiedPartition) -> None:
    assert broken(measured(partition, with_metadata(partition.rows[1], txn_index_empty=True))) == {"Q224"}
    assert broken(measured(partition, with_metadata(partition.rows[0], txn_index_empty=False))) == {"Q224"}


def test_metadata_with_other_epochs_than_the_stored_history(partition: CopiedPartition) -> None:
    row = with_metadata(partition.rows[1], segment_leader_epochs=LeaderEpochs.of([(1, 120)]))
    assert broken(measured(partition, row)) == {"Q104", "Q241", "Q251", "Q252"}


def test_a_history_that_contradicts_the_segment_before(partition: CopiedPartition) -> None:
    before, row = partition.rows[0].metadata, partition.rows[1]
    assert broken(measured(partition, row, before)) == set()
    other = dataclasses.replace(before, segment_leader_epochs=LeaderEpochs.of([(0, 0), (1, 60)]))
    measure = measured(partition, row, other)
    assert measure.leader_epochs_unlike_previous == 1
    assert broken(measure) == {"Q303", "Q304"}
    behind_a_gap = dataclasses.replace(other, end_offset=other.end_offset - 1)
    assert "Q304" not in broken(measured(partition, row, behind_a_gap))


def test_a_manifest_of_another_broker_or_that_denies_its_transactions(partition: CopiedPartition) -> None:
    path = partition.object_path(partition.rows[1], "rsm-manifest")
    content = path.read_bytes()
    for old, new in ((b'"brokerId":1', b'"brokerId":2'), (b'"txnIdxEmpty":false', b'"txnIdxEmpty":true')):
        assert old in content
        path.write_bytes(content.replace(old, new))
        assert broken(measured(partition, partition.rows[1])) == {"Q104"}


def test_metadata_whose_epochs_begin_before_its_start(partition: CopiedPartition) -> None:
    row = with_metadata(partition.rows[1], segment_leader_epochs=LeaderEpochs.of([(0, 119)]))
    assert broken(measured(partition, row)) == {"Q104", "Q241", "Q242"}


def test_metadata_with_an_older_maximum_than_the_time_index(partition: CopiedPartition) -> None:
    row = with_metadata(partition.rows[0], max_timestamp_ms=partition.rows[0].metadata.max_timestamp_ms - 1)
    assert broken(measured(partition, row)) == {"Q104", "Q213", "Q215", "Q252"}


def test_a_gap_is_named_and_without_fault_where_it_was_skipped_by_decision(partition: CopiedPartition) -> None:
    first, gone, third = (row.metadata for row in partition.rows)
    hole = OffsetRange(gone.start_offset, gone.end_offset)

    def with_decision(*offsets: OffsetRange) -> SegmentMeasure:
        decisions = [SkippedOffsets(one, "lost", "me", 0) for one in offsets]
        row = partition.rows[2]
        return measure_segment(
            row, previous=first, storage=partition.storage, limiter=UnlimitedBytes(), decisions=decisions
        )

    assert broken(with_decision()) == {"Q301"}
    assert (broken(with_decision(hole)), with_decision(hole).missing_offsets) == (set(), 0)
    part = with_decision(OffsetRange(hole.first, hole.first + 9))
    assert part.missing_offsets == third.start_offset - hole.first - 10
    (breach,) = PlainEvaluator().evaluate([part])
    assert explain(breach.rule, part).endswith(
        f"missing_offsets = {hole.size - 10}: {hole.first + 10}..{hole.last}; "
        f"decisions skip {hole.first}..{hole.first + 9}"
    )


class TestMissing:
    """Whether a segment that fails looks as if something of it were not there yet."""

    @pytest.fixture(params=Depth)
    def depth(self, request: pytest.FixtureRequest) -> Depth:
        return request.param

    @pytest.fixture
    def files(self, tmp_path: Path) -> CopiedPartition:
        """Each index is a file of its own; the second one has aborted transactions."""
        return copied_partition(tmp_path / "files", layout=LocalTieredStorageLayout())

    def test_nothing_of_a_whole_segment_is(self, partition: CopiedPartition, files: CopiedPartition, depth: Depth):
        for copied in (partition, files):
            found = [measured(copied, row, depth=depth) for row in copied.rows]
            assert [(one.objects_missing, one.is_missing) for one in found] == [(0, False)] * len(copied.rows)

    def test_it_costs_no_request_to_know_it(
        self, partition: CopiedPartition, depth: Depth, monkeypatch: pytest.MonkeyPatch
    ):
        """Each object is asked for once; manifest and indexes are read once, the log at both ends or as a whole."""
        asked: list[str] = []
        for name in ("stat", "head", "read", "read_version"):
            ask = getattr(FileObjectStore, name)

            def counted(self, key, *args, ask=ask, name=name, **rest):
                asked.append(f"{name} {key.rpartition('.')[2]}")
                return ask(self, key, *args, **rest)

            monkeypatch.setattr(FileObjectStore, name, counted)
        assert not measured(partition, partition.rows[1], depth=depth).is_missing
        of_the_log = 3 if depth is Depth.SHALLOW else 1
        assert Counter(asked) == {
            "stat log": 1,
            "stat indexes": 1,
            "stat rsm-manifest": 1,
            "read indexes": 1,
            "read rsm-manifest": 1,
            "read log": of_the_log,
        }

    @pytest.mark.parametrize("suffix", ["log", "indexes", "rsm-manifest"])
    def test_any_object_may_be(self, partition: CopiedPartition, suffix: str, depth: Depth):
        path = partition.object_path(partition.rows[1], suffix)
        for change in (lambda: path.write_bytes(b""), path.unlink):
            change()
            measure = measured(partition, partition.rows[1], depth=depth)
            assert (measure.objects_missing, measure.is_missing) == (1, True)
            assert suffix in dict(measure.remarks)["objects_missing"]

    @pytest.mark.parametrize("suffix", ["log", "index", "timeindex", "snapshot", "leader_epoch_checkpoint"])
    def test_any_file_may_be(self, files: CopiedPartition, suffix: str, depth: Depth):
        path = files.object_path(files.rows[1], suffix)
        path.unlink()
        assert measured(files, files.rows[1], depth=depth).is_missing
        path.write_bytes(b"")
        emptied = measured(files, files.rows[1], depth=depth)
        assert emptied.is_missing == (suffix != "index")
        path.write_bytes(b"x")
        damaged = measured(files, files.rows[1], depth=depth)
        assert (bool(broken(damaged)), damaged.is_missing) == (True, False)

    def test_a_transaction_index_is_if_the_metadata_says_that_there_is_one(self, files: CopiedPartition, depth: Depth):
        row = next(row for row in files.rows if not row.metadata.txn_index_empty)
        path = files.object_path(row, "txnindex")
        for change in (lambda: path.write_bytes(b""), path.unlink):
            change()
            assert measured(files, row, depth=depth).is_missing
        other = next(row for row in files.rows if row.metadata.txn_index_empty)
        assert not measured(files, other, depth=depth).is_missing

    @pytest.mark.parametrize("suffix", ["log", "indexes", "rsm-manifest"])
    def test_what_has_bytes_and_wrong_ones_is_not(self, partition: CopiedPartition, suffix: str, depth: Depth):
        path = partition.object_path(partition.rows[1], suffix)
        path.write_bytes(b"x" * path.stat().st_size)
        measure = measured(partition, partition.rows[1], depth=depth)
        assert broken(measure)
        assert not measure.is_missing


class StorageThatFails(Partial):
    """Every question after the first is answered by `error`."""

    def __init__(self, storage: SegmentStorage, error: RemoteStorageError) -> None:
        self.stat_log_segment = storage.stat_log_segment
        self.required_kinds = storage.required_kinds
        self.bytes_read = 0
        self._error = error

    def open_log_segment(self, metadata: RemoteLogSegmentMetadata, **_: Any) -> "StorageThatFails":
        self.objects = lambda: self.stat_log_segment(metadata)
        return self

    def _fail(self, *_: object) -> bytes:
        raise self._error

    index = manifest = log = transformed_sizes = whole = _fail


def test_a_store_that_does_not_answer_is_no_measure(partition: CopiedPartition) -> None:
    storage = StorageThatFails(partition.storage, RemoteStorageUnavailableError("503"))
    with pytest.raises(RemoteStorageUnavailableError):
        measure_segment(partition.rows[0], previous=None, storage=storage, limiter=UnlimitedBytes())


def test_a_store_that_refuses_leaves_everything_unmeasured(partition: CopiedPartition) -> None:
    storage = StorageThatFails(partition.storage, RemoteStorageError("access denied"))
    measure = measure_segment(partition.rows[0], previous=None, storage=storage, limiter=UnlimitedBytes())
    found = broken(measure)
    assert {"Q103", "Q104", "Q201", "Q212", "Q223", "Q224", "Q231", "Q241"} <= found
    remarks = dict(measure.remarks)
    assert remarks.pop("objects_missing") == "at least one object could not be read"
    assert all("access denied" in text for text in remarks.values())


@pytest.mark.parametrize("depth", Depth)
@pytest.mark.parametrize(
    "error", [RemoteAccessDeniedError("InvalidObjectState"), RemoteStorageError("KMS.DisabledException (400)")], ids=str
)
def test_what_the_store_has_and_does_not_give_is_not_damaged(
    partition: CopiedPartition, error: RemoteStorageError, depth: Depth
) -> None:
    """As of an archive tier, or with a disabled key: the store tells length and checksum all the same."""
    storage = StorageThatFails(partition.storage, error)
    measure = measure_segment(partition.rows[0], previous=None, storage=storage, limiter=UnlimitedBytes(), depth=depth)
    assert (measure.objects_missing, measure.is_missing) == (None, True)
    assert {"Q103", "Q106"} <= broken(measure)


@pytest.mark.parametrize("depth", Depth)
def test_a_segment_whose_manifest_is_of_a_later_release_is_not_damaged(
    partition: CopiedPartition, depth: Depth
) -> None:
    path = partition.object_path(partition.rows[0], "rsm-manifest")
    content = path.read_bytes()
    try:
        path.write_bytes(content.replace(b'"version":"1"', b'"version":"2"'))
        measure = measure_segment(
            partition.rows[0], previous=None, storage=partition.storage, limiter=UnlimitedBytes(), depth=depth
        )
    finally:
        path.write_bytes(content)
    assert (measure.objects_missing, measure.is_missing) == (None, True)
    assert any("this release reads version 1" in text for _, text in measure.remarks)


@st.composite
def damages(draw: st.DrawFn) -> tuple[str, str, float, bytes]:
    """(object, what happens, where as a share of its length, bytes)"""
    return (
        draw(st.sampled_from(["log", "indexes", "rsm-manifest"])),
        draw(st.sampled_from(["cut", "insert", "overwrite"])),
        draw(st.floats(0, 1, exclude_max=True)),
        draw(st.binary(min_size=1, max_size=40)),
    )


def damaged(content: bytes, action: str, at: float, noise: bytes) -> bytes:
    position = int(len(content) * at)
    kept_from = {"cut": len(content), "insert": position, "overwrite": position + len(noise)}[action]
    return content[:position] + (b"" if action == "cut" else noise) + content[kept_from:]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(damage=damages())
def test_no_damage_is_an_error_and_none_of_the_log_goes_unseen(
    partition: CopiedPartition, damage: tuple[str, str, float, bytes]
) -> None:
    suffix, action, at, noise = damage
    row = partition.rows[1]
    path = partition.object_path(row, suffix)
    content = path.read_bytes()
    changed = damaged(content, action, at, noise)
    try:
        path.write_bytes(changed)
        found = broken(measured(partition, row))
    finally:
        path.write_bytes(content)
    if changed == content:
        assert found == set()
        return
    if suffix == "log" or (suffix == "indexes" and len(changed) != len(content)):
        assert found
    if suffix == "log":
        assert {"Q101", "Q102"} & found
        assert found <= {"Q101", "Q102", "Q215", "Q251", "Q252"} | (set() if changed else {"Q106"})


# What others stored: brokers' segments, and objects that cannot be theirs.


def test_a_brokers_segment_has_no_checksum_to_compare_with(partition: CopiedPartition) -> None:
    row = dataclasses.replace(partition.rows[1], log_crc32c=None, origin=SegmentOrigin.BROKER)
    assert broken(measured(partition, row)) == set()
    assert broken(measured(partition, row, depth=Depth.DEEP)) == set()
    partition.object_path(row, "log").unlink()
    assert "Q102" in broken(measured(partition, row)), "a log that is not there"


def test_a_checksum_that_the_store_keeps_is_told_however_long_the_object_is(
    partition: CopiedPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    row, real_stat = partition.rows[1], FileObjectStore.stat
    os.truncate(partition.object_path(row, "log"), 1 << 40)

    def kept(store: FileObjectStore, key: str, **bounds: Any) -> ObjectStat | None:
        found = real_stat(store, key, **bounds)
        return found if found is None or found.crc32c is not None else dataclasses.replace(found, crc32c=7)

    monkeypatch.setattr(FileObjectStore, "stat", kept)
    log = next(stored for stored in partition.storage.stat_log_segment(row.metadata) if stored.size_bytes == 1 << 40)
    assert log.crc32c == 7


def test_a_log_that_is_far_too_long_is_not_read_to_its_end(
    partition: CopiedPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One sparse object of a terabyte must not hold a verification up."""
    row, read_bytes = partition.rows[1], 0
    os.truncate(partition.object_path(row, "log"), 1 << 40)
    real_pread = os.pread

    def counted(fd: int, size: int, position: int) -> bytes:
        nonlocal read_bytes
        read_bytes += size
        assert read_bytes < 64 * MIB, "it reads on and on"
        return real_pread(fd, size, position)

    monkeypatch.setattr(os, "pread", counted)
    assert {"Q101", "Q102"} <= broken(measured(partition, row))
