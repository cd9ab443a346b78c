"""Names in a broker's log directory. A name is believed only if it is one that a broker writes.

    <topic>-<partition>                          live replica, split at the last '-'
    <topic>-<partition>.<32 hex digits>-delete   being deleted; the topic part may be cut short
    <topic>-<partition>.<32 hex digits>-stray    the broker must not own it
    <topic>-<partition>.<32 hex digits>-future   being moved here from another directory
    <offset, 20 digits>.<kind>                   a file of a partition directory
    <any of these>.deleted|.cleaned|.swap|.tmp   on its way out, or not there yet: never read

Source: Kafka's LogFileUtils and UnifiedLog.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from include.tiering.model.ids import is_legal_topic_name

METADATA_LOG: Final = "__cluster_metadata-0"
META_PROPERTIES: Final = "meta.properties"
LEADER_EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"

NOT_PARTITIONS: Final = frozenset({METADATA_LOG, "remote-log-index-cache"})
"""Directories of a log dir that hold no replica of a topic."""

MAX_OFFSET: Final = 2**63 - 1
_PASSING_SUFFIXES: Final = (".deleted", ".cleaned", ".swap", ".tmp")
_PARTITION: Final = re.compile(r"(?P<topic>.+)-(?P<partition>[0-9]{1,10})")
_SUFFIX: Final = re.compile(r"\.[0-9a-f]{32}-(?P<state>delete|stray|future)\Z")
_PLAIN: Final = re.compile(r"[a-zA-Z0-9._-]{1,255}")


class DirectoryState(StrEnum):
    """What a partition directory's name says about it."""

    LIVE = "live"
    DELETE = "delete"
    STRAY = "stray"
    FUTURE = "future"


class FileKind(StrEnum):
    """The files of a partition directory whose name starts with an offset."""

    LOG = "log"
    OFFSET_INDEX = "index"
    TIME_INDEX = "timeindex"
    TRANSACTION_INDEX = "txnindex"
    PRODUCER_SNAPSHOT = "snapshot"


_KINDS: Final = {kind.value: kind for kind in FileKind}


@dataclass(frozen=True, slots=True)
class PartitionDirectoryName:
    """`topic` may be cut short unless the state is LIVE."""

    topic: str
    partition: int
    state: DirectoryState


def parse_partition_directory(name: str) -> PartitionDirectoryName | None:
    """None if no broker names a partition directory like this."""
    suffix = _SUFFIX.search(name)
    plain = _PARTITION.fullmatch(name[: suffix.start()] if suffix else name)
    if plain is None or not is_legal_topic_name(plain["topic"]):
        return None
    partition = int(plain["partition"])
    if partition >= 2**31 or plain["partition"] != str(partition):
        return None
    state = DirectoryState(suffix["state"]) if suffix else DirectoryState.LIVE
    return PartitionDirectoryName(plain["topic"], partition, state)


def parse_offset_file(name: str) -> tuple[int, FileKind] | None:
    """Offset and kind of ``<20 digits>.<kind>``; None for every other name."""
    digits, kind = name[:20], _KINDS.get(name[21:])
    if kind is None or name[20] != "." or not (digits.isascii() and digits.isdigit()):
        return None
    offset = int(digits)
    return (offset, kind) if offset <= MAX_OFFSET else None


def offset_file(offset: int, kind: FileKind) -> str:
    return f"{offset:020d}.{kind.value}"


def is_passing(name: str) -> bool:
    """On its way out (deleted, cleaned, swapped) or half written."""
    return name.endswith(_PASSING_SUFFIXES)


def is_harmless(name: str) -> bool:
    """A name that may lie in a partition directory without meaning anything to us.

    Not harmless: characters that no broker uses, and a name that claims to be a segment's file but has no offset.
    """
    return _PLAIN.fullmatch(name) is not None and name.rpartition(".")[2] not in _KINDS
