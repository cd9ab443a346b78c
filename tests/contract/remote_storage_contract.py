"""What every `RemoteStorage` must do with segments, and one that nobody owns yet with its marker.

A subclass gives fixtures `storage` and `backdoor`, and the `kinds` of its layout, in the order of writing.
"""

from dataclasses import replace
from typing import ClassVar

import pytest

from include.tiering.errors import (
    NoSuchIndexError,
    RemoteObjectExistsError,
    RemoteResourceNotFoundError,
    SendingStoppedError,
)
from include.tiering.formats.aiven_manifest import parse_manifest
from include.tiering.model.ownership import StoreMarker
from include.tiering.model.segments import (
    IndexType,
    LogSegmentData,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
)
from include.tiering.quotas.contract import UnlimitedBytes
from include.tiering.remote_storage import segment_reader
from include.tiering.remote_storage.contract import ObjectKind, RemoteStorage, TransformedSizes
from include.tiering.remote_storage.store_ownership import MARKER_KEY
from tests.doubles.storage_backdoor import Backdoor
from tests.doubles.stored_log import TOPIC_ID, CountingLimiter, some_bytes, some_segment, some_uuid

MARKER = StoreMarker("7ZtY2gLkQ0mV3c1f6b8d9A", "store-1", 0)


def stopped_after_the_log(
    storage: RemoteStorage, metadata: RemoteLogSegmentMetadata, data: LogSegmentData
) -> CountingLimiter:
    """Grants what the log of this segment has when it is stored, and one byte."""
    twin = replace(metadata, remote_log_segment_id=RemoteLogSegmentId(metadata.topic_id_partition, some_uuid("twin")))
    sent = storage.copy_log_segment(twin, data, limiter=UnlimitedBytes(), on_sent=lambda _: None)
    assert storage.delete_log_segments([twin]) == ()
    return CountingLimiter(allowance=sent[0].size_bytes + 1, error=SendingStoppedError("paused"))


