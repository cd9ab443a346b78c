"""`LogSource` over the log directories of one or several brokers of one cluster.

With a connection to brokers, calls that need offsets request them from the leaders before they read a partition
directory. A scan takes the partitions to request from the names of their directories.
"""

import socket
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from include.tiering.errors import (
    ClusterMetadataError,
    SettingError,
    SourceChangedError,
    SourceError,
    SourceUnreadableError,
    SourceVanishedError,
)
from include.tiering.kafka.cluster.contract import Brokers, ClusterMetadata, OffsetsAnswer, TopicMetadata
from include.tiering.kafka.log_dirs.contract import (
    LogSegment,
    OpenSegment,
    Replica,
    ReplicaId,
    ScanError,
    ScanReport,
    UnfinishedTransaction,
    go_on_always,
    scan_error,
)
from include.tiering.kafka.log_dirs.dirs import (
    DirIdentity,
    LogDirLocation,
    identified_dirs,
    list_partition,
    live_partitions,
    open_root,
)
from include.tiering.kafka.log_dirs.evaluate_replicas import (
    EvaluatedReplicas,
    Ownership,
    Retention,
    evaluate,
    is_note,
    no_retention,
    ownership,
)
from include.tiering.kafka.log_dirs.files import (
    DirectoryState,
    PartitionDirectoryName,
)
from include.tiering.kafka.log_dirs.found_replica import (
    FoundReplica,
    RecordedName,
    UnreadReplica,
    nothing_recorded,
    recorded_or_none,
)
from include.tiering.kafka.log_dirs.log_tail import find_unfinished_transactions
from include.tiering.kafka.log_dirs.open_segment import OpenedReplica, OpenLogSegment
from include.tiering.kafka.log_dirs.replica_reader import DirReader, with_leader_read_last
from include.tiering.kafka.log_dirs.rolled_segments import KnownTimestamps, SegmentFiles
from include.tiering.kafka.log_dirs.segment_checks import find_leading_compacted, find_size_doubts
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import TopicIdPartition, Uuid

_UNKNOWN_PATH: Final = "topic facts"


@dataclass(frozen=True, slots=True)
class _Located:
    """A replica and the log directory that holds it."""

    log_dir: LogDirLocation
    found: FoundReplica


