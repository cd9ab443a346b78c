"""Chunk indexes: the plugin's vectors, an independent packing, and what a hostile one meets."""

import base64

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from include.tiering.errors import FormatError
from include.tiering.formats.aiven_chunks import (
    MAX_CHUNKS,
    Chunk,
    FixedChunkIndex,
    VariableChunkIndex,
    chunk_count,
    chunks_over,
    decode_sizes,
    encode_sizes,
)
from include.tiering.units import GIB, MIB
from tests.doubles.aiven_files import decompressed, encoded_sizes, unpacked

VECTORS = [
    ([1_000_000, 1_000_010, 400_000], "00000003000f424001000a00061a80", "KLUv/SAPeQAAAAAAAwAPQkABAAoABhqA"),
    ([19, 300, 14], "000000030000001302000001190000000e", "KLUv/SARiQAAAAAAAwAAABMCAAABGQAAAA4="),
    ([60], "000000010000003c", "KLUv/SAIQQAAAAAAAQAAADw="),
]


@pytest.mark.parametrize(("sizes", "binary", "text"), VECTORS)
def test_encoded_sizes_equal_the_plugins(sizes: list[int], binary: str, text: str) -> None:
    assert decompressed(base64.b64decode(text)).hex() == binary
    assert encode_sizes(sizes) == text
    assert decode_sizes(text, len(sizes)) == tuple(sizes)


sizes_lists = st.lists(st.integers(1, 2**31 - 1), max_size=40) | st.builds(
    lambda base, rest: [base + one for one in rest],
    st.integers(1, 2**30),
    st.lists(st.sampled_from([0, 1, 255, 256, 65535, 65536, 2**24]), max_size=8),
)


@given(sizes_lists)
def test_sizes_are_packed_as_an_independent_writer_does(sizes: list[int]) -> None:
    assert unpacked(decompressed(base64.b64decode(encode_sizes(sizes)))) == sizes
    assert decode_sizes(encoded_sizes(sizes), len(sizes)) == tuple(sizes)


def packed(binary: bytes) -> str:
    return base64.b64encode(zstandard.ZstdCompressor().compress(binary)).decode()


@pytest.mark.parametrize(
    ("text", "chunks", "words"),
    [
        ("", 1, "zstd"),
        ("not base64!", 1, "base64"),
        ("ключ", 1, "base64"),
        # Characters that a lenient decoder leaves out: the rest is a list of these chunks.
        *((f"{VECTORS[2][2][:4]}{foreign}{VECTORS[2][2][4:]}", 1, "base64") for foreign in ("\n", " ", "!", "-_")),
        (base64.b64encode(b"no frame").decode(), 1, "zstd"),
        (packed(b""), 0, "0 bytes"),
        (packed(bytes.fromhex("00000001")), 1, "4 bytes"),
        (packed(bytes.fromhex("000000010000003c00")), 1, "9 bytes"),
        (packed(bytes.fromhex("000000010000003c")), 2, "says 1 chunks, the file has 2"),
        (packed(bytes.fromhex("7fffffff0000001301")), 2**31 - 1, "at most"),
        (packed(bytes.fromhex("00000003")), 3, "4 bytes"),
        (packed(bytes.fromhex("0000000300000013020000011900000e")), 3, "16 bytes, 3 chunks need 17"),
        (packed(bytes.fromhex("00000003000000130000000119")), 3, "width 0"),
        (packed(bytes.fromhex("000000030000001305000001190000000e")), 3, "width 5"),
        (packed(bytes.fromhex("00000003ffffff1302000001190000000e")), 3, "base -237"),
        (packed(bytes.fromhex("00000003000000000200000119ffffffff")), 3, "chunk of -1 bytes"),
        (packed(bytes.fromhex("0000000100000000")), 1, "chunk of 0 bytes"),
        (packed(bytes(11 * MIB)), 3, "at most"),
    ],
)
def test_what_is_no_list_of_these_chunks_is_refused(text: str, chunks: int, words: str) -> None:
    with pytest.raises(FormatError, match=words):
        decode_sizes(text, chunks)


def test_a_count_is_not_believed() -> None:
    with pytest.raises(FormatError, match=str(MAX_CHUNKS)):
        decode_sizes(packed(b"\0"), MAX_CHUNKS + 1)


def plain_chunks(file_size: int, chunk_size: int, stored: list[int]) -> list[Chunk]:
    found, at = [], 0
    for number, position in enumerate(range(0, file_size, chunk_size)):
        found.append(Chunk(number, position, min(chunk_size, file_size - position), at, stored[number]))
        at += stored[number]
    return found


@given(st.integers(1, 300), st.integers(1, 60), st.booleans(), st.data())
def test_chunks_over_a_range_are_those_that_hold_its_bytes(
    file_size: int, chunk_size: int, is_variable: bool, data: st.DataObject
) -> None:
    count = -(-file_size // chunk_size)
    if is_variable:
        stored = data.draw(st.lists(st.integers(1, 90), min_size=count, max_size=count))
        index: FixedChunkIndex | VariableChunkIndex = VariableChunkIndex(chunk_size, file_size, tuple(stored))
    else:
        index = FixedChunkIndex.plain(chunk_size, file_size, 28)
        stored = [chunk_size + 28] * (count - 1) + [file_size - (count - 1) * chunk_size + 28]
    first = data.draw(st.integers(0, file_size - 1))
    last = data.draw(st.integers(first, file_size - 1))
    expected = plain_chunks(file_size, chunk_size, stored)
    holding = [one for one in expected if one.position <= last and one.position + one.size_bytes > first]
    assert list(chunks_over(index, first, last)) == holding
    assert (chunk_count(index), index.stored_size_bytes) == (count, sum(stored))


def test_an_empty_file_has_no_chunk() -> None:
    index = FixedChunkIndex.plain(10, 0)
    assert (chunk_count(index), index.stored_size_bytes, list(index.stored_chunks(0))) == (0, 0, [])


@pytest.mark.parametrize("chunk_size", [0, -1, GIB + 1])
def test_an_impossible_chunk_size_is_refused(chunk_size: int) -> None:
    with pytest.raises(ValueError, match="chunk size"):
        FixedChunkIndex.plain(chunk_size, 100)
