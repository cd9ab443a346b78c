"""Lengths and counts that are refused, exactly at their bounds: what is as long as allowed is read as ever."""

from collections.abc import Callable
from types import ModuleType

import pytest

from include.tiering.errors import FormatError
from include.tiering.formats import aiven_chunks, aiven_manifest, checkpoints, strict_json
from include.tiering.formats.primitive_types import Reader, Writer

CHECKPOINT = b"0\n1\norders 0 7\n"
META_PROPERTIES = b"version=1\ncluster.id=c\nnode.id=1\ndirectory.id=AAECAwQFBgcICQoLDA0ODw\n"
PARTITION_METADATA = b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"


@pytest.mark.parametrize(
    ("module", "limit", "read", "content"),
    [
        (checkpoints, "MAX_CHECKPOINT_BYTES", checkpoints.parse_offset_checkpoint, CHECKPOINT),
        (checkpoints, "MAX_META_PROPERTIES_BYTES", checkpoints.parse_meta_properties, META_PROPERTIES),
        (checkpoints, "MAX_PARTITION_METADATA_BYTES", checkpoints.parse_partition_metadata, PARTITION_METADATA),
    ],
    ids=["checkpoint", "meta.properties", "partition.metadata"],
)
def test_a_file_of_a_broker_may_be_as_long_as_its_limit(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, limit: str, read: Callable[[bytes], object], content: bytes
) -> None:
    monkeypatch.setattr(module, limit, len(content))
    read(content)
    monkeypatch.setattr(module, limit, len(content) - 1)
    with pytest.raises(FormatError):
        read(content)


def test_a_json_document_may_be_as_long_as_its_limit() -> None:
    assert strict_json.parse_object(b'{"a":1}', 7).integer("a", 1, 1) == 1
    with pytest.raises(FormatError, match="7"):
        strict_json.parse_object(b'{"a":1}', 6)


@pytest.mark.parametrize("signs", [b",", b"{", b"["])
def test_a_manifest_may_have_as_many_values_as_its_limit(monkeypatch: pytest.MonkeyPatch, signs: bytes) -> None:
    """Refused before it is parsed, or parsed: the answer to what is no JSON says which."""
    monkeypatch.setattr(aiven_manifest, "_MAX_MANIFEST_VALUES", 20)
    with pytest.raises(FormatError, match="it has more than 20 values"):
        aiven_manifest.parse_manifest(signs * 21)
    with pytest.raises(FormatError) as caught:
        aiven_manifest.parse_manifest(signs * 20)
    assert "values" not in str(caught.value)


@pytest.mark.parametrize("length", [0, 1, 2**15 - 2, 2**15 - 1])
def test_a_string_may_be_as_long_as_kafkas(length: int) -> None:
    writer = Writer()
    writer.string("x" * length)
    assert Reader(writer.value()).string("name") == "x" * length


def test_a_longer_string_is_neither_written_nor_read() -> None:
    with pytest.raises(ValueError, match=f"a string of {2**15} bytes, more than {2**15 - 1}"):
        Writer().string("x" * 2**15)
    content = Writer()
    content.uvarint(2**15 + 1)
    with pytest.raises(FormatError, match=f"more than {2**15 - 1}"):
        Reader(content.value() + b"x" * 2**15).string("name")


@pytest.mark.parametrize("value", [2**15 - 1, 2**15])
def test_a_number_that_kafka_stores_in_two_bytes_has_no_more(value: int) -> None:
    writer = Writer()
    writer.uvarint(value)
    if value < 2**15:
        assert Reader(writer.value()).short_uvarint("size") == value
    else:
        with pytest.raises(FormatError, match=f"size {value} is above {2**15 - 1}"):
            Reader(writer.value()).short_uvarint("size")


@pytest.mark.parametrize("sizes", [(7,), (1, 1), (1, 2, 3), (2**31 - 1, 1, 2**31 - 1), (256, 1, 5), (257, 1, 5)])
def test_as_many_chunks_as_the_limit_are_read(monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, ...]) -> None:
    encoded = aiven_chunks.encode_sizes(sizes)
    monkeypatch.setattr(aiven_chunks, "MAX_CHUNKS", len(sizes))
    assert aiven_chunks.decode_sizes(encoded, len(sizes)) == sizes
    monkeypatch.setattr(aiven_chunks, "MAX_CHUNKS", len(sizes) - 1)
    with pytest.raises(FormatError, match=f"^{len(sizes)} chunks: at most {len(sizes) - 1} are read"):
        aiven_chunks.decode_sizes(encoded, len(sizes))


@pytest.mark.parametrize(
    ("content", "position"),
    [
        (b"0\n 10\norders 0 7\n", 2),
        (b"0\n  x\norders 0 7\n", 2),
        (b"0\n   2\norders 0 7\norders 1\n", 18),
        (b"0\n   2\norders 7\norders 1 3\n", 7),
    ],
    ids=["count", "no count", "second entry", "first entry"],
)
def test_a_broken_checkpoint_says_where(content: bytes, position: int) -> None:
    with pytest.raises(FormatError) as caught:
        checkpoints.parse_entries(content, 3)
    assert caught.value.position == position
