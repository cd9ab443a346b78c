"""What only a real S3 server can prove: refusals, races, throttling, lost answers, killed writers."""

import itertools
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from include.tiering.errors import (
    RemoteAccessDeniedError,
    RemoteChecksumError,
    RemoteObjectExistsError,
    RemoteStorageError,
    RemoteStorageUnavailableError,
    RemoteStoreMissingError,
    SendingStoppedError,
)
from include.tiering.model.segments import RUNNING_CRC32C_STEP_BYTES
from include.tiering.quotas.contract import ByteLimiter, UnlimitedBytes
from include.tiering.remote_storage.layouts.aiven import AivenLayout
from include.tiering.remote_storage.location import StoreAccess, open_storage
from include.tiering.remote_storage.object_store import BytesSource, ObjectStat, S3Credentials, crc32c_of
from include.tiering.remote_storage.s3.store import S3ObjectStore
from include.tiering.remote_storage.segment_storage import SegmentStorage
from include.tiering.units import MIB
from tests.doubles.memory_source import RecordingSource
from tests.doubles.patience import PATIENCE_SECONDS, eventually
from tests.doubles.s3_proxies import LossyProxy, lossy_proxy
from tests.doubles.s3_server import (
    ACCESS_KEY,
    CREDENTIALS,
    NO_VERSITYGW,
    SECRET_KEY,
    VersityGateway,
    bucket_of_its_own,
    find_versitygw,
    raw_client,
    versitygw_server,
)
from tests.doubles.stored_log import CountingLimiter, some_bytes, some_segment

PREFIX = "tiered/"
PART_BYTES = 5 * MIB
LARGE = some_bytes(12 * MIB)
_BUCKETS = itertools.count(1)


@pytest.fixture(scope="module")
def binary() -> Path:
    found = find_versitygw()
    if found is None:
        pytest.skip(NO_VERSITYGW)
    return found


@pytest.fixture(scope="module")
def server(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VersityGateway]:
    with versitygw_server(binary, tmp_path_factory.mktemp("versitygw")) as started:
        yield started


@pytest.fixture
def bucket(server: VersityGateway, monkeypatch: pytest.MonkeyPatch) -> str:
    return bucket_of_its_own(server, monkeypatch)


@pytest.fixture
def proxy(server: VersityGateway) -> Iterator[LossyProxy]:
    with lossy_proxy(server.endpoint_url) as started:
        yield started


def store_at(endpoint_url: str, bucket: str, *, max_attempts: int = 8, in_parts: bool = False) -> S3ObjectStore:
    return S3ObjectStore(
        bucket,
        PREFIX,
        endpoint_url=endpoint_url,
        max_attempts=max_attempts,
        single_request_bytes=MIB if in_parts else 64 * MIB,
        part_size_bytes=PART_BYTES,
    )


def put(store: S3ObjectStore, key: str, content: bytes, crc32c: int | None = None) -> None:
    store.put(
        key,
        BytesSource(content),
        crc32c_of(content) if crc32c is None else crc32c,
        limiter=UnlimitedBytes(),
        on_sent=lambda _: None,
    )


