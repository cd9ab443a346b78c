"""Attacks on uploads in parts: a stranger who may write to the bucket, and a store that puts parts together wrongly.

Nothing of it becomes a copy that passes: the store's own checksum shows it before the segment is FINISHED, and where
the store lies about that, a deep verification shows it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Any, Final

import pytest
from botocore.exceptions import ClientError

from include.tiering.copying.copy_checks import require_stored
from include.tiering.errors import RemoteChecksumError, RemoteStorageError
from include.tiering.model.segments import (
    Depth,
    LogSegmentData,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    Verdict,
)
from include.tiering.quotas.contract import UnlimitedBytes
from include.tiering.remote_storage.contract import StoredObject
from include.tiering.remote_storage.layouts.aiven import AivenLayout
from include.tiering.remote_storage.layouts.aiven_form import AivenForm
from include.tiering.remote_storage.object_store import BytesSource, ObjectStat, crc32c_of
from include.tiering.remote_storage.s3.store import S3ObjectStore, encoded_crc32c
from include.tiering.remote_storage.segment_storage import SegmentStorage
from include.tiering.segments.contract import SegmentRow
from include.tiering.units import MIB
from include.tiering.verification.measure_segment import measure_segment
from tests.doubles.partial import Partial
from tests.doubles.plain_evaluator import PlainEvaluator
from tests.doubles.s3_server import VersityGateway, bucket_of_its_own, raw_client, versitygw_or_skip
from tests.doubles.stored_log import PAYMENTS, rolled_segments, some_bytes, some_metadata

PART_BYTES: Final = 5 * MIB
LARGE: Final = some_bytes(12 * MIB)


# A stranger at the same bucket, while a log is sent in three parts.


class Stranger:
    """May write wherever we may. Each act is about our open upload, when its first part has been sent."""

    def __init__(self, server: VersityGateway, bucket: str, key: str) -> None:
        self.client = raw_client(server.endpoint_url)
        self.where = {"Bucket": bucket, "Key": key}

    def _ours(self) -> dict[str, str]:
        (upload,) = self.client.list_multipart_uploads(Bucket=self.where["Bucket"])["Uploads"]
        assert upload["Key"] == self.where["Key"]
        return {**self.where, "UploadId": upload["UploadId"]}

    def _send(self, number: int, content: bytes) -> None:
        checksum = encoded_crc32c(crc32c_of(content))
        self.client.upload_part(**self._ours(), PartNumber=number, Body=content, ChecksumCRC32C=checksum)

    def replaces_the_part(self) -> None:
        self._send(1, some_bytes(PART_BYTES, "another"))

    def adds_a_part(self) -> None:
        self._send(9, b"more")

    def aborts_it(self) -> None:
        self.client.abort_multipart_upload(**self._ours())

    def completes_it(self) -> None:
        (part,) = self.client.list_parts(**self._ours())["Parts"]
        parts = [{name: part[name] for name in ("PartNumber", "ETag", "ChecksumCRC32C") if name in part}]
        self.client.complete_multipart_upload(**self._ours(), MultipartUpload={"Parts": parts})

    def begins_another(self) -> None:
        self.client.create_multipart_upload(**self.where)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VersityGateway]:
    with versitygw_or_skip(tmp_path_factory.mktemp("versitygw")) as started:
        yield started


@pytest.fixture
def bucket(server: VersityGateway, monkeypatch: pytest.MonkeyPatch) -> str:
    return bucket_of_its_own(server, monkeypatch)


@pytest.fixture
def store(server: VersityGateway, bucket: str) -> S3ObjectStore:
    return S3ObjectStore(
        bucket, "p/", endpoint_url=server.endpoint_url, single_request_bytes=MIB, part_size_bytes=PART_BYTES
    )


STARTED: Final = some_metadata(len(LARGE))
KEY: Final = AivenLayout().keys(STARTED)[0][1]


def send_beside(store: S3ObjectStore, act: Callable[[], None]) -> None:
    """Send the log, and let `act` happen once its first part has been sent."""
    sent, happened = 0, False

    def on_sent(count: int) -> None:
        nonlocal sent, happened
        sent += count
        if sent > PART_BYTES and not happened:
            happened = True
            act()

    store.put(KEY, BytesSource(LARGE), crc32c_of(LARGE), limiter=UnlimitedBytes(), on_sent=on_sent)
    assert happened


@pytest.mark.parametrize(
    ("act", "is_left"),
    [(Stranger.replaces_the_part, False), (Stranger.aborts_it, False), (Stranger.completes_it, True)],
)
def test_what_a_stranger_does_to_an_upload_ends_the_copy_and_leaves_nothing_for_ever(
    server: VersityGateway, bucket: str, store: S3ObjectStore, act: Callable[[Stranger], None], is_left: bool
) -> None:
    with pytest.raises(RemoteStorageError, match=KEY):
        send_beside(store, lambda: act(Stranger(server, bucket, f"p/{KEY}")))
    assert list(store.list_open_uploads()) == []
    # What was completed too early is a part of the log under its name; its length and checksum are not the log's.
    assert (store.stat(KEY) is not None) == is_left
    assert store.stat(KEY) != ObjectStat(len(LARGE), crc32c_of(LARGE))
    assert SegmentStorage(store, AivenLayout()).delete_log_segments([STARTED]) == ()
    assert store.stat(KEY) is None


@pytest.mark.parametrize("act", [Stranger.adds_a_part, Stranger.begins_another])
def test_what_a_stranger_puts_beside_is_no_part_of_the_log(
    server: VersityGateway, bucket: str, store: S3ObjectStore, act: Callable[[Stranger], None]
) -> None:
    send_beside(store, lambda: act(Stranger(server, bucket, f"p/{KEY}")))
    assert store.stat(KEY) == ObjectStat(len(LARGE), crc32c_of(LARGE))
    assert server.backdoor(bucket, "p/").raw_read(KEY) == LARGE
    assert SegmentStorage(store, AivenLayout()).delete_log_segments([STARTED]) == ()
    assert list(store.list_open_uploads()) == []
    assert [path for path in (server.data / bucket).rglob("*") if path.is_file()] == []


# A store that takes every part and makes something else of them.

Assembly = Callable[[Sequence[bytes]], bytes]

ASSEMBLIES: Final[dict[str, Assembly]] = {
    "the last part is lost": lambda parts: b"".join(parts[:-1]),
    "a part in the middle is lost": lambda parts: b"".join((*parts[:1], *parts[2:])),
    "a part is cut": lambda parts: b"".join((*parts[:-1], parts[-1][:-1])),
    "a part is there twice": lambda parts: b"".join((parts[0], *parts)),
    "a part in the place of another": lambda parts: b"".join((parts[0], parts[0], *parts[2:])),
    "two parts changed places": lambda parts: b"".join((parts[1], parts[0], *parts[2:])),
    "a byte is another": lambda parts: b"".join((bytes([parts[0][0] ^ 1]) + parts[0][1:], *parts[1:])),
}


class WrongStore(Partial):
    """Objects in memory. Every answer is a success. If it `lies`, it shows the length and the checksum that it was
    told, and not those of what it has."""

    def __init__(self, assembly: Assembly, *, lies: bool) -> None:
        self.assembly, self.lies = assembly, lies
        self.parts: dict[int, bytes] = {}
        self.objects: dict[str, bytes] = {}
        self.told: dict[str, tuple[int, str]] = {}

    def put_object(self, **asked: Any) -> Any:
        self.objects[asked["Key"]] = asked["Body"].read(asked["ContentLength"])
        return {"ChecksumCRC32C": asked["ChecksumCRC32C"]}

    def create_multipart_upload(self, **_: Any) -> Any:
        self.parts = {}
        return {"UploadId": "u"}

    def upload_part(self, **asked: Any) -> Any:
        content = b""
        while len(content) < asked["ContentLength"]:
            content += asked["Body"].read(asked["ContentLength"] - len(content))
        self.parts[asked["PartNumber"]] = content
        return {"ETag": f"part {asked['PartNumber']}"}

    def complete_multipart_upload(self, **asked: Any) -> Any:
        key, checksum = asked["Key"], asked["ChecksumCRC32C"]
        self.objects[key] = self.assembly([self.parts[number] for number in sorted(self.parts)])
        self.told[key] = asked["MpuObjectSize"], checksum
        return {"ChecksumCRC32C": checksum}

    def head_object(self, **asked: Any) -> Any:
        content = self._content(asked["Key"], "HeadObject")
        length, checksum = len(content), encoded_crc32c(crc32c_of(content))
        if self.lies:
            length, checksum = self.told.get(asked["Key"], (length, checksum))
        return {"ContentLength": length, "ETag": "e", "ChecksumCRC32C": checksum, "ChecksumType": "FULL_OBJECT"}

    def get_object(self, **asked: Any) -> Any:
        first, _, last = asked.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")
        content = self._content(asked["Key"], "GetObject")[int(first) : int(last) + 1 if last else None]
        return {"ContentLength": len(content), "Body": BytesIO(content), "ETag": "e"}

    def _content(self, key: str, operation: str) -> bytes:
        if key not in self.objects:
            answer = {"Error": {"Code": "NoSuchKey"}, "ResponseMetadata": {"HTTPStatusCode": 404}}
            raise ClientError(answer, operation)
        return self.objects[key]


@dataclass(frozen=True)
class Checked(Partial):
    """What the check pass read."""

    data: LogSegmentData


def copied_to(
    client: WrongStore, metadata: RemoteLogSegmentMetadata, data: LogSegmentData
) -> tuple[SegmentStorage, tuple[StoredObject, ...]]:
    """A segment of a real broker, in four parts."""
    store = S3ObjectStore(
        "bucket",
        "",
        endpoint_url="http://127.0.0.1:1",
        region="us-east-1",
        single_request_bytes=metadata.segment_size_bytes // 2,
        part_size_bytes=metadata.segment_size_bytes // 4 + 1,
    )
    store._client = client
    storage = SegmentStorage(store, AivenLayout(AivenForm(with_txn_index_empty=True)))
    sent = storage.copy_log_segment(metadata, data, limiter=UnlimitedBytes(), on_sent=lambda _: None)
    assert len(client.parts) == 4
    return storage, sent


def broken(storage: SegmentStorage, metadata: RemoteLogSegmentMetadata, data: LogSegmentData, depth: Depth) -> set[str]:
    finished = replace(metadata, state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
    row = SegmentRow(finished, Verdict.NONE, data.log_crc32c)
    measure = measure_segment(row, previous=None, storage=storage, limiter=UnlimitedBytes(), depth=depth)
    return {breach.rule.rule_id for breach in PlainEvaluator().evaluate([measure])}


@pytest.mark.parametrize("assembly", ASSEMBLIES.values(), ids=ASSEMBLIES)
def test_a_store_that_shows_what_it_has_gets_no_finished_segment(assembly: Assembly) -> None:
    metadata, data = rolled_segments(PAYMENTS)[0]
    storage, sent = copied_to(WrongStore(assembly, lies=False), metadata, data)
    assert not sent[0].confirmed
    with pytest.raises(RemoteChecksumError, match=sent[0].key):
        require_stored(sent, storage.stat_log_segment(metadata), Checked(data))


@pytest.mark.parametrize("assembly", ASSEMBLIES.values(), ids=ASSEMBLIES)
def test_a_store_that_lies_is_found_out_by_reading(assembly: Assembly) -> None:
    metadata, data = rolled_segments(PAYMENTS)[0]
    storage, sent = copied_to(WrongStore(assembly, lies=True), metadata, data)
    require_stored(sent, storage.stat_log_segment(metadata), Checked(data))
    assert broken(storage, metadata, data, Depth.DEEP)


def test_a_store_that_puts_them_together_rightly_passes() -> None:
    metadata, data = rolled_segments(PAYMENTS)[0]
    storage, sent = copied_to(WrongStore(b"".join, lies=False), metadata, data)
    require_stored(sent, storage.stat_log_segment(metadata), Checked(data))
    assert broken(storage, metadata, data, Depth.DEEP) == set()
