"""Codecs, frames and checksums."""

import contextlib
import io
import struct
import zlib
from pathlib import Path

import cramjam
import google_crc32c
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from include.tiering.errors import BatchTooLargeError, FormatError
from include.tiering.formats.aiven_chunks import compress_frame, decompress_frame, frame_content_size_bytes
from include.tiering.formats.record_batch import Codec, append_crc32c, extend_crc32c, rest_crc32c
from include.tiering.formats.records import MAX_STREAMED_BYTES, Decompressor, PlainStream
from include.tiering.units import GIB, KIB, MIB
from tests.doubles.aiven_files import decompressed
from tests.doubles.many_segments import compressed

# Every codec as Kafka's clients frame it; nothing that claims to be huge becomes huge.

_STREAM_HEADER = bytes.fromhex("82534e41505059000000000100000001")


def gzipped(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=16 + zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


def snappy_stream(data: bytes, block_bytes: int = 1000) -> bytes:
    blocks = [
        bytes(cramjam.snappy.compress_raw(data[at : at + block_bytes])) for at in range(0, len(data), block_bytes)
    ]
    return _STREAM_HEADER + b"".join(struct.pack(">i", len(block)) + block for block in blocks)


def resident_bytes() -> int:
    """Of this process, pages of its libraries included."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def zstandard_zeros(blocks: int) -> bytes:
    """One frame; each of its blocks says in four bytes that a zero is repeated 128 Ki times."""
    frame_header = bytes.fromhex("28b52ffd00") + bytes([(17 - 10) << 3])
    block = (1 << 1 | 128 * KIB << 3).to_bytes(3, "little") + b"\0"
    last_block = (1 | 1 << 1 | 128 * KIB << 3).to_bytes(3, "little") + b"\0"
    return frame_header + block * (blocks - 1) + last_block


PACKERS = {
    "gzip": (Codec.GZIP, gzipped),
    "snappy-raw": (Codec.SNAPPY, lambda data: bytes(cramjam.snappy.compress_raw(data))),
    "snappy-stream": (Codec.SNAPPY, snappy_stream),
    "lz4": (Codec.LZ4, lambda data: bytes(cramjam.lz4.compress(data))),
    "zstd": (Codec.ZSTD, lambda data: bytes(cramjam.zstd.compress(data))),
}


@pytest.mark.parametrize("name", PACKERS)
@given(data=st.binary(min_size=1, max_size=5000))
def test_what_was_packed_comes_out(name: str, data: bytes) -> None:
    codec, pack = PACKERS[name]
    assert Decompressor().decompress(codec, memoryview(pack(data))) == data


def test_plain_records_are_as_they_are() -> None:
    assert bytes(Decompressor().decompress(Codec.NONE, memoryview(b"abc"))) == b"abc"


@pytest.mark.parametrize("name", PACKERS)
def test_a_batch_of_several_mib_and_then_a_small_one(name: str) -> None:
    codec, pack = PACKERS[name]
    decompressor = Decompressor()
    large = bytes(range(256)) * (9 * MIB // 256)
    assert decompressor.decompress(codec, memoryview(pack(large))) == large
    assert bytes(decompressor.decompress(codec, memoryview(pack(b"small")))) == b"small"


@pytest.mark.parametrize("name", PACKERS)
def test_a_bomb_is_refused_at_the_bound_and_not_below(name: str) -> None:
    codec, pack = PACKERS[name]
    assert len(Decompressor(MIB).decompress(codec, memoryview(pack(bytes(MIB))))) == MIB
    with pytest.raises(BatchTooLargeError, match=f"more than {MIB} bytes"):
        Decompressor(MIB).decompress(codec, memoryview(pack(bytes(MIB + 1))))


@pytest.mark.parametrize("name", PACKERS)
@given(data=st.binary(min_size=1, max_size=5000))
def test_what_was_packed_comes_out_in_pieces(name: str, data: bytes) -> None:
    codec, pack = PACKERS[name]
    stream = PlainStream(codec, memoryview(pack(data)), MIB)
    assert (b"".join(stream), stream.size_bytes) == (data, len(data))


@pytest.mark.parametrize("name", PACKERS)
def test_a_stream_ends_at_its_bound_and_not_below(name: str) -> None:
    codec, pack = PACKERS[name]
    data = bytes(range(256)) * (3 * MIB // 256)
    assert b"".join(PlainStream(codec, memoryview(pack(data)), 3 * MIB)) == data
    stream = PlainStream(codec, memoryview(pack(data + b"x")), 3 * MIB)
    with pytest.raises(BatchTooLargeError, match=f"more than {3 * MIB} bytes"):
        list(stream)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_a_stream_of_a_hundred_mib_takes_a_few(codec: Codec) -> None:
    packed = compressed(codec, (bytes(MIB) for _ in range(100)))
    before = resident_bytes()
    peak = 0
    stream = Decompressor().stream(codec, memoryview(packed))
    for piece in stream:
        assert len(piece) <= 256 * KIB
        peak = max(peak, resident_bytes())
    assert stream.size_bytes == 100 * MIB
    assert peak - before < 32 * MIB


def test_ten_gigabytes_of_zeros_end_at_the_bound() -> None:
    packed = zstandard_zeros(80_000)
    assert len(packed) < 512 * KIB
    stream = Decompressor().stream(Codec.ZSTD, memoryview(packed))
    with pytest.raises(BatchTooLargeError, match=f"more than {MAX_STREAMED_BYTES} bytes"):
        sum(map(len, stream))
    assert stream.size_bytes <= MAX_STREAMED_BYTES + 256 * KIB


def test_what_is_packed_twice_is_opened_once() -> None:
    inner = compressed(Codec.ZSTD, [bytes(MIB)] * 100)
    for codec in (Codec.GZIP, Codec.ZSTD, Codec.LZ4, Codec.SNAPPY):
        assert b"".join(Decompressor().stream(codec, memoryview(compressed(codec, [inner])))) == inner


def test_a_snappy_block_that_claims_four_gigabytes_costs_nothing() -> None:
    claim = b"\xff\xff\xff\xff\x0f" + bytes(20)
    for opened in (Decompressor().decompress, lambda codec, data: list(Decompressor().stream(codec, data))):
        with pytest.raises(FormatError, match="a block of 25 bytes cannot contain 4294967295 bytes") as caught:
            opened(Codec.SNAPPY, memoryview(claim))
        assert not isinstance(caught.value, BatchTooLargeError)


def test_a_snappy_block_is_as_dense_as_it_can_be() -> None:
    block = bytes(cramjam.snappy.compress_raw(bytes(MIB)))
    assert 20 < MIB / len(block) < 64 / 3
    assert Decompressor().decompress(Codec.SNAPPY, memoryview(block)) == bytes(MIB)


def test_a_zstandard_frame_that_asks_for_a_window_of_two_gigabytes() -> None:
    raw_block = (1 | 5 << 3).to_bytes(3, "little") + b"xxxxx"
    for window, is_accepted in ((10, True), (21, False)):
        frame = bytes.fromhex("28b52ffd00") + bytes([window << 3]) + raw_block
        if is_accepted:
            assert bytes(Decompressor().decompress(Codec.ZSTD, memoryview(frame))) == b"xxxxx"
        else:
            with pytest.raises(FormatError, match="too much memory"):
                Decompressor().decompress(Codec.ZSTD, memoryview(frame))


@pytest.mark.parametrize("name", PACKERS)
@given(data=st.data())
def test_damage_is_no_other_error(name: str, data: st.DataObject) -> None:
    codec, pack = PACKERS[name]
    packed = bytearray(pack(b"some records, some records again" * 9))
    at = data.draw(st.integers(0, len(packed) - 1))
    action = data.draw(st.sampled_from(["flip", "cut", "extend"]))
    if action == "flip":
        packed[at] ^= 1 << data.draw(st.integers(0, 7))
    elif action == "cut":
        del packed[at:]
    else:
        packed += data.draw(st.binary(min_size=1, max_size=30))
    with contextlib.suppress(FormatError):
        assert len(Decompressor(MIB).decompress(codec, memoryview(packed))) <= MIB
    with contextlib.suppress(FormatError):
        assert sum(map(len, PlainStream(codec, memoryview(packed), MIB))) <= MIB


@pytest.mark.parametrize("name", ["gzip", "lz4", "zstd"])
def test_a_stream_that_is_cut_off_is_refused(name: str) -> None:
    codec, pack = PACKERS[name]
    packed = pack(bytes(range(256)) * 4000)
    for length in (1, len(packed) // 2, len(packed) - 1):
        with pytest.raises(FormatError):
            list(PlainStream(codec, memoryview(packed[:length]), 2 * MIB))
    with pytest.raises(FormatError):
        list(PlainStream(codec, memoryview(packed + b"junk"), 2 * MIB))


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
@given(noise=st.binary(max_size=200))
def test_noise_is_no_other_error(codec: Codec, noise: bytes) -> None:
    with contextlib.suppress(FormatError):
        assert len(Decompressor(MIB).decompress(codec, memoryview(noise))) <= MIB
    with contextlib.suppress(FormatError):
        assert sum(map(len, PlainStream(codec, memoryview(noise), MIB))) <= MIB


@pytest.mark.parametrize("block", [b"\0\0\0\0", b"\xff\xff\xff\xff", b"\0\0\0\x09abc", b"\0\0"])
def test_a_snappy_stream_with_a_block_that_is_not_there(block: bytes) -> None:
    with pytest.raises(FormatError, match="snappy"):
        Decompressor().decompress(Codec.SNAPPY, memoryview(_STREAM_HEADER + block))


# Frames of known content size, and those that lie about it.

SIZES = [0, 1, 100, 255, 256, 257, 65_791, 65_792, 70_000, 3 * MIB]


@pytest.mark.parametrize("size_bytes", SIZES)
def test_a_frame_says_what_it_holds_and_another_library_reads_it(size_bytes: int) -> None:
    content = (b"kafka" * (size_bytes // 5 + 1))[:size_bytes]
    frame = compress_frame(content)
    assert frame_content_size_bytes(frame) == size_bytes
    assert decompressed(frame) == content
    assert decompress_frame(zstandard.ZstdCompressor(level=3).compress(content), max_bytes=size_bytes) == content


@given(st.binary(max_size=2000))
def test_it_comes_out_as_it_went_in(content: bytes) -> None:
    assert decompress_frame(compress_frame(content), max_bytes=len(content)) == content


def test_a_frame_without_its_content_size_is_refused() -> None:
    stream = io.BytesIO()
    with zstandard.ZstdCompressor().stream_writer(stream, closefd=False) as writer:
        writer.write(b"kafka" * 1000)
    with pytest.raises(FormatError, match="has no content size"):
        decompress_frame(stream.getvalue(), max_bytes=5000)


def test_a_bomb_is_refused_before_it_goes_off() -> None:
    bomb = compress_frame(bytes(8 * MIB))
    assert len(bomb) < 1000
    with pytest.raises(FormatError, match=f"{8 * MIB} bytes: at most 1000"):
        decompress_frame(bomb, max_bytes=1000)
    with pytest.raises(FormatError, match="at most"):
        decompress_frame(b"\x28\xb5\x2f\xfd\xe0" + (GIB * 2**20).to_bytes(8, "little"), max_bytes=MIB)


def test_a_frame_that_holds_more_or_less_than_it_says_is_refused() -> None:
    frame = bytearray(compress_frame(b"x" * 1000))
    assert frame[4] >> 6 == 1
    for claimed in (999, 1001):
        frame[5:7] = (claimed - 256).to_bytes(2, "little")
        with pytest.raises(FormatError):
            decompress_frame(bytes(frame), max_bytes=2000)


@given(st.integers(0, 40), st.integers(0, 255))
def test_a_damaged_frame_gives_a_format_error_or_bounded_bytes(position: int, byte: int) -> None:
    frame = bytearray(compress_frame(b"kafka" * 100))
    frame[position % len(frame)] = byte
    with contextlib.suppress(FormatError):
        assert len(decompress_frame(bytes(frame), max_bytes=500)) <= 500


@pytest.mark.parametrize(
    "frame", [b"", b"\x28\xb5", b"\x28\xb5\x2f\xfd", b"\x28\xb5\x2f\xfd\x60\x01", b"PK\x03\x04...."]
)
def test_what_is_no_frame_is_refused(frame: bytes) -> None:
    with pytest.raises(FormatError):
        decompress_frame(frame, max_bytes=100)


# Checksums of pieces and wholes follow from each other without the bytes.


def test_the_check_value_of_crc_32c() -> None:
    assert extend_crc32c(0, b"123456789") == 0xE3069283
    assert extend_crc32c(extend_crc32c(0, b"1234"), b"56789") == 0xE3069283


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_pieces_and_wholes(head: bytes, rest: bytes) -> None:
    of_head, of_rest, whole = (google_crc32c.value(piece) for piece in (head, rest, head + rest))
    assert append_crc32c(of_head, of_rest, len(rest)) == whole
    assert rest_crc32c(whole, of_head, len(rest)) == of_rest


def test_large_pieces() -> None:
    """A gigabyte of zeros behind one byte, without making it: 1024 times the same piece."""
    block = bytes(2**20)
    whole, one = google_crc32c.value(b"x"), google_crc32c.value(block)
    for _ in range(1024):
        whole = append_crc32c(whole, one, len(block))
    many = 0
    for _ in range(1024):
        many = append_crc32c(many, one, len(block))
    assert append_crc32c(google_crc32c.value(b"x"), many, GIB) == whole
    assert rest_crc32c(whole, google_crc32c.value(b"x"), GIB) == many
