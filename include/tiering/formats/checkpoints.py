"""The small text files of a broker: checkpoints, `partition.metadata` and `meta.properties`.

A checkpoint in the root of a log directory has one offset for each partition. The `leader-epoch-checkpoint` of a
partition's directory, and the leader epoch index of a remote segment, have leader epochs in the same form:

    0                   format version
    2                   number of entries that follow
    orders 0 1500       one entry: topic, partition, offset (of leader epochs: epoch, start offset; inclusive)
    orders 1 77

`partition.metadata` of a partition directory has the id of its topic (any version from 0 on is read; the all-zero id is
not valid):

    version: 0
    topic_id: DhwUnU7hQAGOf7zmLzw1Gg

`meta.properties`, a Java properties file, names the owner of a log directory. In version 1 only `directory.id` may be
missing. A file of version 0, or without a version, has `broker.id` instead of `node.id`, and may lack every id. A file
of version 1:

    # Fri Nov 20 10:12:44 UTC 2026
    version=1
    node.id=1
    directory.id=oZ7F0QwpZ6nyqzcRPvHhsg
    cluster.id=12IO-UzuQxmrizG4BTlN8w

A broker replaces checkpoints by rename, so a reader always gets a complete file.
Source: Kafka's CheckpointFile, PartitionMetadataFile, MetaProperties.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from include.tiering.errors import FormatError
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import Uuid, is_legal_topic_name
from include.tiering.units import KIB, MIB

MAX_CHECKPOINT_BYTES: Final = 64 * MIB
_VERSION: Final = b"0"
_SHOWN: Final = 80
"""How many bytes of a wrong line an error shows."""
_INTEGER: Final = re.compile(rb"-?[0-9]{1,19}")


def parse_offset_checkpoint(data: bytes) -> dict[tuple[str, int], int]:
    """Parse a checkpoint into offsets by (topic, partition).

    Raises:
        FormatError: an entry is malformed, or a second one for its partition (the position is the start of its line);
            and what `parse_entries` raises.
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
    """Return the bytes that a broker writes for these offsets by (topic, partition)."""
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    return "\n".join([_VERSION.decode(), str(len(lines)), *lines, ""]).encode()


def parse_entries(data: bytes, field_count: int) -> list[tuple[int, list[bytes]]]:
    """Return the entries as (position of the line, its fields).

    A file that is empty, or has only the line of the version, has no entries.

    Raises:
        FormatError: the file is too large, the version is not 0, or the number of entries or fields is wrong.
    """
    if len(data) > MAX_CHECKPOINT_BYTES:
        raise FormatError(f"the checkpoint has {len(data)} bytes, at most {MAX_CHECKPOINT_BYTES} are read")
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
        raise FormatError(f"the second line says {count} entries, {len(lines) - 2} lines follow", position)
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
    """Parse a decimal number in 0..2^bits-1.

    Raises:
        FormatError: the text is anything else.
    """
    if not _INTEGER.fullmatch(text):
        raise FormatError(f"not a number: {_shown(text)}", position)
    number = int(text)
    if not 0 <= number < 1 << bits:
        raise FormatError(f"{number} is outside 0..2^{bits}-1", position)
    return number


def _shown(text: bytes) -> str:
    return repr(text[:_SHOWN].decode("ascii", "backslashreplace"))


def parse_leader_epochs(data: bytes) -> LeaderEpochs:
    """Parse leader epochs. Raises FormatError if malformed, if epochs do not ascend, or if start offsets fall."""
    entries = [
        (parse_integer(epoch, 31, position), parse_integer(start_offset, 63, position))
        for position, (epoch, start_offset) in parse_entries(data, 2)
    ]
    try:
        return LeaderEpochs.of(entries)
    except ValueError as error:
        raise FormatError(str(error)) from error