class LogDirSource:
    """Replicas in brokers' log directories. Thread-safe.

    Args:
        log_dirs: directories of one cluster, each once. The constructor does not access them.
        cluster_metadata: metadata of the same cluster; each call that uses it refreshes it first.
        named_topics: exact names of topics that may be copied although the cluster metadata does not have them.
        retention: returns the timestamp below which segments of a topic are past retention, or None if no segment is
            past retention, which is the default.
        recorded: returns the stored names of archived topics; used only for ids that the cluster metadata does not
            have.
        brokers: brokers of the same cluster, for exact offsets. While none of them answers, every call that evaluates
            replicas (`scan`, `replica`, `unfinished_transactions`, `open_segment`) raises BrokersUnavailableError; no
            segment is eligible by checkpoints instead. None: bounds come from checkpoints.

    Raises:
        SettingError: a directory of a broker is given twice.
    """

    def __init__(
        self,
        log_dirs: Sequence[LogDirLocation],
        cluster_metadata: ClusterMetadata,
        *,
        named_topics: Collection[str] = (),
        retention: Retention = no_retention,
        recorded: RecordedName = nothing_recorded,
        brokers: Brokers | None = None,
    ) -> None:
        seen = set()
        for log_dir in log_dirs:
            if log_dir in seen:
                raise SettingError(f"log directory {log_dir.path} of broker {log_dir.broker_id} is given twice")
            seen.add(log_dir)
        self._log_dirs = tuple(log_dirs)
        self._cluster_metadata = cluster_metadata
        self._named_topics = frozenset(named_topics)
        self._rules = partial(evaluate, named_topics=self._named_topics, retention=retention)
        self._recorded = recorded
        self._brokers = brokers
        self._cluster_metadata_lock = threading.Lock()
        self._known = KnownTimestamps()

    def scan(self, *, topics: Collection[str] | None = None, deep: bool = False) -> ScanReport:
        with self._cluster_metadata_lock:
            errors: list[ScanError] = []
            cluster_metadata = self._cluster_metadata_or_none(errors)
            cluster_id = cluster_metadata.cluster_id() if cluster_metadata else None
            groups: dict[tuple[Uuid, int], list[FoundReplica]] = defaultdict(list)
            unread: list[UnreadReplica] = []
            identified = identified_dirs(self._log_dirs, cluster_id)
            identities = [identity for _, identity in identified if isinstance(identity, DirIdentity)]
            offsets = offsets_of_live(self._brokers, cluster_metadata, identities, topics)
            for log_dir, identity in identified:
                if not isinstance(identity, DirIdentity):
                    errors.append(scan_error(identity, str(log_dir.path)))
                    continue
                cluster_id = identity.cluster_id
                for found in self._replicas_in(identity, topics, deep, errors):
                    if isinstance(found, UnreadReplica):
                        unread.append(found)
                    else:
                        groups[found.topic_id_partition.topic_id, found.topic_id_partition.partition].append(found)
            recorded = recorded_or_none(self._recorded)
            evaluated = [
                self._evaluate_or_report(group, cluster_metadata, offsets, errors, recorded, deep=deep)
                for group in groups.values()
            ]
            errors += [error for partition in evaluated for error in partition.errors]
            notes = [error for partition in evaluated for error in partition.notes]
            replicas = sorted(
                (replica for partition in evaluated for replica in partition.replicas),
                key=lambda replica: replica.replica_id.order,
            )
            for unread_replica in unread:
                into = notes if is_note(unread_replica, replicas, cluster_metadata) else errors
                into.append(unread_replica.error)
            return ScanReport(cluster_id, tuple(replicas), tuple(errors), tuple(notes))

    def find_segments(
        self,
        *,
        topics: Collection[str] | None,
        copied_to: Callable[[TopicIdPartition], int | None],
        go_on: Callable[[str], None],
    ) -> Sequence[ScanError]:
        """Do nothing: a scan lists all files."""
        return ()

    def replica(self, replica_id: ReplicaId) -> Replica:
        with self._cluster_metadata_lock:
            return self._locate(replica_id)[1]

    def size_doubts(self, replica_id: ReplicaId, segments: Sequence[LogSegment]) -> Mapping[int, str]:
        return find_size_doubts(self._identities(), replica_id, segments)

    def leading_compacted(self, replica_id: ReplicaId, segments: Sequence[LogSegment]) -> Sequence[LogSegment]:
        return find_leading_compacted(self._identities(), replica_id, segments)

    def _identities(self) -> Iterator[DirIdentity]:
        identified = identified_dirs(self._log_dirs, None)
        return (identity for _, identity in identified if isinstance(identity, DirIdentity))

    def leader_epochs(self, replica: Replica) -> LeaderEpochs:
        """Return the epochs in the checkpoint of the leader's directory, as they were read for `replica`."""
        return replica.leader_epochs

    def unfinished_transactions(self, replica_id: ReplicaId) -> Sequence[UnfinishedTransaction]:
        with self._cluster_metadata_lock:
            located, replica = self._locate(replica_id)
        found = located.found
        with open_root(found.identity.path) as root, root.directory(found.directory_name) as directory:
            return find_unfinished_transactions(
                directory, list_partition(directory, _ignore), high_watermark=replica.high_watermark
            )

    @contextmanager
    def open_segment(
        self, replica_id: ReplicaId, base_offset: int, *, go_on: Callable[[], object] = go_on_always
    ) -> Iterator[OpenSegment]:
        try:
            with self._cluster_metadata_lock:
                located, replica = self._locate(replica_id, base_offset)
                owned = self._ownership(located.found)
        except SourceUnreadableError as error:
            raise _with_host(error) from error
        found = located.found
        path = f"{found.identity.path}/{found.directory_name}"
        segment = replica.segment_at(base_offset)
        if segment is None:
            raise SourceVanishedError(path, f"no segment starts at offset {base_offset}")
        if segment.active:
            raise SourceChangedError(path, f"the segment at offset {base_offset} is the active one")
        with (
            open_root(found.identity.path) as root,
            root.directory(found.directory_name) as directory,
            SegmentFiles.open(directory, base_offset, segment.end_offset + 1) as files,
        ):
            if files.log.size_bytes != segment.size_bytes:
                raise SourceChangedError(
                    files.log.path, f"had {segment.size_bytes} bytes when it was listed, now {files.log.size_bytes}"
                )
            opened = OpenedReplica(
                log_dir=located.log_dir,
                identity=found.identity,
                directory=directory,
                directory_name=found.directory_name,
                replica=replica,
                ownership=owned,
            )
            yield OpenLogSegment(opened, segment, files, lambda: self._ownership_now(found))

    def _cluster_metadata_or_none(self, errors: list[ScanError]) -> ClusterMetadata | None:
        try:
            self._cluster_metadata.refresh()
        except ClusterMetadataError as error:
            if error.retriable:
                raise
            errors.append(scan_error(error, _UNKNOWN_PATH))
            return None
        return self._cluster_metadata

    def _replicas_in(
        self, identity: DirIdentity, topics: Collection[str] | None, deep: bool, errors: list[ScanError]
    ) -> Iterator[FoundReplica | UnreadReplica]:
        def on_error(error: SourceError) -> None:
            errors.append(scan_error(error, identity.path, ""))

        try:
            with open_root(identity.path) as root:
                yield from DirReader.of(root, identity, on_error).replicas(topics, deep=deep)
        except SourceError as error:
            errors.append(scan_error(error, identity.path))

    def _locate(self, replica_id: ReplicaId, base_offset: int | None = None) -> tuple[_Located, Replica]:
        """Read one replica and evaluate it together with all other readable replicas of its partition.

        With `base_offset`, the evaluated replica has only the segment that begins there, and damaged ones: a partition
        may have thousands of segments.

        Returns:
            The replica as it was read, with its log directory, and the replica as it was evaluated.

        Raises:
            SourceVanishedError: no log directory that may be read has the replica's broker id and directory id, the
                partition directory does not exist, or it belongs to another topic id.
            SourceError: it cannot be read.
            ClusterMetadataError: the cluster metadata cannot be read.
        """
        self._cluster_metadata.refresh()
        partition = replica_id.topic_id_partition
        offsets = None if self._brokers is None else self._brokers.partition_offsets([partition])
        directory_name = str(partition)
        group: list[_Located] = []
        refused = ""
        for log_dir, identity in identified_dirs(self._log_dirs, self._cluster_metadata.cluster_id()):
            if not isinstance(identity, DirIdentity):
                refused += f"; {identity}"
                continue
            is_wanted = (identity.broker_id, identity.directory_id) == (replica_id.broker_id, replica_id.directory_id)
            try:
                with open_root(identity.path) as root:
                    reader = DirReader.of(root, identity, _ignore, self._known)
                    name = PartitionDirectoryName(partition.topic, partition.partition, DirectoryState.LIVE)
                    found = reader.replica(directory_name, name)
            except SourceError:
                if is_wanted:
                    raise
                continue
            if found.topic_id_partition == partition:
                group.append(_Located(log_dir, found))
            elif is_wanted:
                now = found.topic_id_partition.topic_id
                path = f"{identity.path}/{directory_name}"
                raise SourceVanishedError(path, f"topic id was {partition.topic_id}, now {now}")
        evaluated = (
            self._evaluate(
                [located.found for located in group], self._cluster_metadata, offsets, base_offset=base_offset
            ).replicas
            if group
            else []
        )
        for located, replica in zip(group, evaluated, strict=True):
            if replica.replica_id == replica_id:
                return located, replica
        raise SourceVanishedError(
            str(replica_id), f"no readable log directory has id {replica_id.directory_id}{refused}"
        )

    def _evaluate_or_report(
        self,
        group: Sequence[FoundReplica],
        cluster_metadata: ClusterMetadata | None,
        offsets: OffsetsAnswer | None,
        errors: list[ScanError],
        recorded: RecordedName,
        *,
        deep: bool,
    ) -> EvaluatedReplicas:
        """Evaluate the replicas of a partition.

        If the topic's metadata is refused, add the error to `errors`, and evaluate without cluster metadata.

        Raises:
            ClusterMetadataError: the metadata cannot be read at present (retriable).
        """
        try:
            return self._evaluate(group, cluster_metadata, offsets, deep=deep, recorded=recorded)
        except ClusterMetadataError as error:
            if error.retriable:
                raise
            errors.append(scan_error(error, group[0].directory_name, str(group[0].topic_id_partition)))
            return self._evaluate(group, None, None, deep=deep, recorded=recorded)

    def _evaluate(
        self,
        group: Sequence[FoundReplica],
        cluster_metadata: ClusterMetadata | None,
        offsets: OffsetsAnswer | None,
        *,
        deep: bool = False,
        recorded: RecordedName | None = None,
        base_offset: int | None = None,
    ) -> EvaluatedReplicas:
        if cluster_metadata is not None and self._brokers is None:
            group = with_leader_read_last(group, cluster_metadata, self._known, deep=deep)
        if base_offset is not None:
            group = [_with_segment_at(base_offset, found) for found in group]
        return self._rules(group, cluster_metadata, offsets, recorded=recorded or self._recorded)

    def _ownership(self, found: FoundReplica) -> Ownership:
        partition = found.topic_id_partition
        return ownership(
            partition, self._cluster_metadata, named=partition.topic in self._named_topics, cleaned=found.cleaned
        )

    def _ownership_now(self, found: FoundReplica) -> Ownership:
        with self._cluster_metadata_lock:
            self._cluster_metadata.refresh()
            return self._ownership(found)


