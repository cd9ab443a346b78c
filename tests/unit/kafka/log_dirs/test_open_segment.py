"""A rolled segment held open: what the check pass hands over, and every change that `recheck` must see."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from include.tiering.errors import CorruptFileError, SourceChangedError, SourceVanishedError, TieringError
from include.tiering.formats.record_batch import HEADER_SIZE
from include.tiering.kafka.cluster.metadata_log import MetadataLog
from include.tiering.kafka.log_dirs.contract import IneligibleReason, OpenSegment, ReplicaId
from include.tiering.kafka.log_dirs.dirs import LogDirLocation
from include.tiering.kafka.log_dirs.files import BrokerFile
from include.tiering.kafka.log_dirs.source import LogDirSource
from include.tiering.model.segments import TopicIdPartition, Uuid
from tests.doubles.log_dirs import LOG_STARTS, ORDERS, BrokerLogDir, PartitionDirectory
from tests.doubles.record_batches import old_batch, record_batch
from tests.doubles.tiered_topic import config_record, partition_change, partition_record, remove_topic, topic_record

OTHER_TOPIC = Uuid(b"orders-topic-id1")
EPOCHS = ((0, 0), (1, 4), (2, 15), (3, 20))


class Setup:
    """Topic `orders` with the segments 0, 10, 20 and 30; the one at 10 is held open."""

    def __init__(self, root: Path) -> None:
        self.dir = BrokerLogDir(root / "data")
        self.dir.create_topic()
        self.partition = self.dir.partition(epochs=EPOCHS)
        end = self.partition.filled(0, 10, 20, 30)
        for path in self.partition.path.glob("*.log"):
            path.chmod(0o644)
        self.dir.all_current({"orders-0": end})
        self.cluster_metadata = MetadataLog([self.dir.path])
        self.source = LogDirSource([LogDirLocation(1, self.dir.path)], self.cluster_metadata)
        self.replica_id = ReplicaId(TopicIdPartition(ORDERS, 0, "orders"), 1, str(self.dir.directory_id))
        self.log = self.partition.file(10, "log")


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    # Batches of the doubles carry epoch 0; the history is only compared, never checked against them, here.
    return Setup(tmp_path)


@pytest.fixture
def opened(setup: Setup) -> Iterator[OpenSegment]:
    with setup.source.open_segment(setup.replica_id, 10) as opened:
        yield opened


def _delete_segment(setup: Setup) -> None:
    for kind in ("log", "index", "timeindex"):
        setup.partition.file(10, kind).unlink()


def _rename_to_deleted(setup: Setup) -> None:
    setup.log.rename(setup.log.with_suffix(".log.deleted"))


def _truncate(setup: Setup) -> None:
    with setup.log.open("r+b") as log:
        log.truncate(100)


def _rewrite_in_place(setup: Setup) -> None:
    with setup.log.open("r+b") as log:
        log.seek(70)
        log.write(b"x")


def _replace(setup: Setup) -> None:
    data = setup.log.read_bytes()
    setup.log.unlink()
    (setup.partition.path / "filler").touch()
    setup.log.write_bytes(data)


def _delete_index(setup: Setup) -> None:
    setup.partition.file(10, "timeindex").unlink()


def _drop_successors(setup: Setup) -> None:
    for base in (20, 30):
        setup.partition.file(base, "log").unlink()


def _roll_earlier(setup: Setup) -> None:
    setup.partition.file(15, "log").touch()


def _recreate_topic(setup: Setup) -> None:
    shutil.rmtree(setup.partition.path)
    setup.dir.partition(topic_id=OTHER_TOPIC).filled(0, 10, 20, 30)


def _other_topic_id(setup: Setup) -> None:
    (setup.partition.path / "partition.metadata").write_text(f"version: 0\ntopic_id: {OTHER_TOPIC}")


def _swap_directory(setup: Setup) -> None:
    aside = setup.partition.path.with_name("aside")
    setup.partition.path.rename(aside)
    shutil.copytree(aside, setup.partition.path)


def _move_directory_away(setup: Setup) -> None:
    setup.partition.path.rename(setup.partition.path.with_name(f"orders-0.{'0' * 32}-delete"))


def _link_directory(setup: Setup) -> None:
    aside = setup.partition.path.with_name("aside")
    setup.partition.path.rename(aside)
    setup.partition.path.symlink_to(aside)


def _replace_log_dir(setup: Setup) -> None:
    meta = setup.dir.path / "meta.properties"
    meta.write_text(meta.read_text().replace(str(setup.dir.directory_id), str(OTHER_TOPIC)))


def _other_epochs(setup: Setup) -> None:
    setup.partition.epochs(((0, 0), (1, 4), (2, 14), (3, 20)))


def _lost_epochs(setup: Setup) -> None:
    (setup.partition.path / "leader-epoch-checkpoint").unlink()


def _cut_by_epochs(setup: Setup) -> None:
    setup.partition.epochs(((3, 25),))


def _raise_log_start(setup: Setup) -> None:
    setup.dir.checkpoint(LOG_STARTS, {"orders-0": 20})


def _move_leader(setup: Setup) -> None:
    setup.dir.append_metadata(partition_change(ORDERS, leader=2))


def _reelect_leader(setup: Setup) -> None:
    setup.dir.append_metadata(partition_change(ORDERS, leader=1))


def _enable_remote_storage(setup: Setup) -> None:
    setup.dir.append_metadata(config_record("orders", "remote.storage.enable", "true"))


def _compact(setup: Setup) -> None:
    setup.dir.append_metadata(config_record("orders", "cleanup.policy", "compact"))


def _delete_topic(setup: Setup) -> None:
    setup.dir.append_metadata(remove_topic(ORDERS))


def _recreate_topic_in_metadata(setup: Setup) -> None:
    setup.dir.append_metadata(remove_topic(ORDERS), topic_record("orders", OTHER_TOPIC), partition_record(OTHER_TOPIC))


def _rename_topic_in_metadata(setup: Setup) -> None:
    """The id turns out to be another topic's."""
    setup.dir.append_metadata(topic_record("others", ORDERS), partition_record(ORDERS))


