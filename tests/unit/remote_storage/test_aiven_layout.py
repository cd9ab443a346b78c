"""The layout of Aiven, and segments that are stored in it."""

import json
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.tiering.errors import (
    CustomMetadataTooLargeError,
    ObjectKeyError,
    RemoteChecksumError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RemoteStorageFullError,
    RemoteStorageUnavailableError,
    SettingError,
)
from include.tiering.formats.aiven_manifest import CustomMetadataField, encode_custom_metadata
from include.tiering.model.segments import (
    IndexType,
    LogSegmentData,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
    Uuid,
    is_legal_topic_name,
)
from include.tiering.quotas.contract import UnlimitedBytes
from include.tiering.remote_storage.contract import ObjectKind
from include.tiering.remote_storage.file.store import FileObjectStore
from include.tiering.remote_storage.layouts.aiven import AivenLayout
from include.tiering.remote_storage.layouts.aiven_form import AivenForm
from include.tiering.remote_storage.layouts.contract import PlannedObject
from include.tiering.remote_storage.object_store import KeyFailure, ObjectStat, OpenUpload, checked_key, crc32c_of
from include.tiering.remote_storage.segment_reader import MAX_IN_MEMORY_BYTES
from include.tiering.remote_storage.segment_storage import SegmentStorage
from include.tiering.units import GIB
from tests.doubles.stored_log import some_metadata, some_segment

# Keys of the aiven layout: the plugin's vectors, round trips, and names that try to lead elsewhere.

LAYOUT = AivenLayout()
SEGMENT_ID = Uuid(bytes.fromhex("fffefdfcfbfaf9f8f7f6f5f4f3f2f1f0"))


def metadata_of(partition: TopicIdPartition, segment_id: Uuid, start_offset: int = 0) -> RemoteLogSegmentMetadata:
    return replace(
        some_metadata(100, start_offset=start_offset), remote_log_segment_id=RemoteLogSegmentId(partition, segment_id)
    )


def content_of(planned: PlannedObject) -> bytes:
    buffer = bytearray(planned.body.size_bytes)
    assert planned.body.read_into(0, memoryview(buffer)) == len(buffer)
    return bytes(buffer)


def test_keys_equal_the_plugins() -> None:
    metadata = metadata_of(TopicIdPartition(Uuid(bytes(range(1, 17))), 3, "orders"), SEGMENT_ID, 1234567)
    path = "orders-AQIDBAUGBwgJCgsMDQ4PEA/3/00000000000001234567-__79_Pv6-fj39vX08_Lx8A"
    assert LAYOUT.keys(metadata) == (
        (ObjectKind.LOG, f"{path}.log"),
        (ObjectKind.INDEXES, f"{path}.indexes"),
        (ObjectKind.MANIFEST, f"{path}.rsm-manifest"),
    )
    assert LAYOUT.manifest_key(metadata) == f"{path}.rsm-manifest"


uuids = st.binary(min_size=16, max_size=16).map(Uuid)
# Names that look like keys: dashes, dots, 22-character tails, digits.
topics = (
    st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True)
    | st.builds(lambda head, tail: f"{head}-{tail}"[:249], st.sampled_from(["a", "..", "-", "x-3"]), uuids.map(str))
).filter(is_legal_topic_name)


@given(topics, uuids, st.integers(0, 2**31 - 1), uuids, st.integers(0, 2**63 - 25))
def test_every_key_parses_back(topic: str, topic_id: Uuid, partition: int, segment_id: Uuid, start_offset: int) -> None:
    metadata = metadata_of(TopicIdPartition(topic_id, partition, topic), segment_id, start_offset)
    for kind, key in LAYOUT.keys(metadata):
        assert checked_key(key) == key
        parsed = LAYOUT.parse_key(key)
        assert (parsed.kind, parsed.start_offset) == (kind, start_offset)
        assert parsed.segment_id == metadata.remote_log_segment_id
        assert parsed.segment_id.topic_id_partition.topic == topic


GOOD = "orders-AQIDBAUGBwgJCgsMDQ4PEA/3/00000000000001234567-__79_Pv6-fj39vX08_Lx8A.log"