class SegmentContract:
    """`is_plain` False: the stored log is compressed or encrypted."""

    kinds: ClassVar[tuple[ObjectKind, ...]] = (ObjectKind.LOG, ObjectKind.INDEXES, ObjectKind.MANIFEST)
    is_plain = True

    def test_a_copy_is_what_was_sent_and_reads_back(self, storage: RemoteStorage, backdoor: Backdoor) -> None:
        metadata, data = some_segment(300_000, with_transactions=True)
        progress: list[int] = []
        sent = storage.copy_log_segment(metadata, data, limiter=UnlimitedBytes(), on_sent=progress.append)

        assert tuple(stored.kind for stored in sent) == self.kinds
        assert storage.stat_log_segment(metadata) == sent
        assert backdoor.raw_keys() == {stored.key for stored in sent}
        assert sum(progress) == sum(stored.size_bytes for stored in sent)
        log = some_bytes(300_000, "a")
        assert (backdoor.raw_read(sent[0].key) == log) is self.is_plain
        assert [stored.is_transformed for stored in sent] == [not self.is_plain, *(False for _ in sent[1:])]
        assert b"".join(storage.fetch_log_segment(metadata, limiter=UnlimitedBytes())) == log
        for index_type in IndexType:
            assert storage.fetch_index(metadata, index_type) == data.index(index_type)
        reader = storage.open_log_segment(metadata, limiter=UnlimitedBytes())
        for stored in sent[1:]:
            assert reader.whole(stored.kind) == backdoor.raw_read(stored.key)
        sizes = reader.transformed_sizes()
        assert sizes == (None if self.is_plain else TransformedSizes(sent[0].size_bytes, 300_000))

    def test_a_segment_without_transactions_has_no_such_index(self, storage: RemoteStorage) -> None:
        metadata, data = some_segment()
        storage.copy_log_segment(metadata, data, limiter=UnlimitedBytes(), on_sent=lambda _: None)
        with pytest.raises(NoSuchIndexError, match="transaction"):
            storage.fetch_index(metadata, IndexType.TRANSACTION)

    def test_positions_are_inclusive_and_checked_at_once(self, storage: RemoteStorage) -> None:
        metadata, data = some_segment(1000)
        log = some_bytes(1000, "a")
        storage.copy_log_segment(metadata, data, limiter=UnlimitedBytes(), on_sent=lambda _: None)
        for start, end in [(0, 0), (10, 19), (999, 999), (0, 999)]:
            assert (
                b"".join(storage.fetch_log_segment(metadata, start, end, limiter=UnlimitedBytes()))
                == (log[start : end + 1])
            )
        assert b"".join(storage.fetch_log_segment(metadata, 990, limiter=UnlimitedBytes())) == log[990:]
        for first, last in [(-1, 5), (5, 4), (0, 1000), (1000, None)]:
            with pytest.raises(ValueError, match="positions"):
                storage.fetch_log_segment(metadata, first, last, limiter=UnlimitedBytes())

    def test_a_reader_takes_each_small_object_once_and_every_byte_is_charged(
        self, storage: RemoteStorage, backdoor: Backdoor
    ) -> None:
        metadata, data = some_segment(300_000, with_transactions=True)
        log = some_bytes(300_000, "a")
        sent = storage.copy_log_segment(metadata, data, limiter=UnlimitedBytes(), on_sent=lambda _: None)
        limiter = CountingLimiter()
        reader = storage.open_log_segment(metadata, limiter=limiter)
        assert [(o.kind, o.key, o.size_bytes) for o in reader.objects()] == [
            (o.kind, o.key, o.size_bytes) for o in sent
        ]
        for kept, one in zip(reader.objects(), sent, strict=True):
            assert kept.crc32c in (None, one.crc32c)
        assert (reader.bytes_read, limiter.total_bytes) == (0, 0)
        assert {reader.read_crc32c(one.key) for one in sent} == {None}
        for _ in range(2):
            for index_type in IndexType:
                assert reader.index(index_type) == data.index(index_type)
            manifest = reader.manifest()
            assert manifest is None or manifest == backdoor.raw_read(sent[-1].key)
        assert reader.bytes_read == limiter.total_bytes == sum(one.size_bytes for one in sent[1:])
        assert [reader.read_crc32c(one.key) for one in sent] == [None, *(one.crc32c for one in sent[1:])]
        assert b"".join(reader.log(0, 299_999)) == log
        assert reader.bytes_read == limiter.total_bytes == sum(stored.size_bytes for stored in sent)
        assert b"".join(reader.log(70, 79)) == log[70:80]
        read_again_bytes = reader.bytes_read - sum(stored.size_bytes for stored in sent)
        assert read_again_bytes == 10 if self.is_plain else 10 < read_again_bytes < 100_000
        assert reader.bytes_read == limiter.total_bytes
        with pytest.raises(ValueError, match="positions"):
            next(reader.log(0, 300_000))

    def test_a_reader_says_what_is_missing_each_time(self, storage: RemoteStorage, backdoor: Backdoor) -> None:
        metadata, data = some_segment()
        storage.copy_log_segment(metadata, data, limiter=UnlimitedBytes(), on_sent=lambda _: None)
        reader = storage.open_log_segment(metadata, limiter=UnlimitedBytes())
        with pytest.raises(RemoteResourceNotFoundError, match="transaction"):
            reader.index(IndexType.TRANSACTION)
        storage.delete_log_segments([metadata])
        reader = storage.open_log_segment(metadata, limiter=UnlimitedBytes())
        for _ in range(2):
            for ask in (lambda: reader.index(IndexType.OFFSET), lambda: next(reader.log(0, 9))):
                with pytest.raises(RemoteResourceNotFoundError):
                    ask()

    @pytest.mark.parametrize(("first", "last", "count"), [(0, 299_999, 5), (70, 299_990, 5), (1, 70_000, 1)])
    def test_a_log_in_parts_is_the_same_log_and_each_part_is_charged_once(
        self, storage: RemoteStorage, monkeypatch: pytest.MonkeyPatch, first: int, last: int, count: int
    ) -> None:
        monkeypatch.setattr(segment_reader, "RANGE_BYTES", 70_000)
        metadata, data = some_segment(300_000)
        sent = storage.copy_log_segment(metadata, data, limiter=UnlimitedBytes(), on_sent=lambda _: None)
        limiter = CountingLimiter()
        parts = storage.open_log_parts(metadata, first, last)
        assert (len(parts), limiter.total_bytes) == (count, 0)
        found = [b"".join(parts.read(number, limiter=limiter)) for number in reversed(range(count))]
        assert b"".join(parts.restored(reversed(found))) == some_bytes(300_000, "a")[first : last + 1]
        beside_bytes = sum(one.size_bytes for one in sent if one.kind is ObjectKind.MANIFEST)
        if self.is_plain:
            assert limiter.total_bytes == last + 1 - first + beside_bytes
            assert max(map(len, found)) <= 70_000
        else:
            assert limiter.total_bytes <= sent[0].size_bytes + beside_bytes
        with pytest.raises(ValueError, match="positions"):
            storage.open_log_parts(metadata, 0, 300_000)

    def test_parts_of_a_log_that_is_not_there_are_an_error_each(self, storage: RemoteStorage) -> None:
        metadata, data = some_segment()
        storage.copy_log_segment(metadata, data, limiter=UnlimitedBytes(), on_sent=lambda _: None)
        parts = storage.open_log_parts(metadata, 0, metadata.segment_size_bytes - 1)
        storage.delete_log_segments([metadata])
        for _ in range(2):
            with pytest.raises(RemoteResourceNotFoundError):
                list(parts.read(0, limiter=UnlimitedBytes()))

    def test_the_same_attempt_twice_is_refused_and_harms_nothing(
        self, storage: RemoteStorage, backdoor: Backdoor
    ) -> None:
        metadata, data = some_segment()
        sent = storage.copy_log_segment(metadata, data, limiter=UnlimitedBytes(), on_sent=lambda _: None)
        with pytest.raises(RemoteObjectExistsError):
            storage.copy_log_segment(metadata, data, limiter=UnlimitedBytes(), on_sent=lambda _: None)
        assert storage.stat_log_segment(metadata) == sent
        assert backdoor.raw_keys() == {stored.key for stored in sent}

    def test_an_interrupted_copy_has_no_object_after_the_log_and_can_be_deleted(
        self, storage: RemoteStorage, backdoor: Backdoor
    ) -> None:
        metadata, data = some_segment(100_000)
        limiter = stopped_after_the_log(storage, metadata, data)
        with pytest.raises(SendingStoppedError):
            storage.copy_log_segment(metadata, data, limiter=limiter, on_sent=lambda _: None)
        assert [stored.kind for stored in storage.stat_log_segment(metadata)] == [ObjectKind.LOG]
        assert backdoor.raw_keys() == {storage.stat_log_segment(metadata)[0].key}
        assert storage.delete_log_segments([metadata]) == ()
        assert backdoor.raw_keys() == set()

    def test_a_delete_removes_these_attempts_and_no_others(self, storage: RemoteStorage, backdoor: Backdoor) -> None:
        segments = [some_segment(5000, seed=seed, start_offset=25 * n) for n, seed in enumerate("abc")]
        for metadata, data in segments:
            storage.copy_log_segment(metadata, data, limiter=UnlimitedBytes(), on_sent=lambda _: None)
        kept = {stored.key for stored in storage.stat_log_segment(segments[1][0])}
        never_copied, _ = some_segment(seed="never")
        assert storage.delete_log_segments([segments[0][0], never_copied, segments[2][0]]) == ()
        assert backdoor.raw_keys() == kept
        assert storage.stat_log_segment(segments[0][0]) == ()
        assert storage.delete_log_segments([segments[0][0]]) == ()

    def test_objects_of_one_partition_are_listed_without_the_others(self, storage: RemoteStorage) -> None:
        for partition in (1, 11):
            for topic in ("orders", "orders-x"):
                metadata, data = some_segment(100, seed=f"{topic}{partition}", topic=topic, partition=partition)
                storage.copy_log_segment(metadata, data, limiter=UnlimitedBytes(), on_sent=lambda _: None)
        asked = TopicIdPartition(TOPIC_ID, 1, "orders")
        found = list(storage.list_segment_objects(asked))
        assert {one.segment_id.topic_id_partition.topic for one in found} == {"orders"}
        assert [one for one in storage.list_segment_objects() if one in found] == found
        assert {one.kind for one in found} == {*self.kinds} - {ObjectKind.TRANSACTION_INDEX}
        assert list(storage.list_segment_objects(TopicIdPartition(TOPIC_ID, 2, "orders"))) == []

    def test_a_writable_store_is_left_as_it_was(self, storage: RemoteStorage, backdoor: Backdoor) -> None:
        storage.check_writable()
        assert backdoor.raw_keys() == set()


