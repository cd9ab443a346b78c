"""Keys and files of Kafka's LocalTieredStorage, and a tree that holds nothing else."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.tiering.errors import (
    ObjectKeyError,
    RemoteChecksumError,
    RemoteResourceNotFoundError,
    SendingStoppedError,
    SettingError,
)
from include.tiering.model.ownership import StoreMarker
from include.tiering.model.segments import IndexType, RemoteLogSegmentId, TopicIdPartition, Uuid, is_legal_topic_name
from include.tiering.quotas.contract import UnlimitedBytes
from include.tiering.remote_storage.contract import ObjectKind
from include.tiering.remote_storage.file.store import FileListing
from include.tiering.remote_storage.layouts.local_tiered_storage import STAGING_PREFIX, LocalTieredStorageLayout
from include.tiering.remote_storage.location import open_listing, open_orphans, open_storage
from include.tiering.remote_storage.object_store import checked_key
from include.tiering.remote_storage.orphan_objects import Orphan, OrphanKind
from tests.doubles.stored_log import CountingLimiter, some_metadata, some_segment

LAYOUT = LocalTieredStorageLayout()
NAME = "local_tiered_storage"
GOOD = "kafka-tiered-storage/orders-3-AQIDBAUGBwgJCgsMDQ4PEA/00000000000000000100-ERITFBUWFxgZGhscHR4fIA"
# What Kafka's own walk of the tree accepts.
DIRECTORY = re.compile(r"[a-zA-Z0-9._-]+-[0-9]+-[a-zA-Z0-9_-]{22}")
FILE = re.compile(r"[0-9]{20}-[a-zA-Z0-9_-]{22}\.[a-z_]+")


def test_keys_are_those_of_kafka() -> None:
    partition = TopicIdPartition(Uuid(bytes(range(1, 17))), 3, "orders")
    segment_id = RemoteLogSegmentId(partition, Uuid(bytes(range(17, 33))))
    metadata = replace(some_metadata(100, start_offset=100), remote_log_segment_id=segment_id)
    assert LAYOUT.keys(metadata) == (
        (ObjectKind.LOG, f"{GOOD}.log"),
        (ObjectKind.OFFSET_INDEX, f"{GOOD}.index"),
        (ObjectKind.TIME_INDEX, f"{GOOD}.timeindex"),
        (ObjectKind.TRANSACTION_INDEX, f"{GOOD}.txnindex"),
        (ObjectKind.LEADER_EPOCH, f"{GOOD}.leader_epoch_checkpoint"),
        (ObjectKind.PRODUCER_SNAPSHOT, f"{GOOD}.snapshot"),
    )
    assert LAYOUT.manifest_key(metadata) is None
    names = ("orders", "AQIDBAUGBwgJCgsMDQ4PEA", 3, 100, "ERITFBUWFxgZGhscHR4fIA")
    assert LAYOUT.keys_of(*names) == LAYOUT.keys(metadata)
    assert all(key.startswith(LAYOUT.partition_prefix(partition)) for _, key in LAYOUT.keys(metadata))


uuids = st.binary(min_size=16, max_size=16).map(Uuid)
topics = (
    st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True)
    | st.builds(lambda head, tail: f"{head}-{tail}"[:249], st.sampled_from(["a", "..", "-", "x-3", "x-3-"]), uuids)
).filter(is_legal_topic_name)


@given(topics, uuids, st.integers(0, 2**31 - 1), uuids, st.integers(0, 2**63 - 25))
def test_every_key_parses_back(topic: str, topic_id: Uuid, partition: int, segment_id: Uuid, start_offset: int) -> None:
    segment = RemoteLogSegmentId(TopicIdPartition(topic_id, partition, topic), segment_id)
    metadata = replace(some_metadata(100, start_offset=start_offset), remote_log_segment_id=segment)
    for kind, key in LAYOUT.keys(metadata):
        assert checked_key(key) == key
        parsed = LAYOUT.parse_key(key)
        assert (parsed.segment_id, parsed.start_offset, parsed.kind) == (segment, start_offset, kind)
        assert parsed.segment_id.topic_id_partition.topic == topic
        _, directory, file = key.split("/")
        assert DIRECTORY.fullmatch(directory)
        assert FILE.fullmatch(file)


@pytest.mark.parametrize(
    "key",
    [
        "",
        "_tiering-store.json",
        f"{GOOD}.log\n",
        f"{GOOD}.LOG",
        f"{GOOD}.rsm-manifest",
        f"{GOOD}.indexes",
        f"x/{GOOD}.log",
        f"{STAGING_PREFIX}{GOOD}.log",
        f"{GOOD.removeprefix('kafka-tiered-storage/')}.log",
        f"{GOOD}.log".replace("-3-", "-03-"),
        f"{GOOD}.log".replace("-3-", "-4294967296-"),
        f"{GOOD}.log".replace("orders-3", "..-3"),
        f"{GOOD}.log".replace("00000000000000000100", "99999999999999999999"),
        f"{GOOD}.log".replace("00000000000000000100", "100"),
    ],
)
def test_other_keys_are_refused(key: str) -> None:
    with pytest.raises(ObjectKeyError):
        LAYOUT.parse_key(key)


def test_a_log_of_another_size_than_the_metadata_says_is_not_written() -> None:
    metadata, data = some_segment(100)
    with pytest.raises(RemoteChecksumError, match="100 bytes, the metadata says 101"):
        LAYOUT.objects(replace(metadata, segment_size_bytes=101), data)


def names_in(tree: Path) -> list[str]:
    return sorted(path.name for path in tree.rglob("*"))


class WatchingLimiter(CountingLimiter):
    """Looks at a directory whenever bytes are about to be written."""

    def __init__(self, tree: Path) -> None:
        super().__init__()
        self.tree = tree
        self.seen: set[str] = set()

    def take(self, wanted_bytes: int) -> int:
        self.seen.update(names_in(self.tree))
        return super().take(wanted_bytes)


def test_nothing_that_kafka_does_not_know_is_ever_in_its_tree(tmp_path: Path) -> None:
    storage = open_storage(tmp_path.as_uri(), layout=NAME)
    storage.create_marker(StoreMarker("7ZtY2gLkQ0mV3c1f6b8d9A", "store-1", 0))
    storage.check_writable()
    tree = tmp_path / "kafka-tiered-storage"
    assert not tree.exists()
    limiter = WatchingLimiter(tree)
    for number, seed in enumerate("abc"):
        metadata, data = some_segment(3_000_000, seed=seed, start_offset=25 * number, with_transactions=seed == "b")
        storage.copy_log_segment(metadata, data, limiter=limiter, on_sent=lambda _: None)
    assert len(limiter.seen) > 10
    for name in {*limiter.seen, *names_in(tree)}:
        assert DIRECTORY.fullmatch(name) or FILE.fullmatch(name)
    assert [path for path in (tmp_path / STAGING_PREFIX).rglob("*") if path.is_file()] == []


def test_what_a_dead_writer_left_is_an_open_upload_beside_the_tree(tmp_path: Path) -> None:
    metadata, _ = some_segment(100_000)
    (_, log_key), *_ = LAYOUT.keys(metadata)
    left = tmp_path / STAGING_PREFIX / f"{log_key}.~0123456789abcdef"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"half")
    listing = open_listing(tmp_path.as_uri(), layout=NAME)
    (found,) = (one for page in listing.open_uploads() for one in page)
    assert (found.key, found.size_bytes) == (log_key, 4)
    assert [one for part in listing.parts(1) for page in listing.pages(part) for one in page] == []
    storage = open_storage(tmp_path.as_uri(), layout=NAME)
    assert list(storage.list_objects()) == []
    assert storage.delete_log_segments([metadata]) == ()
    assert not left.exists()


def test_what_no_metadata_knows_is_looked_at_and_removed(tmp_path: Path) -> None:
    storage = open_storage(tmp_path.as_uri(), layout=NAME)
    metadata, data = some_segment(1_000, with_transactions=True)
    sent = storage.copy_log_segment(metadata, data, limiter=UnlimitedBytes(), on_sent=lambda _: None)
    left = tmp_path / STAGING_PREFIX / f"{sent[0].key}.~0123456789abcdef"
    left.write_bytes(b"half")
    orphans = open_orphans(tmp_path.as_uri(), lambda: None, layout=NAME)
    assert {key: seen.size_bytes for key, seen in orphans.attempt(sent[3].key).items()} == {
        one.key: one.size_bytes for one in sent
    }
    with pytest.raises(ObjectKeyError, match="not the key of a manifest"):
        orphans.manifest(sent[0].key)
    pending = [Orphan(OrphanKind.UPLOAD, sent[0].key, left.name), *(Orphan(OrphanKind.OBJECT, one.key) for one in sent)]
    assert orphans.remove(pending) == ()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_temporary_name_in_the_tree_itself_is_somebody_elses_object(tmp_path: Path) -> None:
    foreign = tmp_path / f"{GOOD}.log.~0123456789abcdef"
    foreign.parent.mkdir(parents=True)
    foreign.write_bytes(b"half")
    listing = FileListing(tmp_path, STAGING_PREFIX)
    assert [one for page in listing.open_uploads() for one in page] == []
    (part,) = listing.parts(1)
    assert [one.key for page in listing.pages(part) for one in page] == [f"{GOOD}.log.~0123456789abcdef"]


def test_a_missing_index_is_an_error_but_for_that_of_transactions(tmp_path: Path) -> None:
    storage = open_storage(tmp_path.as_uri(), layout=NAME)
    metadata, data = some_segment(with_transactions=True)
    sent = storage.copy_log_segment(metadata, data, limiter=UnlimitedBytes(), on_sent=lambda _: None)
    for one in sent:
        (tmp_path / one.key).unlink()
    for index_type in IndexType:
        with pytest.raises(RemoteResourceNotFoundError):
            storage.fetch_index(metadata, index_type)


def test_a_stopped_copy_leaves_no_name_of_what_was_not_whole(tmp_path: Path) -> None:
    storage = open_storage(tmp_path.as_uri(), layout=NAME)
    metadata, data = some_segment(100_000)
    limiter = CountingLimiter(allowance=50, error=SendingStoppedError("paused"))
    with pytest.raises(SendingStoppedError):
        storage.copy_log_segment(metadata, data, limiter=limiter, on_sent=lambda _: None)
    assert not (tmp_path / "kafka-tiered-storage").exists()


def test_it_is_for_directories_only() -> None:
    for opening in (
        lambda: open_storage("s3://bucket-1/p", layout=NAME),
        lambda: open_orphans("s3://bucket-1/p", lambda: None, layout=NAME),
    ):
        with pytest.raises(SettingError, match="file:///"):
            opening()