@pytest.mark.parametrize(
    "key",
    [
        "",
        "_tiering-store.json",
        GOOD + "\n",
        "/" + GOOD,
        "../" + GOOD,
        "x/" + GOOD,
        GOOD.replace("orders", ".", 1),
        GOOD.replace("orders", "..", 1),
        GOOD.replace("orders", "", 1),
        GOOD.replace("orders", "a" * 250, 1),
        GOOD.replace("orders", "kö", 1),
        GOOD.replace("/3/", "/03/"),
        GOOD.replace("/3/", "/-3/"),
        GOOD.replace("/3/", "/2147483648/"),
        GOOD.replace("/3/", "/٣/"),
        GOOD.replace("00000000000001234567", "1234567"),
        GOOD.replace("00000000000001234567", "99999999999999999999"),
        GOOD.replace("PEA/", "PEB/"),
        GOOD.replace("Lx8A", "Lx8B"),
        GOOD.replace("Lx8A", "Lx8"),
        GOOD.replace(".log", ".LOG"),
        GOOD.replace(".log", ".index"),
        GOOD.replace(".log", ".log.log"),
    ],
)
def test_a_key_that_was_never_built_is_refused(key: str) -> None:
    LAYOUT.parse_key(GOOD)
    with pytest.raises(ObjectKeyError):
        LAYOUT.parse_key(key)


@given(st.text(max_size=120) | st.from_regex(r"[a-z.-]{0,5}-[A-Za-z0-9_-]{22}/\d+/\d{20}-[A-Za-z0-9_-]{22}\.\w+"))
def test_parsing_gives_the_key_back_or_refuses_it(key: str) -> None:
    try:
        parsed = LAYOUT.parse_key(key)
    except ObjectKeyError:
        return
    metadata = metadata_of(
        parsed.segment_id.topic_id_partition, parsed.segment_id.id, min(parsed.start_offset, 2**63 - 25)
    )
    assert key in {built for _, built in LAYOUT.keys(metadata)}


def test_objects_are_written_log_first_and_manifest_last() -> None:
    metadata, data = some_segment(5000, with_transactions=True)
    log, indexes, manifest = LAYOUT.objects(metadata, data)
    assert (log.kind, indexes.kind, manifest.kind) == (ObjectKind.LOG, ObjectKind.INDEXES, ObjectKind.MANIFEST)
    assert log.body is data.log
    assert log.crc32c == data.log_crc32c
    parts = [data.offset_index, data.time_index, data.producer_snapshot, data.leader_epoch, data.transaction_index]
    assert content_of(indexes) == b"".join(part or b"" for part in parts)
    for planned in (indexes, manifest):
        assert planned.crc32c == crc32c_of(content_of(planned))
    positions = json.loads(content_of(manifest))["segmentIndexes"]
    assert positions["transaction"] == {"position": 16 + 24 + 10 + 8, "size": 34}


def test_an_empty_index_is_listed_and_reads_as_nothing() -> None:
    metadata, data = some_segment(5000)
    _, indexes, manifest = LAYOUT.objects(metadata, replace(data, time_index=b""))
    objects = {planned.key: content_of(planned) for planned in (indexes, manifest)}

    def read(key: str, first: int, last: int | None) -> bytes:
        assert last is None or last >= first, "no empty range is ever asked for"
        return objects[key][first : None if last is None else last + 1]

    assert LAYOUT.index(metadata, IndexType.TIMESTAMP, read) == b""
    assert LAYOUT.index(metadata, IndexType.PRODUCER_SNAPSHOT, read) == data.producer_snapshot
    assert LAYOUT.index(metadata, IndexType.TRANSACTION, read) is None


def test_metadata_of_another_size_is_refused_before_anything_is_written() -> None:
    metadata, data = some_segment(5000)
    with pytest.raises(RemoteChecksumError, match=r"5000 bytes,\s+the metadata says 4999"):
        LAYOUT.objects(replace(metadata, segment_size_bytes=4999), data)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {
                "compression": True,
                "chunkIndex": {
                    "type": "variable",
                    "originalChunkSize": 10,
                    "originalFileSize": 25,
                    "transformedChunks": "",
                },
            },
            "zstd",
        ),
        ({"compression": True}, "uncompressed"),
        ({"encryption": {"dataKey": "key-1:c2VjcmV0", "aad": ""}}, "chunkIndex"),
        ({"version": "2"}, "version"),
    ],
)
def test_what_cannot_be_read_is_named(change: dict[str, object], words: str) -> None:
    metadata, data = some_segment(25)
    manifest = json.loads(content_of(LAYOUT.objects(metadata, data)[2]))
    content = json.dumps(manifest | change).encode()

    def read(key: str, first: int, last: int | None) -> bytes:
        return content

    for ask in (
        lambda: LAYOUT.log(metadata, 0, 24, read),
        lambda: LAYOUT.index(metadata, IndexType.OFFSET, read),
        lambda: LAYOUT.transformed_sizes(metadata, read),
        lambda: LAYOUT.whole(metadata, ObjectKind.INDEXES, read),
    ):
        with pytest.raises(RemoteStorageError, match=words) as raised:
            ask()
        assert "c2VjcmV0" not in str(raised.value)


