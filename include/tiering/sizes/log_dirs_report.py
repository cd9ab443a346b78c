"""Log dirs in the shape of `kafka-log-dirs.sh --describe`, with the remote tier added.

    {"version": 1, "brokers": [{"broker": 1, "logDirs": [{"logDir": "/data", "error": null, "partitions":
        [{"partition": "orders-0", "size": 4096, "offsetLag": 0, "isFuture": false}]}]}]}

Each partition also has `topicId`, `remoteSize` and `remoteSegments`; `remote` lists every partition with a remote log,
those too whose replicas are gone.
"""

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter

from include.tiering.model.sizes import PartitionSize
from include.tiering.presentation import Document, Presentation, Table, TopicNames, count
from include.tiering.sizes.describe_log_dirs import LogDirDescription, ReplicaSize
from include.tiering.units import format_bytes

_VERSION = 1


def present_log_dirs(described: Sequence[LogDirDescription], remote: Sequence[PartitionSize]) -> Presentation:
    """Not ok if a log dir cannot be read."""
    failed = sum(one.log_dir.error is not None for one in described)
    local_bytes = sum(replica.size_bytes for one in described for replica in one.replicas)
    remote_bytes = sum(size.size_bytes for size in remote)
    summary = (
        f"{count(len(described), 'log dir')}, {format_bytes(local_bytes)} local, {format_bytes(remote_bytes)} remote"
        + (f"; {failed} cannot be read" if failed else "")
    )
    return Presentation(
        lambda: _document(described, remote), lambda: (_table(described, remote),), summary, ok=not failed
    )


def _document(described: Sequence[LogDirDescription], remote: Sequence[PartitionSize]) -> Document:
    by_broker = sorted(described, key=attrgetter("log_dir.broker_id"))
    return {
        "version": _VERSION,
        "brokers": [
            {"broker": broker_id, "logDirs": [_log_dir(one) for one in log_dirs]}
            for broker_id, log_dirs in groupby(by_broker, key=attrgetter("log_dir.broker_id"))
        ],
        "remote": [
            {
                "partition": str(size.topic_id_partition),
                "topicId": str(size.topic_id_partition.topic_id),
                "size": size.size_bytes,
                "segments": size.segments,
            }
            for size in remote
        ],
    }


def _log_dir(described: LogDirDescription) -> Document:
    return {
        "logDir": described.log_dir.path,
        "error": described.log_dir.error,
        "partitions": [_partition(replica) for replica in described.replicas],
    }


def _partition(replica: ReplicaSize) -> Document:
    return {
        "partition": str(replica.topic_id_partition),
        "size": replica.size_bytes,
        "offsetLag": replica.offset_lag,
        "isFuture": replica.is_future,
        "topicId": str(replica.topic_id_partition.topic_id),
        "remoteSize": replica.remote.size_bytes if replica.remote else 0,
        "remoteSegments": replica.remote.segments if replica.remote else 0,
    }


def _table(described: Sequence[LogDirDescription], remote: Sequence[PartitionSize]) -> Table:
    names = TopicNames(size.topic_id_partition for size in remote)
    for replica in (replica for one in described for replica in one.replicas):
        names.add(replica.topic_id_partition.topic, replica.topic_id_partition.topic_id)
    rows: list[tuple[str, ...]] = []
    listed = set()
    for one in described:
        where = f"{one.log_dir.broker_id}:{one.log_dir.path}"
        if one.log_dir.error is not None:
            rows.append((where, one.log_dir.error, "", "", ""))
        for replica in one.replicas:
            listed.add(replica.topic_id_partition)
            tier = replica.remote
            rows.append(
                (
                    where,
                    names.partition(replica.topic_id_partition),
                    format_bytes(replica.size_bytes),
                    str(replica.offset_lag),
                    format_bytes(tier.size_bytes) if tier else "",
                )
            )
    rows += [
        ("remote alone", names.partition(size.topic_id_partition), "", "", format_bytes(size.size_bytes))
        for size in remote
        if size.topic_id_partition not in listed
    ]
    return Table("log dirs", ("broker:dir", "partition", "bytes>", "offset lag>", "remote>"), tuple(rows))