def _lose_metadata_log(setup: Setup) -> None:
    shutil.rmtree(setup.dir.path / "__cluster_metadata-0")


CHANGES: list[tuple[Callable[[Setup], None], type[TieringError], str]] = [
    (_delete_segment, SourceVanishedError, "00010.log: no such file"),
    (_rename_to_deleted, SourceVanishedError, "00010.log: no such file"),
    (_truncate, SourceChangedError, r"size of 0+10.log was \d+, now 100"),
    (_rewrite_in_place, SourceChangedError, "modification time"),
    (_replace, SourceChangedError, "inode of 0+10.log"),
    (_delete_index, SourceChangedError, "0+10.timeindex was present, now missing"),
    (_drop_successors, SourceChangedError, "successor was 20, now None"),
    (_roll_earlier, SourceChangedError, "successor was 20, now 15"),
    (_recreate_topic, SourceChangedError, "directory inode"),
    (_other_topic_id, SourceChangedError, f"topic id was {ORDERS}, now {OTHER_TOPIC}"),
    (_swap_directory, SourceChangedError, "directory inode"),
    (_move_directory_away, SourceVanishedError, "orders-0: no such file"),
    (_link_directory, SourceChangedError, "symbolic link"),
    (_replace_log_dir, SourceChangedError, "log directory was"),
    (_other_epochs, SourceChangedError, "leader epochs up to 20"),
    (_lost_epochs, SourceVanishedError, "leader-epoch-checkpoint"),
    (_cut_by_epochs, SourceChangedError, "leader epochs up to 20"),
    (_raise_log_start, SourceChangedError, "log start offset was 0, now 20"),
    (_move_leader, SourceChangedError, "leader was 1, now 2"),
    (_reelect_leader, SourceChangedError, "leader epoch was 0, now 1"),
    (_enable_remote_storage, SourceChangedError, "remote.storage.enable is true"),
    (_compact, SourceChangedError, "now compacted topic"),
    (_delete_topic, SourceChangedError, "leader was 1, now None"),
    (_recreate_topic_in_metadata, SourceChangedError, "leader was 1, now None"),
    (_rename_topic_in_metadata, SourceChangedError, "now cluster metadata contradicts what is on disk"),
    (_lose_metadata_log, SourceChangedError, "cannot be evaluated now: no readable metadata log"),
]


@pytest.mark.parametrize(("change", "error", "message"), CHANGES, ids=[change.__name__[1:] for change, _, _ in CHANGES])
def test_recheck_sees(
    setup: Setup, opened: OpenSegment, change: Callable[[Setup], None], error: type[TieringError], message: str
) -> None:
    opened.recheck()
    change(setup)
    with pytest.raises(error, match=message) as raised:
        opened.recheck()
    assert raised.value.retriable


def _append_to_active(setup: Setup) -> None:
    with setup.partition.file(30, "log").open("ab") as log:
        log.write(setup.log.read_bytes())