def test_without_a_manifest_there_is_no_segment() -> None:
    def absent(key: str, first: int, last: int | None) -> bytes:
        raise RemoteResourceNotFoundError(key)

    with pytest.raises(RemoteResourceNotFoundError, match="rsm-manifest"):
        LAYOUT.log(some_metadata(10), 0, 9, absent)


def test_the_log_of_a_segment_data_is_never_loaded() -> None:
    class Unreadable:
        size_bytes = 100

        def read_into(self, position: int, buffer: memoryview) -> int:
            raise AssertionError("planning reads no record bytes")

    data = LogSegmentData(Unreadable(), 0, b"", b"", b"", b"0\n1\n0 0\n")
    assert len(LAYOUT.objects(some_metadata(100), data)) == 3


ALL_FIELDS = AivenForm(custom_metadata=frozenset(CustomMetadataField), brokers_prefix="pre/")


@pytest.mark.parametrize(("length", "fits"), [(30, True), (41, True), (42, False), (249, False)])
def test_all_custom_metadata_fit_while_the_names_are_short(length: int, fits: bool) -> None:
    """Prefix, topic and partition have about 46 characters then, as the plugin's documentation says."""
    metadata = metadata_of(TopicIdPartition(Uuid(bytes(range(16))), 3, "t" * length), SEGMENT_ID)
    layout = AivenLayout(ALL_FIELDS)
    encoded = layout.custom_metadata(metadata, 2**31)
    assert encoded is not None
    assert (len(encoded) <= 128) is fits
    if fits:
        layout.require_copyable(metadata)
    else:
        with pytest.raises(CustomMetadataTooLargeError, match="brokers accept 128"):
            layout.require_copyable(metadata)
    AivenLayout(replace(ALL_FIELDS, custom_metadata_max_bytes=400)).require_copyable(metadata)


def test_custom_metadata_name_the_object_without_prefix_and_suffix() -> None:
    metadata = metadata_of(TopicIdPartition(Uuid(bytes(range(1, 17))), 3, "orders"), SEGMENT_ID, 7)
    encoded = AivenLayout(replace(ALL_FIELDS, key_prefix="t-")).custom_metadata(metadata, 100)
    assert encoded == encode_custom_metadata(
        {
            CustomMetadataField.REMOTE_SIZE: 100,
            CustomMetadataField.OBJECT_PREFIX: "pre/",
            CustomMetadataField.OBJECT_KEY: "orders-AQIDBAUGBwgJCgsMDQ4PEA/3/00000000000000000007-" + str(SEGMENT_ID),
        }
    )
    assert LAYOUT.custom_metadata(metadata, 100) is None


def test_a_key_prefix_is_glued_on_and_asked_for() -> None:
    layout = AivenLayout(AivenForm(key_prefix="tiered/of-"))
    metadata = metadata_of(TopicIdPartition(Uuid(bytes(range(1, 17))), 3, "orders"), SEGMENT_ID, 7)
    partition = metadata.topic_id_partition
    for (kind, key), (_, plain) in zip(layout.keys(metadata), LAYOUT.keys(metadata), strict=True):
        assert key == f"tiered/of-{plain}"
        assert key.startswith(layout.partition_prefix(partition))
        assert layout.parse_key(key) == LAYOUT.parse_key(plain)
        assert layout.parse_key(key).kind is kind
        with pytest.raises(ObjectKeyError, match="does not begin with"):
            layout.parse_key(plain)
    ids = ("orders", "AQIDBAUGBwgJCgsMDQ4PEA", 3, 7, str(SEGMENT_ID))
    assert layout.keys_of(*ids) == layout.keys(metadata)


def test_an_encrypted_form_needs_keys() -> None:
    with pytest.raises(SettingError, match="encryption_key_pairs"):
        AivenLayout(AivenForm(encrypts=True))


# What the composition adds: failures keep their owner, checks notice a store that lies, sizes are bounded.


@dataclass
class Moods:
    """What the store below does wrong."""

    keeps: set[str] = field(default_factory=set)
    stat: ObjectStat | str | None = "truth"
    abort_fails: bool = False


