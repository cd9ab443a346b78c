"""The sink of the upload benchmark computes what it is told: a number measured against it includes proof."""

import http.client
import json
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from benchmarks.quota_trace import Trace
from benchmarks.s3_sink import Arrivals, Sink, start
from include.tiering.errors import RemoteChecksumError, RemoteObjectExistsError
from include.tiering.quotas.contract import UnlimitedBytes
from include.tiering.remote_storage.object_store import BytesSource, crc32c_of
from include.tiering.remote_storage.s3.store import S3ObjectStore
from include.tiering.units import MIB
from tests.doubles.s3_server import CREDENTIALS, raw_client
from tests.doubles.stored_log import some_bytes

CONTENT = some_bytes(12 * MIB)


@pytest.fixture
def sink(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sink]:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    started = start()
    yield started
    started.stop()


def sizes(sink: Sink) -> dict[str, int]:
    return {path: received.size_bytes for path, received in sink.state.objects.items()}


@pytest.mark.parametrize("single_request_bytes", [MIB, 64 * MIB], ids=["in parts", "in one request"])
def test_our_uploads_are_verified(sink: Sink, single_request_bytes: int) -> None:
    store = S3ObjectStore(
        "bucket",
        "p/",
        endpoint_url=sink.endpoint_url,
        single_request_bytes=single_request_bytes,
        part_size_bytes=5 * MIB,
        max_attempts=1,
    )

    def put(key: str, crc32c: int) -> None:
        store.put(key, BytesSource(CONTENT), crc32c, limiter=UnlimitedBytes(), on_sent=lambda _: None)

    put("right", crc32c_of(CONTENT))
    assert sizes(sink) == {"/bucket/p/right": len(CONTENT)}
    assert sink.state.payload_bytes == len(CONTENT)
    assert (sink.state.verified, sink.state.refused) == (1 if single_request_bytes > MIB else 4, 0)
    with pytest.raises(RemoteChecksumError):
        put("wrong", crc32c_of(CONTENT) ^ 1)
    assert sink.state.refused == 1
    with pytest.raises(RemoteObjectExistsError):
        put("right", crc32c_of(CONTENT))


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [("crc32c", b"yZRlqg==", b"yZRlqQ=="), ("crc32", b"DUoRhQ==", b"DUoRhA==")],
)
def test_a_trailer_is_verified(sink: Sink, name: str, right: bytes, wrong: bytes) -> None:
    connection = http.client.HTTPConnection(urlsplit(sink.endpoint_url).netloc)
    for checksum, status in ((right, 200), (wrong, 400)):
        body = b"6\r\nhello \r\n5;chunk-signature=0\r\nworld\r\n0\r\nx-amz-checksum-%s:%s\r\n\r\n" % (
            name.encode(),
            checksum,
        )
        headers = {"Content-Encoding": "aws-chunked", "X-Amz-Trailer": f"x-amz-checksum-{name}"}
        connection.request("PUT", "/bucket/key", body, headers)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == status
    connection.close()
    assert sink.state.payload_bytes == 22


def test_boto3_at_its_defaults_is_verified(sink: Sink, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("source") / "file"
    path.write_bytes(CONTENT)
    raw_client(sink.endpoint_url).upload_file(str(path), "bucket", "key")
    assert sizes(sink) == {"/bucket/key": len(CONTENT)}
    assert sink.state.verified == 2
    assert sink.state.refused == 0


def test_payload_is_counted_as_it_comes_in(sink: Sink) -> None:
    connection = http.client.HTTPConnection(urlsplit(sink.endpoint_url).netloc)

    def ask(method: str, path: str, body: bytes = b"") -> bytes:
        connection.request(method, path, body)
        return connection.getresponse().read()

    begun_s = time.monotonic()
    ask("PUT", "/bucket/one", CONTENT)
    trace = Trace.from_json(json.loads(ask("GET", "/.arrivals")))
    assert trace.total_bytes == len(CONTENT)
    assert begun_s - 0.01 <= trace.begun_s <= trace.ended_s <= time.monotonic() + 0.01
    ask("DELETE", "/.arrivals")
    assert Trace.from_json(json.loads(ask("GET", "/.arrivals"))).total_bytes == 0
    connection.close()


def test_arrivals_are_placed_by_the_clock() -> None:
    times_ns = iter([5_000_000_000, 5_009_999_999, 5_030_000_000])
    arrivals = Arrivals(lambda: next(times_ns))
    for size_bytes in (1, 2, 4):
        arrivals.add(size_bytes)
    assert arrivals.trace().begun_s == 5.0
    assert arrivals.trace().counts.tolist() == [3, 0, 0, 4]


def test_small_objects_are_read_back_whole_or_in_part(sink: Sink) -> None:
    store = S3ObjectStore("bucket", "p/", endpoint_url=sink.endpoint_url, max_attempts=1)
    content = CONTENT[:100]
    store.put("small", BytesSource(content), crc32c_of(content), limiter=UnlimitedBytes(), on_sent=lambda _: None)

    def read(first: int = 0, last: int | None = None) -> bytes:
        return b"".join(store.read("small", first, last, limiter=UnlimitedBytes()))

    assert (read(), read(90), read(10, 19)) == (content, content[90:], content[10:20])