def _expire_older_segment(setup: Setup) -> None:
    """Retention deletes the segment at 0 and cuts the history at the front."""
    setup.partition.file(0, "log").unlink()
    setup.partition.epochs(((1, 10), (2, 15), (3, 20)))
    setup.dir.checkpoint(LOG_STARTS, {"orders-0": 10})


def _new_epoch_at_the_end(setup: Setup) -> None:
    setup.partition.epochs((*EPOCHS, (4, 35)))


def _other_topic_changes(setup: Setup) -> None:
    setup.dir.append_metadata(topic_record("other", OTHER_TOPIC), partition_record(OTHER_TOPIC))


@pytest.mark.parametrize(
    "change",
    [_append_to_active, _expire_older_segment, _new_epoch_at_the_end, _other_topic_changes],
    ids=lambda change: change.__name__[1:],
)
def test_recheck_lets_what_does_not_concern_the_segment_pass(
    setup: Setup, opened: OpenSegment, change: Callable[[Setup], None]
) -> None:
    change(setup)
    opened.recheck()


def _sound(root: Path) -> tuple[PartitionDirectory, LogDirSource, ReplicaId]:
    log_dir = BrokerLogDir(root / "data")
    log_dir.create_topic()
    partition = log_dir.partition(epochs=((0, 0),))
    log_dir.all_current({"orders-0": partition.filled(0, 10, 20)})
    source = LogDirSource([LogDirLocation(None, log_dir.path)], MetadataLog([log_dir.path]))
    return partition, source, ReplicaId(TopicIdPartition(ORDERS, 0, "orders"), 1, str(log_dir.directory_id))


def _nothing(_partition: PartitionDirectory) -> None:
    """Leave the partition as it is."""


def _without_index(partition: PartitionDirectory) -> None:
    partition.file(10, "index").unlink()


def _emptied(partition: PartitionDirectory) -> None:
    partition.file(10, "log").write_bytes(b"")


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (_nothing, None),
        (_without_index, IneligibleReason.AFTER_CORRUPT),
        (_emptied, IneligibleReason.AFTER_CORRUPT),
    ],
)
def test_a_segment_is_opened_with_the_reason_that_a_scan_finds(
    setup: Setup, harm: Callable[[PartitionDirectory], None], reason: IneligibleReason | None
) -> None:
    """It is evaluated without the other segments, except those whose damage concerns it."""
    harm(setup.partition)
    for base_offset in (0, 20):
        with setup.source.open_segment(setup.replica_id, base_offset) as opened:
            assert opened.segment == setup.source.replica(setup.replica_id).segment_at(base_offset)
            assert opened.segment.reason is (reason if base_offset > 10 else None)


def test_the_check_pass_hands_over_all_that_is_copied(tmp_path: Path) -> None:
    partition, source, replica_id = _sound(tmp_path)
    with source.open_segment(replica_id, 10) as opened:
        checked = opened.check()
        log = bytearray(checked.data.log.size_bytes)
        assert checked.data.log.read_into(0, memoryview(log)) == len(log)
        opened.recheck()
    assert bytes(log) == partition.file(10, "log").read_bytes()
    assert checked.data.offset_index == partition.file(10, "index").read_bytes()
    assert checked.data.time_index == partition.file(10, "timeindex").read_bytes()
    assert checked.data.producer_snapshot == partition.file(20, "snapshot").read_bytes()
    assert checked.data.leader_epoch == b"0\n1\n0 0\n"
    assert checked.data.transaction_index is None
    assert (checked.first_offset, checked.last_offset, checked.batch_count) == (10, 19, 2)
    assert checked.max_timestamp_ms == 1_700_000_000_019


def test_the_headers_that_the_offset_index_points_to_are_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_at, sizes = BrokerFile.read_at, list[int]()

    def noting(file: BrokerFile, position: int, size: int) -> bytes:
        sizes.extend([size] if file.name.endswith(".log") else [])
        return read_at(file, position, size)

    _, source, replica_id = _sound(tmp_path)
    with source.open_segment(replica_id, 10) as opened:
        monkeypatch.setattr(BrokerFile, "read_at", noting)
        opened.check()
    assert HEADER_SIZE not in sizes


def test_records_of_1970_whose_time_index_is_one_zero_entry_are_no_damage(tmp_path: Path) -> None:
    """Any producer may send them: timestamp 0, and the first batch has one record."""
    partition, source, replica_id = _sound(tmp_path)
    batches = [record_batch(10 + number, timestamp_ms=0) for number in range(10)]
    partition.segment(10, batches, next_base=20)
    assert partition.file(10, "timeindex").read_bytes() == bytes(12)
    for deep in (False, True):
        report = source.scan(deep=deep)
        segment = report.replicas[0].segments[1]
        assert (report.errors, segment.is_corrupt, segment.max_timestamp_ms) == ((), False, 0)
    with source.open_segment(replica_id, 10) as opened:
        checked = opened.check()
        assert (checked.data.time_index, checked.max_timestamp_ms) == (bytes(12), 0)