class ManifestContract:
    """Of a layout that writes manifests."""

    def test_the_manifest_says_whose_segment_it_is(self, storage: RemoteStorage) -> None:
        metadata, data = some_segment(with_transactions=True)
        storage.copy_log_segment(metadata, data, limiter=UnlimitedBytes(), on_sent=lambda _: None)
        manifest = storage.fetch_manifest(metadata)
        assert manifest is not None
        assert parse_manifest(manifest).metadata == metadata

    def test_without_its_manifest_nothing_of_a_segment_is_read(self, storage: RemoteStorage) -> None:
        metadata, data = some_segment(100_000)
        limiter = stopped_after_the_log(storage, metadata, data)
        with pytest.raises(SendingStoppedError):
            storage.copy_log_segment(metadata, data, limiter=limiter, on_sent=lambda _: None)
        reader = storage.open_log_segment(metadata, limiter=UnlimitedBytes())
        for ask in (
            lambda: b"".join(storage.fetch_log_segment(metadata, limiter=UnlimitedBytes())),
            lambda: storage.fetch_manifest(metadata),
            reader.manifest,
        ):
            with pytest.raises(RemoteResourceNotFoundError):
                ask()

    def test_indexes_that_end_before_their_manifest_says(self, storage: RemoteStorage, backdoor: Backdoor) -> None:
        metadata, data = some_segment(with_transactions=True)
        sent = storage.copy_log_segment(metadata, data, limiter=UnlimitedBytes(), on_sent=lambda _: None)
        backdoor.raw_write(sent[1].key, backdoor.raw_read(sent[1].key)[:-1])
        reader = storage.open_log_segment(metadata, limiter=UnlimitedBytes())
        assert reader.index(IndexType.OFFSET) == data.offset_index
        with pytest.raises(RemoteResourceNotFoundError, match="bytes"):
            reader.index(IndexType.TRANSACTION)