class MoodyStore(FileObjectStore):
    def __init__(self, root: Path, moods: Moods) -> None:
        super().__init__(root)
        self.moods = moods

    def delete(self, keys: Collection[str]) -> tuple[KeyFailure, ...]:
        kept = {key for key in keys if any(key.endswith(suffix) for suffix in self.moods.keeps)}
        failures = tuple(KeyFailure(key, "busy", retriable=True) for key in sorted(kept))
        return failures + super().delete([key for key in keys if key not in kept])

    def stat(self, key: str, *, read_back: bool = True, most_bytes: int | None = None) -> ObjectStat | None:
        return super().stat(key, read_back=read_back) if isinstance(self.moods.stat, str) else self.moods.stat

    def abort_upload(self, upload: OpenUpload) -> None:
        if self.moods.abort_fails:
            raise RemoteStorageUnavailableError("slow down")
        super().abort_upload(upload)


@pytest.fixture
def moods() -> Moods:
    return Moods()


@pytest.fixture
def storage(tmp_path: Path, moods: Moods) -> SegmentStorage:
    return SegmentStorage(MoodyStore(tmp_path, moods), LAYOUT)


def test_a_failed_delete_names_its_segment_and_spares_nothing_else(
    storage: SegmentStorage, moods: Moods, tmp_path: Path
) -> None:
    (first, data), (second, more) = some_segment(100, seed="a"), some_segment(100, seed="b", start_offset=25)
    for metadata, content in ((first, data), (second, more)):
        storage.copy_log_segment(metadata, content, limiter=UnlimitedBytes(), on_sent=lambda _: None)
    moods.keeps = {f"{second.remote_log_segment_id.id}.indexes"}
    (failure,) = storage.delete_log_segments([first, second])
    assert failure.segment_id == second.remote_log_segment_id
    assert failure.key.endswith(".indexes")
    assert (failure.message, failure.retriable) == ("busy", True)
    assert [stored.kind for stored in storage.stat_log_segment(second)] == [ObjectKind.INDEXES]


def test_an_upload_that_cannot_be_aborted_is_a_failure_too(
    storage: SegmentStorage, moods: Moods, tmp_path: Path
) -> None:
    metadata, _ = some_segment(100)
    key = LAYOUT.keys(metadata)[0][1]
    left = tmp_path / f"{key}.~0123456789abcdef"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"half")
    moods.abort_fails = True
    (failure,) = storage.delete_log_segments([metadata])
    assert (failure.segment_id, failure.key, failure.retriable) == (metadata.remote_log_segment_id, key, True)
    moods.abort_fails = False
    assert storage.delete_log_segments([metadata]) == ()
    assert not left.exists()


@pytest.mark.parametrize("stat", [None, ObjectStat(3, 0)], ids=["lost", "other bytes"])
def test_a_store_that_loses_what_it_took_is_not_writable(
    storage: SegmentStorage, moods: Moods, stat: ObjectStat | None, tmp_path: Path
) -> None:
    moods.stat = stat
    with pytest.raises(RemoteStorageError, match="cannot be read back unchanged"):
        storage.check_writable()
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_deletes_nothing_is_not_writable(storage: SegmentStorage, moods: Moods) -> None:
    moods.keeps = {""}
    with pytest.raises(RemoteStorageError, match="cannot be deleted: busy"):
        storage.check_writable()


def test_a_full_store_is_not_written_to(tmp_path: Path) -> None:
    store = FileObjectStore(tmp_path, min_free_bytes=2**20 * GIB)
    with pytest.raises(RemoteStorageFullError):
        SegmentStorage(store, LAYOUT).check_writable()
    assert list(tmp_path.iterdir()) == []


def test_a_store_without_checksums_is_read_back(storage: SegmentStorage, moods: Moods) -> None:
    metadata, data = some_segment(100)
    sent = storage.copy_log_segment(metadata, data, limiter=UnlimitedBytes(), on_sent=lambda _: None)
    moods.stat = ObjectStat(100, None)
    assert [stored.crc32c for stored in storage.stat_log_segment(metadata)] == [stored.crc32c for stored in sent]


def test_a_manifest_of_absurd_size_is_refused_before_it_fills_the_memory(
    storage: SegmentStorage, tmp_path: Path
) -> None:
    metadata, data = some_segment(100)
    storage.copy_log_segment(metadata, data, limiter=UnlimitedBytes(), on_sent=lambda _: None)
    manifest = tmp_path / LAYOUT.keys(metadata)[2][1]
    with manifest.open("r+b") as file:
        file.truncate(4 * GIB)
    for ask in (
        lambda: storage.fetch_manifest(metadata),
        lambda: storage.fetch_index(metadata, IndexType.OFFSET),
        lambda: storage.fetch_log_segment(metadata, limiter=UnlimitedBytes()),
        lambda: storage.open_log_segment(metadata, limiter=UnlimitedBytes()).index(IndexType.OFFSET),
    ):
        with pytest.raises(RemoteStorageError, match=str(MAX_IN_MEMORY_BYTES)):
            ask()
