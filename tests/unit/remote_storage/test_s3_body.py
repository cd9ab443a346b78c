"""The body that paces: blocks, rewinds, errors that end a request at once."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.tiering.errors import RemoteChecksumError, SendingStoppedError, SourceChangedError
from include.tiering.quotas.contract import UnlimitedBytes
from include.tiering.remote_storage.object_store import BLOCK_BYTES, BytesSource, crc32c_of
from include.tiering.remote_storage.s3.client import PacedBody, SendingFailed, crc32c_of_part
from tests.doubles.byte_sources import ShrinkingSource
from tests.doubles.storage_segments import CountingLimiter, some_bytes

CONTENT = some_bytes(3 * BLOCK_BYTES + 10)


def read_all(body: PacedBody) -> bytes:
    return b"".join(bytes(block) for block in iter(lambda: body.read(16_384), b""))


def test_it_gives_large_blocks_whatever_is_asked_for() -> None:
    limiter = CountingLimiter()
    body = PacedBody(BytesSource(CONTENT), 0, len(CONTENT), limiter, lambda _: None)
    assert len(body) == len(CONTENT)
    assert read_all(body) == CONTENT
    assert limiter.granted == [BLOCK_BYTES] * 3 + [10]
    assert body.read() == b""


@given(st.integers(0, len(CONTENT)), st.data())
def test_any_part_of_the_source(first: int, data: st.DataObject) -> None:
    size_bytes = data.draw(st.integers(0, len(CONTENT) - first))
    body = PacedBody(BytesSource(CONTENT), first, size_bytes, UnlimitedBytes(), lambda _: None)
    part = CONTENT[first : first + size_bytes]
    assert read_all(body) == part
    assert crc32c_of_part(BytesSource(CONTENT), first, size_bytes) == crc32c_of(part)


def test_what_is_sent_again_is_charged_again_and_taken_back_from_the_progress() -> None:
    limiter = CountingLimiter()
    progress: list[int] = []
    body = PacedBody(BytesSource(CONTENT), 0, len(CONTENT), limiter, progress.append)
    body.read()
    body.read()
    assert body.tell() == 2 * BLOCK_BYTES
    assert body.seek(0) == 0
    first = bytes(body.read())
    assert sum(progress) == BLOCK_BYTES
    assert first + read_all(body) == CONTENT
    assert sum(progress) == len(CONTENT)
    assert limiter.total_bytes == len(CONTENT) + 2 * BLOCK_BYTES


def test_looking_at_the_end_is_not_sending() -> None:
    limiter = CountingLimiter()
    progress: list[int] = []
    body = PacedBody(BytesSource(CONTENT), 0, len(CONTENT), limiter, progress.append)
    body.read()
    assert body.seek(0, io.SEEK_END) == len(CONTENT)
    assert body.seek(0) == 0
    assert body.seek(0, io.SEEK_CUR) == 0
    assert limiter.total_bytes == BLOCK_BYTES
    assert read_all(body) == CONTENT
    assert sum(progress) == len(CONTENT)


def test_a_try_that_was_answered_early_counts_as_sent_when_the_object_is_ours() -> None:
    progress: list[int] = []
    body = PacedBody(BytesSource(CONTENT), 0, len(CONTENT), UnlimitedBytes(), progress.append)
    body.read()
    body.report_rest()
    body.report_rest()
    assert sum(progress) == len(CONTENT)


@pytest.mark.parametrize("kind", [SendingStoppedError, OSError])
def test_an_error_of_the_limiter_is_no_exception_that_a_client_would_retry(kind: type[Exception]) -> None:
    limiter = CountingLimiter(allowance=BLOCK_BYTES, error=kind("stop"))
    body = PacedBody(BytesSource(CONTENT), 0, len(CONTENT), limiter, lambda _: None)
    body.read()
    with pytest.raises(SendingFailed) as raised:
        body.read()
    assert not isinstance(raised.value, Exception)
    assert isinstance(raised.value.cause, kind)


def test_errors_of_the_source_and_of_the_callback_end_it_too() -> None:
    shrunk = ShrinkingSource(BytesSource(CONTENT), shrunk_bytes=10)
    with pytest.raises(SendingFailed) as raised:
        PacedBody(shrunk, 0, len(CONTENT), UnlimitedBytes(), lambda _: None).read()
    assert isinstance(raised.value.cause, SourceChangedError)
    with pytest.raises(SendingFailed) as raised:
        PacedBody(BytesSource(b""), 0, 10, UnlimitedBytes(), lambda _: None).read()
    assert isinstance(raised.value.cause, RemoteChecksumError)

    def fail(_: int) -> None:
        raise SendingStoppedError("progress has nowhere to go")

    with pytest.raises(SendingFailed):
        PacedBody(BytesSource(CONTENT), 0, len(CONTENT), UnlimitedBytes(), fail).read()