class TestMultipart:
    @pytest.fixture
    def store(self, server: VersityGateway, bucket: str) -> S3ObjectStore:
        return store_at(server.endpoint_url, bucket, in_parts=True)

    def test_parts_become_one_object_with_the_checksum_of_the_whole(
        self, server: VersityGateway, bucket: str, store: S3ObjectStore
    ) -> None:
        limiter = CountingLimiter()
        progress: list[int] = []
        store.put("a/large", BytesSource(LARGE), crc32c_of(LARGE), limiter=limiter, on_sent=progress.append)
        assert server.backdoor(bucket, PREFIX).raw_read("a/large") == LARGE
        assert store.stat("a/large") == ObjectStat(len(LARGE), crc32c_of(LARGE))
        head = raw_client(server.endpoint_url).head_object(Bucket=bucket, Key="tiered/a/large", PartNumber=1)
        assert head["PartsCount"] == 3
        assert limiter.total_bytes == sum(progress) == len(LARGE)
        assert (
            b"".join(store.read("a/large", PART_BYTES - 3, PART_BYTES + 3, limiter=UnlimitedBytes()))
            == (LARGE[PART_BYTES - 3 : PART_BYTES + 4])
        )

    def test_a_wrong_checksum_of_the_whole_is_refused_at_the_end(
        self, server: VersityGateway, bucket: str, store: S3ObjectStore
    ) -> None:
        with pytest.raises(RemoteChecksumError, match=r"a/large.*BadDigest"):
            put(store, "a/large", LARGE, crc32c=crc32c_of(LARGE) ^ 1)
        assert server.backdoor(bucket, "").raw_keys() == set()
        assert list(store.list_open_uploads()) == []

    def test_a_part_that_changes_while_it_is_sent_is_refused(
        self, server: VersityGateway, bucket: str, store: S3ObjectStore
    ) -> None:
        seen: set[int] = set()

        class FlippingSource(BytesSource):
            """Gives other bytes when it is read again: the file was overwritten between checksum and sending."""

            def read_into(self, position: int, buffer: memoryview) -> int:
                filled = super().read_into(position, buffer)
                if position in seen:
                    buffer[0] ^= 1
                seen.add(position)
                return filled

        with pytest.raises(RemoteChecksumError, match="BadDigest"):
            store.put(
                "a/large",
                FlippingSource(LARGE),
                crc32c_of(LARGE),
                limiter=UnlimitedBytes(),
                on_sent=lambda _: None,
            )
        assert server.backdoor(bucket, "").raw_keys() == set()
        assert list(store.list_open_uploads()) == []

    def test_a_part_that_is_not_what_the_check_pass_read_is_refused(self, server: VersityGateway, bucket: str) -> None:
        """Parts of whole steps are not read for their checksum: the server compares them with the check pass."""
        step = RUNNING_CRC32C_STEP_BYTES
        store = S3ObjectStore(
            bucket, PREFIX, endpoint_url=server.endpoint_url, single_request_bytes=MIB, part_size_bytes=step
        )
        content = some_bytes(2 * step + 1000)
        running = [crc32c_of(content[: end * step]) for end in (1, 2)]

        def put_as_checked(key: str, body: bytes) -> RecordingSource:
            source = RecordingSource(BytesSource(body))
            store.put(
                key,
                source,
                crc32c_of(content),
                limiter=UnlimitedBytes(),
                on_sent=lambda _: None,
                running_crc32c=running,
            )
            return source

        reads = put_as_checked("a/same", content).reads
        assert [position for position, _ in reads] == sorted({position for position, _ in reads}), "each block once"
        assert server.backdoor(bucket, PREFIX).raw_read("a/same") == content
        changed = content[: step + 5] + b"!" + content[step + 6 :]
        with pytest.raises(RemoteChecksumError, match="BadDigest"):
            put_as_checked("a/changed", changed)
        assert server.backdoor(bucket, PREFIX).raw_keys() == {"a/same"}
        assert list(store.list_open_uploads()) == []

    def test_an_object_that_appears_meanwhile_is_not_overwritten(
        self, server: VersityGateway, bucket: str, store: S3ObjectStore
    ) -> None:
        rival = threading.Event()

        def be_overtaken(_: int) -> None:
            if not rival.is_set():
                rival.set()
                put(store, "a/large", b"the rival's")

        with pytest.raises(RemoteObjectExistsError, match="a/large"):
            store.put("a/large", BytesSource(LARGE), crc32c_of(LARGE), limiter=UnlimitedBytes(), on_sent=be_overtaken)
        assert server.backdoor(bucket, PREFIX).raw_read("a/large") == b"the rival's"
        assert list(store.list_open_uploads()) == []

    def test_a_stop_in_the_middle_aborts_the_upload(
        self, server: VersityGateway, bucket: str, store: S3ObjectStore
    ) -> None:
        limiter = CountingLimiter(allowance=8 * MIB, error=SendingStoppedError("paused"))
        with pytest.raises(SendingStoppedError):
            store.put("a/large", BytesSource(LARGE), crc32c_of(LARGE), limiter=limiter, on_sent=lambda _: None)
        assert limiter.total_bytes == 8 * MIB
        assert server.backdoor(bucket, "").raw_keys() == set()
        assert list(store.list_open_uploads()) == []