def _with_segment_at(base_offset: int, found: FoundReplica) -> FoundReplica:
    """Return the replica with the segment that begins there and with damaged ones, which may stop it; no other can."""
    kept = tuple(
        segment
        for segment in found.segments
        if segment.base_offset == base_offset
        or segment.is_corrupt
        or segment.is_unreadable
        or segment.first_missing_offset is not None
    )
    return replace(found, segments=kept)


def _ignore(_error: SourceError) -> None:
    """Ignore an error of a single file: the reader marks the segments that it concerns, if any."""


def offsets_of_live(
    brokers: Brokers | None,
    cluster_metadata: ClusterMetadata | None,
    identities: Iterable[DirIdentity],
    topics: Collection[str] | None,
) -> OffsetsAnswer | None:
    """Request the offsets of the partitions that have a live directory in one of the log directories.

    Args:
        brokers: the brokers; None without a connection.
        cluster_metadata: metadata of the same cluster; None if it could not be read.
        identities: the log directories; those that cannot be listed are skipped.
        topics: patterns of topic names; None means all topics.

    Returns:
        The leaders' offsets; None without brokers or metadata.

    Raises:
        BrokersError: a request for metadata failed; a failed request to a leader is in the answer.
    """
    if brokers is None or cluster_metadata is None:
        return None
    names: set[tuple[str, int]] = set()
    for identity in identities:
        with suppress(SourceError), open_root(identity.path) as root:
            names |= live_partitions(root, topics)
    return offsets_by_name(brokers, cluster_metadata, names)