def serialize_leader_epochs(leader_epochs: LeaderEpochs) -> bytes:
    """Return the bytes that a broker writes for these leader epochs."""
    lines = ["0", str(len(leader_epochs)), *(f"{epoch} {start}" for epoch, start in leader_epochs), ""]
    return "\n".join(lines).encode()


MAX_PARTITION_METADATA_BYTES: Final = KIB
_FORM: Final = re.compile(rb"version:\s*([0-9]{1,9})\s*\ntopic_id:\s*([A-Za-z0-9_-]{22})\s*")


def parse_partition_metadata(data: bytes) -> Uuid:
    """Return the topic id. Raises FormatError if the text is malformed, or the id is no Uuid or zero."""
    found = _FORM.fullmatch(data) if len(data) <= MAX_PARTITION_METADATA_BYTES else None
    if found is None:
        raise FormatError(f"the {len(data)} bytes are not the two lines version and topic_id")
    try:
        topic_id = Uuid.parse(found[2].decode())
    except ValueError as error:
        raise FormatError(str(error), found.start(2)) from error
    if topic_id.is_zero:
        raise FormatError("the topic id is zero", found.start(2))
    return topic_id


def serialize_partition_metadata(topic_id: Uuid) -> bytes:
    """Return the bytes that a broker writes, without a line end after the id."""
    return f"version: 0\ntopic_id: {topic_id}".encode()


MAX_META_PROPERTIES_BYTES: Final = 64 * KIB
_LINE: Final = re.compile(r"((?:[^\s=:\\]|\\.)+)\s*[=:\s]\s*(.*)", re.ASCII)
_ESCAPE: Final = re.compile(r"\\(.)")
_NODE_ID: Final = re.compile(r"[0-9]{1,10}", re.ASCII)


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The owner of a log directory. An id that the file lacks is None, and so is a node id of -1."""

    version: int
    cluster_id: str | None
    node_id: int | None
    directory_id: Uuid | None


def parse_meta_properties(data: bytes) -> MetaProperties:
    """Parse meta.properties.

    Raises:
        FormatError: the file is too large or no properties file, its version is neither 0 nor 1, an id is malformed, or
            version 1 lacks `cluster.id` or `node.id`.
    """
    properties = _parse_properties(data)
    version = properties.get("version", "0")
    if version not in ("0", "1"):
        raise FormatError(f"meta.properties version {version[:20]!r} is neither 0 nor 1")
    node_key = "node.id" if version == "1" else "broker.id"
    meta = MetaProperties(
        version=int(version),
        cluster_id=properties.get("cluster.id"),
        node_id=_node_id(properties.get(node_key)),
        directory_id=_directory_id(properties.get("directory.id")),
    )
    if meta.version == 1 and (meta.cluster_id is None or meta.node_id is None):
        raise FormatError("meta.properties version 1 lacks cluster.id or node.id")
    return meta


def _parse_properties(data: bytes) -> dict[str, str]:
    if len(data) > MAX_META_PROPERTIES_BYTES:
        raise FormatError(f"the file has {len(data)} bytes, at most {MAX_META_PROPERTIES_BYTES} are read")
    properties = {}
    position = 0
    for raw in data.splitlines(keepends=True):
        line = raw.decode("latin-1").strip()
        if line and line[0] not in "#!":
            found = _LINE.fullmatch(line)
            if found is None:
                raise FormatError("the line is not key=value", position)
            properties[_ESCAPE.sub(r"\1", found[1])] = _ESCAPE.sub(r"\1", found[2])
        position += len(raw)
    return properties


def _node_id(text: str | None) -> int | None:
    if text is None or text == "-1":
        return None
    if not _NODE_ID.fullmatch(text) or int(text) >= 2**31:
        raise FormatError(f"node id {text[:20]!r} is not in 0..2^31-1")
    return int(text)


def _directory_id(text: str | None) -> Uuid | None:
    if text is None:
        return None
    try:
        return Uuid.parse(text)
    except ValueError as error:
        raise FormatError(f"directory.id: {error}") from error
