"""Checkpoint files: the text that Kafka writes for offsets per partition and for leader epochs.

    0                   format version
    2                   number of entries that follow
    orders 0 1500       root of a log dir: topic, partition, offset
    orders 1 77         (leader-epoch-checkpoint: epoch, start offset)

A broker replaces these files by rename, so a reader sees a whole one. Source: Kafka's CheckpointFile.
"""

import re
from collections.abc import Mapping
from typing import Final

from include.tiering.errors import FormatError
from include.tiering.model.ids import is_legal_topic_name
from include.tiering.units import MIB

MAX_CHECKPOINT_BYTES: Final = 64 * MIB
_VERSION: Final = b"0"
_SHOWN: Final = 80
"""Bytes of a bad line that an error repeats."""
_INTEGER: Final = re.compile(rb"-?[0-9]{1,19}")


def parse_offset_checkpoint(data: bytes) -> dict[tuple[str, int], int]:
    """Offset by (topic, partition).

    Raises:
        FormatError: at the line that breaks the format.
    """
    offsets: dict[tuple[str, int], int] = {}
    for position, (topic_bytes, partition_text, offset_text) in parse_entries(data, 3):
        topic = topic_bytes.decode("ascii", "backslashreplace")
        if not is_legal_topic_name(topic):
            raise FormatError(f"not a legal topic name: {topic[:_SHOWN]!r}", position)
        partition = parse_integer(partition_text, 31, position)
        if (topic, partition) in offsets:
            raise FormatError(f"{topic}-{partition} is listed twice", position)
        offsets[topic, partition] = parse_integer(offset_text, 63, position)
    return offsets


def serialize_offset_checkpoint(offsets: Mapping[tuple[str, int], int]) -> bytes:
    """The bytes that a broker writes for these offsets by (topic, partition)."""
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    return "\n".join([_VERSION.decode(), str(len(lines)), *lines, ""]).encode()


def parse_entries(data: bytes, field_count: int) -> list[tuple[int, list[bytes]]]:
    """The entries as (position of the line, its fields). No byte, or a version line alone, means no entry.

    Raises:
        FormatError: too large, another version, another number of entries or of fields than said.
    """
    if len(data) > MAX_CHECKPOINT_BYTES:
        raise FormatError(f"a checkpoint of {len(data)} bytes, at most {MAX_CHECKPOINT_BYTES} are read")
    lines = data.splitlines(keepends=True)
    if not lines:
        return []
    if lines[0].strip() != _VERSION:
        raise FormatError(f"checkpoint version {_shown(lines[0])} is not 0")
    if len(lines) == 1:
        return []
    position = len(lines[0])
    count = parse_integer(lines[1].strip(), 31, position)
    if count != len(lines) - 2:
        raise FormatError(f"{count} entries announced, {len(lines) - 2} lines follow", position)
    position += len(lines[1])
    entries = []
    for line in lines[2:]:
        fields = line.split()
        if len(fields) != field_count:
            raise FormatError(f"{len(fields)} fields instead of {field_count}: {_shown(line)}", position)
        entries.append((position, fields))
        position += len(line)
    return entries


def parse_integer(text: bytes, bits: int, position: int) -> int:
    """A decimal number in 0..2^bits-1.

    Raises:
        FormatError: anything else.
    """
    if not _INTEGER.fullmatch(text):
        raise FormatError(f"not a number: {_shown(text)}", position)
    number = int(text)
    if not 0 <= number < 1 << bits:
        raise FormatError(f"{number} is outside 0..2^{bits}-1", position)
    return number


def _shown(text: bytes) -> str:
    return repr(text[:_SHOWN].decode("ascii", "backslashreplace"))
