"""Frames of known content size, and those that lie about it."""

import contextlib
import io

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from include.tiering.errors import FormatError
from include.tiering.formats.aiven_chunks import compress_frame, decompress_frame, frame_content_size_bytes
from include.tiering.units import GIB, MIB
from tests.doubles.aiven_reader import decompressed

SIZES = [0, 1, 100, 255, 256, 257, 65_791, 65_792, 70_000, 3 * MIB]


@pytest.mark.parametrize("size_bytes", SIZES)
def test_a_frame_says_what_it_holds_and_another_library_reads_it(size_bytes: int) -> None:
    content = (b"kafka" * (size_bytes // 5 + 1))[:size_bytes]
    frame = compress_frame(content)
    assert frame_content_size_bytes(frame) == size_bytes
    assert decompressed(frame) == content
    assert decompress_frame(zstandard.ZstdCompressor(level=3).compress(content), most_bytes=size_bytes) == content


@given(st.binary(max_size=2000))
def test_it_comes_out_as_it_went_in(content: bytes) -> None:
    assert decompress_frame(compress_frame(content), most_bytes=len(content)) == content


def test_a_frame_without_its_content_size_is_refused() -> None:
    stream = io.BytesIO()
    with zstandard.ZstdCompressor().stream_writer(stream, closefd=False) as writer:
        writer.write(b"kafka" * 1000)
    with pytest.raises(FormatError, match="without its content size"):
        decompress_frame(stream.getvalue(), most_bytes=5000)


def test_a_bomb_is_refused_before_it_goes_off() -> None:
    bomb = compress_frame(bytes(8 * MIB))
    assert len(bomb) < 1000
    with pytest.raises(FormatError, match=f"{8 * MIB} bytes: at most 1000"):
        decompress_frame(bomb, most_bytes=1000)
    with pytest.raises(FormatError, match="at most"):
        decompress_frame(b"\x28\xb5\x2f\xfd\xe0" + (GIB * 2**20).to_bytes(8, "little"), most_bytes=MIB)


def test_a_frame_that_holds_more_or_less_than_it_says_is_refused() -> None:
    frame = bytearray(compress_frame(b"x" * 1000))
    assert frame[4] >> 6 == 1
    for claimed in (999, 1001):
        frame[5:7] = (claimed - 256).to_bytes(2, "little")
        with pytest.raises(FormatError):
            decompress_frame(bytes(frame), most_bytes=2000)


@given(st.integers(0, 40), st.integers(0, 255))
def test_a_damaged_frame_gives_a_format_error_or_bounded_bytes(position: int, byte: int) -> None:
    frame = bytearray(compress_frame(b"kafka" * 100))
    frame[position % len(frame)] = byte
    with contextlib.suppress(FormatError):
        assert len(decompress_frame(bytes(frame), most_bytes=500)) <= 500


@pytest.mark.parametrize(
    "frame", [b"", b"\x28\xb5", b"\x28\xb5\x2f\xfd", b"\x28\xb5\x2f\xfd\x60\x01", b"PK\x03\x04...."]
)
def test_what_is_no_frame_is_refused(frame: bytes) -> None:
    with pytest.raises(FormatError):
        decompress_frame(frame, most_bytes=100)