class MarkerContract:
    """Of a storage that nobody owns yet."""

    def test_the_marker_is_created_once(self, storage: RemoteStorage, backdoor: Backdoor) -> None:
        assert storage.read_marker() is None
        assert storage.create_marker(MARKER) == MARKER
        assert storage.create_marker(StoreMarker("another", "store-2", 1)) == MARKER
        assert storage.read_marker() == MARKER
        assert backdoor.raw_keys() == {MARKER_KEY}
        assert [key for key, _ in storage.list_objects()] == [MARKER_KEY]

    def test_a_marker_is_replaced_if_it_is_the_one_that_is_expected(
        self, storage: RemoteStorage, backdoor: Backdoor
    ) -> None:
        second, third = StoreMarker(MARKER.cluster_id, "store-2", 1), StoreMarker(MARKER.cluster_id, "store-3", 1)
        assert storage.replace_marker(MARKER, second) is None
        assert backdoor.raw_keys() == set()
        storage.create_marker(MARKER)
        assert storage.replace_marker(MARKER, second) == second
        assert storage.replace_marker(MARKER, second) == second
        assert storage.replace_marker(MARKER, third) == second
        assert storage.read_marker() == second
        assert storage.replace_marker(second, third, conditional=False) == third
        assert storage.replace_marker(second, MARKER, conditional=False) == third
        assert storage.replaces_conditionally()
        assert backdoor.raw_keys() == {MARKER_KEY}


class RemoteStorageContract(SegmentContract, ManifestContract, MarkerContract):
    """All of it, in a layout that writes manifests."""