class TestLostAnswers:
    @pytest.mark.parametrize(
        ("pattern", "in_parts", "payload_was_lost"),
        [
            ("PUT .*/a/object HTTP", False, True),
            ("PUT .*partNumber=2", True, True),
            ("POST .*uploadId=", True, False),
        ],
        ids=["PutObject", "UploadPart", "CompleteMultipartUpload"],
    )
    def test_a_retry_recognises_its_own_earlier_success(
        self,
        server: VersityGateway,
        bucket: str,
        proxy: LossyProxy,
        pattern: str,
        in_parts: bool,
        payload_was_lost: bool,
    ) -> None:
        store = store_at(proxy.endpoint_url, bucket, in_parts=in_parts)
        limiter = CountingLimiter()
        progress: list[int] = []
        proxy.lose(pattern)
        store.put("a/object", BytesSource(LARGE), crc32c_of(LARGE), limiter=limiter, on_sent=progress.append)
        assert len(proxy.lost) == 1
        # A server may refuse a later try before it has read all of it, or cut the connection over it.
        assert (limiter.total_bytes > len(LARGE)) == payload_was_lost
        assert sum(progress) == len(LARGE)
        assert server.backdoor(bucket, PREFIX).raw_read("a/object") == LARGE
        assert list(store.list_open_uploads()) == []

    def test_somebody_elses_object_is_not_taken_for_ours(
        self, server: VersityGateway, bucket: str, proxy: LossyProxy
    ) -> None:
        put(store_at(server.endpoint_url, bucket), "a/object", b"the rival's")
        proxy.lose("PUT .*/a/object HTTP")
        with pytest.raises(RemoteObjectExistsError):
            put(store_at(proxy.endpoint_url, bucket), "a/object", b"other bytes")
        assert len(proxy.lost) == 1
        assert server.backdoor(bucket, PREFIX).raw_read("a/object") == b"the rival's"

    def test_retries_end(self, bucket: str, proxy: LossyProxy) -> None:
        for _ in range(2):
            proxy.lose("HEAD ")
        with pytest.raises(RemoteStorageUnavailableError, match="no response"):
            store_at(proxy.endpoint_url, bucket, max_attempts=2).stat("a/object")
        assert len(proxy.lost) == 2

    def test_an_answer_that_breaks_off_is_an_error_and_not_a_short_read(
        self, server: VersityGateway, bucket: str
    ) -> None:
        put(store_at(server.endpoint_url, bucket), "a/object", LARGE)
        with lossy_proxy(server.endpoint_url, breaks_off_after_bytes=4 * MIB) as proxy:
            blocks = store_at(proxy.endpoint_url, bucket).read("a/object", limiter=UnlimitedBytes())
            received = len(next(blocks))
            with pytest.raises(RemoteStorageUnavailableError, match="a/object"):
                received += sum(len(block) for block in blocks)
        assert 0 < received < len(LARGE)

    def test_an_answer_with_another_range_is_an_error_and_not_those_bytes(
        self, server: VersityGateway, bucket: str
    ) -> None:
        """As of a cache that does not look at `Range`: the bytes are as many as were requested."""
        store = store_at(server.endpoint_url, bucket)
        put(store, "a/object", LARGE)
        store._client.meta.events.register(
            "provide-client-params.s3.GetObject", lambda params, **_: {**params, "Range": "bytes=0-9"}
        )
        assert b"".join(store.read("a/object", 0, 9, limiter=UnlimitedBytes())) == LARGE[:10]
        with pytest.raises(RemoteStorageError, match="the answer is not one of S3"):
            list(store.read("a/object", 10, 19, limiter=UnlimitedBytes()))


