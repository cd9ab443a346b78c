"""Directories whose name is not the one that their topic id has: nothing of them is read.

A topic is never renamed, so the id in `partition.metadata` and the directory's name say the same. Where they do not,
one of them is wrong: the records would be archived under another topic's id, or behind what is archived of it.

Of a directory that is being deleted or moved the broker cuts a long name off, and it is never read: its name proves
nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from include.tiering.errors import MetadataUnavailableError, printable
from include.tiering.kafka.cluster.contract import TopicFacts
from include.tiering.kafka.log_dirs.contract import IneligibleReason, ScanError
from include.tiering.kafka.log_dirs.found_replica import FoundReplica
from include.tiering.kafka.log_dirs.names import PARTITION_METADATA, DirectoryState
from include.tiering.model.ids import Uuid

RecordedName = Callable[[Uuid], str | None]
"""The name with which a topic id was recorded when something of it was archived; None of one that never was."""


def nothing_recorded(_topic_id: Uuid) -> None:
    """Where nothing was ever archived."""


def recorded_if_there(recorded: RecordedName) -> RecordedName:
    """For one scan, which needs no database: each topic is asked for once, nothing is compared where nobody answers.
    Whoever opens a segment asks again, and needs one."""

    @cache
    def name(topic_id: Uuid) -> str | None:
        try:
            return recorded(topic_id)
        except MetadataUnavailableError:
            return None

    return name


def kept(recorded: RecordedName) -> RecordedName:
    """For a process that opens many segments: a topic is never renamed, so the name that was recorded is asked for
    once. What has none is asked for again: it may be recorded meanwhile."""
    names: dict[Uuid, str] = {}

    def name(topic_id: Uuid) -> str | None:
        known = names.get(topic_id)
        if known is None and (known := recorded(topic_id)) is not None:
            names[topic_id] = known
        return known

    return name


@dataclass(frozen=True, slots=True)
class KnownName:
    """The name that a topic id has, and `by` whose word."""

    name: str
    by: str


def known_name(topic_id: Uuid, topic: TopicFacts | None, recorded: RecordedName) -> KnownName | None:
    """As the cluster says, or if it does not know the id (`topic` None), as it was recorded."""
    if topic is not None:
        return KnownName(topic.topic, "the cluster calls")
    name = recorded(topic_id)
    return None if name is None else KnownName(name, "was archived as")


def find_misnamed(replicas: Sequence[FoundReplica], known: KnownName | None) -> list[FoundReplica]:
    """Those of one topic id that have another name than is known of it. If none is known, all of them where they
    differ: one is wrong, and nothing says which."""
    names = {one.topic_id_partition.topic for one in replicas if one.state is DirectoryState.LIVE}
    if known is not None:
        return [replica for replica in replicas if replica.topic_id_partition.topic != known.name]
    return list(replicas) if len(names) > 1 else []


def misnamed_error(replica: FoundReplica, known: KnownName | None) -> ScanError:
    """Names the file that holds the id."""
    topic_id = replica.topic_id_partition.topic_id
    who = "directories of two names have" if known is None else f"{known.by} {known.name}"
    message = f"{IneligibleReason.TOPIC_CONTRADICTED}: its topic id is {topic_id}, which {who}"
    path = f"{replica.identity.path}/{replica.directory_name}/{PARTITION_METADATA}"
    return ScanError(printable(path), None, "CorruptFileError", printable(message), str(replica.topic_id_partition))