def offsets_by_name(
    brokers: Brokers, cluster_metadata: ClusterMetadata, names: Collection[tuple[str, int]]
) -> OffsetsAnswer:
    """Request the offsets of partitions that are given as (topic name, number).

    The topic is the one that has the name now. Left out are names without a topic, topics whose metadata is refused,
    and partitions that the topic does not have.

    Raises:
        BrokersError: a request for metadata failed; a failed request to a leader is in the answer.
    """
    found = {name: _named(cluster_metadata, name) for name in {topic for topic, _ in names}}
    return brokers.partition_offsets(
        [
            TopicIdPartition(topic.topic_id, partition, name)
            for name, partition in sorted(names)
            if (topic := found[name]) is not None and partition in topic.partitions
        ]
    )


def _named(cluster_metadata: ClusterMetadata, name: str) -> TopicMetadata | None:
    try:
        return cluster_metadata.topic_named(name)
    except ClusterMetadataError as error:
        if error.retriable:
            raise
        return None


def _with_host(error: SourceUnreadableError) -> SourceUnreadableError:
    """Return the error with the name of this host in its message."""
    host = f"on host {socket.gethostname()}"
    if error.message.endswith(host):
        return error
    return SourceUnreadableError(error.path, f"{error.message} {host}", error.position)