class HeldUp:
    """A limiter that lets one block through and nothing more until it is let go."""

    waited_seconds = 0.0
    waits_for = None

    def __init__(self) -> None:
        self.begun, self.let_go = threading.Event(), threading.Event()

    def take(self, wanted_bytes: int) -> int:
        if self.begun.is_set():
            assert self.let_go.wait(PATIENCE_SECONDS)
        self.begun.set()
        return wanted_bytes


class TestThrottling:
    """`--max-requests 2` makes the server answer 503 SlowDown for real, while two uploads stand still."""

    @pytest.fixture
    def throttled(
        self, binary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[tuple[VersityGateway, tuple[HeldUp, HeldUp]]]:
        for name, value in CREDENTIALS.items():
            monkeypatch.setenv(name, value)
        with versitygw_server(binary, tmp_path, "--max-requests", "2") as started, ThreadPoolExecutor(2) as threads:
            started.make_bucket("bucket")
            limiters = HeldUp(), HeldUp()
            held_up = [
                threads.submit(self.put, started, f"held-up/{number}", limiter=limiter)
                for number, limiter in enumerate(limiters)
            ]
            try:
                for limiter in limiters:
                    assert limiter.begun.wait(PATIENCE_SECONDS)
                yield started, limiters
            finally:
                for limiter in limiters:
                    limiter.let_go.set()
            assert [one.result() for one in held_up] == [None, None]

    def put(self, server: VersityGateway, key: str, *, limiter: ByteLimiter, max_attempts: int = 12) -> None:
        content = some_bytes(2 * MIB)
        store = store_at(server.endpoint_url, "bucket", max_attempts=max_attempts)
        store.put(key, BytesSource(content), crc32c_of(content), limiter=limiter, on_sent=lambda _: None)

    def refusal(self, server: VersityGateway) -> str:
        """Of one try; empty if it was served."""
        try:
            self.put(server, f"tried/{next(_BUCKETS)}", limiter=CountingLimiter(), max_attempts=1)
        except RemoteStorageUnavailableError as error:
            return str(error)
        return ""

    def test_each_try_that_was_answered_with_slow_down_is_counted(
        self, throttled: tuple[VersityGateway, tuple[HeldUp]]
    ) -> None:
        server, _ = throttled
        eventually(lambda: "SlowDown (503)" in self.refusal(server), "both places are taken")
        store = store_at(server.endpoint_url, "bucket", max_attempts=2)
        assert store.slow_downs == 0
        with pytest.raises(RemoteStorageUnavailableError, match="SlowDown"):
            put(store, "tried/again", b"content")
        assert store.slow_downs == 2

    def test_retries_ride_out_what_fails_without_them(self, throttled: tuple[VersityGateway, tuple[HeldUp]]) -> None:
        server, limiters = throttled
        eventually(lambda: "SlowDown (503)" in self.refusal(server), "both places are taken")
        limiter = CountingLimiter()
        with ThreadPoolExecutor(1) as thread:
            writing = thread.submit(self.put, server, "with", limiter=limiter)
            eventually(lambda: limiter.total_bytes > 2 * MIB, "it was refused and tries again")
            for held_up in limiters:
                held_up.let_go.set()
            assert writing.result() is None
        keys = server.backdoor("bucket", PREFIX).raw_keys()
        assert keys >= {"with", "held-up/0", "held-up/1"}


class TestProcesses:
    def writer(self, server: VersityGateway, bucket: str, size: int, pause_after: int = -1) -> subprocess.Popen[str]:
        module = [sys.executable, "-m", "tests.doubles.storage_writer"]
        process = subprocess.Popen(
            [*module, f"s3://{bucket}/tiered", server.endpoint_url, str(size), str(pause_after)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    def test_two_writers_of_one_attempt_make_one_set_of_objects(self, server: VersityGateway, bucket: str) -> None:
        writers = [self.writer(server, bucket, 20 * MIB) for _ in range(2)]
        for writer in writers:
            assert writer.stdin is not None
            writer.stdin.write("go\n")
            writer.stdin.flush()
        outcomes = sorted(writer.communicate(timeout=240)[0].strip() for writer in writers)
        assert outcomes == ["RemoteObjectExistsError", "copied"]

        metadata, data = some_segment(20 * MIB)
        storage = open_storage(f"s3://{bucket}/tiered", StoreAccess(server.endpoint_url))
        found = storage.stat_log_segment(metadata)
        backdoor = server.backdoor(bucket, PREFIX)
        assert [stored.crc32c for stored in found] == [
            planned.crc32c for planned in AivenLayout().objects(metadata, data)
        ]
        assert backdoor.raw_keys() == {stored.key for stored in found}
        assert backdoor.raw_read(found[0].key) == some_bytes(20 * MIB, "a")

    def test_what_a_killed_writer_leaves_is_removed_by_the_delete_of_its_attempt(
        self, server: VersityGateway, bucket: str
    ) -> None:
        size = 70 * MIB
        writer = self.writer(server, bucket, size, pause_after=40 * MIB)
        assert writer.stdin is not None
        assert writer.stdout is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
        assert writer.stdout.readline() == "paused\n"
        writer.kill()
        writer.wait()
        writer.stdin.close()
        writer.stdout.close()

        metadata, _ = some_segment(size)
        store = store_at(server.endpoint_url, bucket)
        key = AivenLayout().keys(metadata)[0][1]
        assert [upload.key for upload in store.list_open_uploads()] == [key]
        assert list(store.list_objects()) == []
        assert SegmentStorage(store, AivenLayout()).delete_log_segments([metadata]) == ()
        assert list(store.list_open_uploads()) == []
        assert [path for path in (server.data / bucket).rglob("*") if path.is_file()] == []


class TestRefusals:
    def test_a_wrong_secret_is_named_without_being_shown(
        self, server: VersityGateway, bucket: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wr0ng-s3cret")
        store = store_at(server.endpoint_url, bucket)
        for ask in (lambda: put(store, "a/b", b"x"), lambda: list(store.list_objects())):
            with pytest.raises(RemoteStorageError, match=rf"check the credentials.*{bucket}") as raised:
                ask()
            assert type(raised.value) is RemoteAccessDeniedError
            for secret in ("wr0ng-s3cret", SECRET_KEY, ACCESS_KEY):
                assert secret not in str(raised.value)
        (failure,) = store.delete(["a/b"])
        assert "check the credentials" in failure.message

    def test_no_credentials_at_all(self, server: VersityGateway, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in CREDENTIALS:
            monkeypatch.delenv(name)
        with pytest.raises(RemoteStorageError, match="AWS_ACCESS_KEY_ID"):
            put(store_at(server.endpoint_url, bucket), "a/b", b"x")

    def test_credentials_from_settings_need_no_environment(
        self, server: VersityGateway, bucket: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in CREDENTIALS:
            monkeypatch.delenv(name)
        credentials = S3Credentials(ACCESS_KEY, SECRET_KEY)
        assert SECRET_KEY not in repr(credentials)
        storage = open_storage(f"s3://{bucket}/p", StoreAccess(server.endpoint_url, credentials=credentials))
        storage.check_writable()

    def test_a_missing_bucket_is_no_missing_object(self, server: VersityGateway, bucket: str) -> None:
        store = store_at(server.endpoint_url, "absent-bucket")
        for ask in (
            lambda: put(store, "a/b", b"x"),
            lambda: list(store.list_objects()),
            lambda: list(store.read("a/b", limiter=UnlimitedBytes())),
        ):
            with pytest.raises(RemoteStoreMissingError, match="create bucket absent-bucket"):
                ask()

    def test_nobody_listens(self, bucket: str) -> None:
        with pytest.raises(RemoteStorageUnavailableError, match="no response"):
            put(store_at("http://127.0.0.1:9", bucket, max_attempts=1), "a/b", b"x")

    def test_thousands_of_keys_go_in_batches(self, server: VersityGateway, bucket: str) -> None:
        store = store_at(server.endpoint_url, bucket)
        put(store, "many/0500", b"x")
        put(store, "many/2004", b"x")
        put(store, "other", b"x")
        assert store.delete([f"many/{number:04d}" for number in range(2005)]) == ()
        assert server.backdoor(bucket, PREFIX).raw_keys() == {"other"}