def test_a_zero_entry_alone_that_the_log_contradicts_is_damage(tmp_path: Path) -> None:
    partition, source, replica_id = _sound(tmp_path)
    partition.file(10, "timeindex").write_bytes(bytes(12))
    with (
        source.open_segment(replica_id, 10) as opened,
        pytest.raises(CorruptFileError, match="timestamp 0 for offset 10, but the batch there does not have it"),
    ):
        opened.check()


def test_a_deleted_segment_can_be_read_to_its_end(tmp_path: Path) -> None:
    partition, source, replica_id = _sound(tmp_path)
    with source.open_segment(replica_id, 10) as opened:
        shutil.rmtree(partition.path)
        assert opened.check().batch_count == 2
        with pytest.raises(SourceVanishedError):
            opened.recheck()


def test_corruption_is_named_and_remembered(tmp_path: Path) -> None:
    partition, source, replica_id = _sound(tmp_path)
    data = bytearray(partition.file(10, "log").read_bytes())
    data[-1] ^= 1
    partition.file(10, "log").write_bytes(data)
    with source.open_segment(replica_id, 10) as opened:
        with pytest.raises(CorruptFileError, match="CRC-32C") as raised:
            opened.check()
        assert raised.value.path.endswith("00010.log")
        assert raised.value.position == len(data) // 2
        with pytest.raises(SourceChangedError, match="found corrupt"):
            opened.recheck()


def test_old_magic_is_named_with_file_and_position(tmp_path: Path) -> None:
    partition, source, replica_id = _sound(tmp_path)
    log = partition.file(0, "log")
    at = log.stat().st_size
    log.write_bytes(log.read_bytes() + old_batch(10, 1) * 3)
    with source.open_segment(replica_id, 0) as segment, pytest.raises(CorruptFileError, match="magic 1") as caught:
        segment.check()
    assert (caught.value.path, caught.value.position) == (str(log), at)


def test_truncation_during_the_check_pass(tmp_path: Path) -> None:
    partition, source, replica_id = _sound(tmp_path)
    with source.open_segment(replica_id, 10) as opened:
        with partition.file(10, "log").open("r+b") as log:
            log.truncate(100)
        with pytest.raises(SourceChangedError, match="now 100"):
            opened.check()


def test_a_segment_without_snapshot_is_not_copied(tmp_path: Path) -> None:
    partition, source, replica_id = _sound(tmp_path)
    partition.file(20, "snapshot").unlink()
    with source.open_segment(replica_id, 10) as opened, pytest.raises(CorruptFileError, match="no producer snapshot"):
        opened.check()


def test_a_segment_does_not_stand_in_for_one_that_is_gone(tmp_path: Path) -> None:
    partition, source, replica_id = _sound(tmp_path)
    for file in partition.path.glob(f"{10:020d}.*"):
        file.unlink()
    with (
        source.open_segment(replica_id, 0) as opened,
        pytest.raises(CorruptFileError, match="offset 10 is in no batch"),
    ):
        opened.check()


def test_the_fingerprint_tells_two_files_apart(tmp_path: Path) -> None:
    partition, source, replica_id = _sound(tmp_path)
    with source.open_segment(replica_id, 10) as opened:
        before = opened.fingerprint
    with source.open_segment(replica_id, 10) as opened:
        assert opened.fingerprint == before
    data = partition.file(10, "log").read_bytes()
    partition.file(10, "log").write_bytes(data)
    with source.open_segment(replica_id, 10) as opened:
        assert opened.fingerprint != before
    assert [name for name, *_ in before.files] == [
        f"{10:020d}.log",
        f"{10:020d}.index",
        f"{10:020d}.timeindex",
        f"{20:020d}.snapshot",
    ]


@pytest.mark.parametrize(
    ("base_offset", "error", "message"),
    [(5, SourceVanishedError, "no segment starts at offset 5"), (20, SourceChangedError, "is the active one")],
)
def test_only_rolled_segments_are_opened(
    tmp_path: Path, base_offset: int, error: type[TieringError], message: str
) -> None:
    _, source, replica_id = _sound(tmp_path)
    with pytest.raises(error, match=message), source.open_segment(replica_id, base_offset):
        pass
