"""Checks of a topic to hand over, its brokers and the metadata topic. `seed_checks` has those of its segments."""

from collections.abc import Iterator
from typing import Final

from include.tiering.handover.checks import UNLIMITED, CheckOutcome, HandoverEvidence, NamedCheck, Remark
from include.tiering.handover.rules import HandoverStep
from include.tiering.model.ownership import TopicOwner

STORAGE_MANAGERS: Final = {
    "aiven": "io.aiven.kafka.tieredstorage.RemoteStorageManager",
    "local_tiered_storage": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
}
_BEFORE: Final = frozenset({HandoverStep.PRECONDITIONS})
_LAST: Final = frozenset({HandoverStep.RECHECK})
_BOTH: Final = _BEFORE | _LAST
_ALWAYS: Final = _BOTH | {HandoverStep.QUALITY_CHECK}
_RESUME: Final = "then ./tiering handover TOPIC --resume"
_UNDO: Final = "./tiering handover TOPIC --undo, then begin again (or --resume, if the undo ends as parked)"


def _same_topic(evidence: HandoverEvidence) -> Iterator[Remark]:
    if evidence.topic_id_now != evidence.topic_id:
        now = (
            "and the brokers have no topic of this name"
            if evidence.topic_id_now is None
            else f"but the topic of this name now has id {evidence.topic_id_now}"
        )
        yield Remark(
            f"{evidence.topic} is handed over under id {evidence.topic_id}, {now}",
            "undo the handover: the remote segments belong to the old topic; the setting tiering.on.topic.delete says"
            " what happens to them",
        )


def _ours(evidence: HandoverEvidence) -> Iterator[Remark]:
    if evidence.owner not in (TopicOwner.NONE, TopicOwner.PLATFORM, TopicOwner.HANDING_OVER):
        yield Remark(f"the topic's owner is {evidence.owner}", "there is nothing to hand over: brokers tier it already")


def _fenced(evidence: HandoverEvidence) -> Iterator[Remark]:
    if evidence.owner is not TopicOwner.HANDING_OVER:
        yield Remark(
            f"the topic's owner is {evidence.owner}, not {TopicOwner.HANDING_OVER}",
            _UNDO,
        )


def _has_remote_storage(evidence: HandoverEvidence) -> Iterator[Remark]:
    for broker in evidence.brokers:
        if not broker.remote_storage_system:
            yield Remark(
                f"remote.log.storage.system.enable is not true on broker {broker.broker_id}",
                "set it to true in server.properties, with the storage manager's settings, and restart the broker",
            )
    for broker_id in sorted(evidence.silent_brokers):
        yield Remark(
            f"broker {broker_id} has replicas of the topic and does not describe itself",
            "start it: without remote storage it could not lead the topic after the switch. If it is gone for good,"
            " move its replicas to other brokers",
            outcome=CheckOutcome.WAITING,
        )
    if not evidence.brokers:
        yield Remark("no broker describes itself", "check cluster.bootstrap_servers", outcome=CheckOutcome.WAITING)


def _new_enough(evidence: HandoverEvidence) -> Iterator[Remark]:
    for broker in evidence.brokers:
        if not broker.lists_remote_offsets:
            yield Remark(
                f"broker {broker.broker_id} does not report its latest tiered offset: it is older than 3.9",
                "upgrade the broker: only this offset shows that the brokers have read which segments are remote",
            )


def _deleted_not_compacted(evidence: HandoverEvidence) -> Iterator[Remark]:
    policy = evidence.configs.get("cleanup.policy", "delete")
    if policy != "delete":
        yield Remark(f"cleanup.policy is {policy}", "Kafka refuses remote storage for compacted topics")


def _not_tiered_yet(evidence: HandoverEvidence) -> Iterator[Remark]:
    if evidence.is_true("remote.storage.enable"):
        yield Remark("remote.storage.enable is true", "the brokers tier the topic already")
    for key in ("remote.log.copy.disable", "remote.log.delete.on.disable"):
        if evidence.is_true(key):
            yield Remark(
                f"{key} is true",
                "kafka-configs --bootstrap-server HOST:PORT --alter --entity-type topics --entity-name TOPIC"
                f" --delete-config {key}, {_RESUME}",
            )
    for partition in evidence.partitions:
        if partition.offsets is not None and partition.offsets.latest_tiered is not None:
            yield Remark(
                f"the leader has remote offsets up to {partition.offsets.latest_tiered}",
                "find out who tiered the partition before: two sets of remote segments must not mix",
                partition.partition,
            )


def _metadata_topic(evidence: HandoverEvidence) -> Iterator[Remark]:
    if evidence.metadata_topic is None:
        yield Remark("there is no __remote_log_metadata", "brokers create it when remote storage is on: see their logs")


def _metadata_kept(evidence: HandoverEvidence) -> Iterator[Remark]:
    configs = evidence.metadata_topic.configs if evidence.metadata_topic is not None else {}
    for key, wanted in (("retention.ms", "-1"), ("retention.bytes", "-1"), ("cleanup.policy", "delete")):
        if key in configs and configs[key] != wanted:
            yield Remark(
                f"__remote_log_metadata has {key}={configs[key]} instead of {wanted}",
                f"set {key} of __remote_log_metadata to {wanted}: if a segment's record expires before the next record"
                " about the segment is written, its objects stay in the store without metadata",
            )


def _metadata_readable(evidence: HandoverEvidence) -> Iterator[Remark]:
    for unreadable in evidence.metadata_topic.unreadable if evidence.metadata_topic is not None else ():
        yield Remark(
            unreadable,
            "every broker that reads this partition stops at this record, after each restart too: only"
            " kafka-delete-records on the partition, or the partition's retention, removes the record",
        )


def _layout(evidence: HandoverEvidence) -> Iterator[Remark]:
    expected = STORAGE_MANAGERS.get(evidence.store.layout)
    for broker in evidence.brokers:
        found = broker.storage_manager_class
        if found is None:
            yield Remark(
                f"broker {broker.broker_id} does not show its storage manager; the platform's layout is"
                f" {evidence.store.layout}",
                "compare remote.log.storage.manager.class.name and its settings with remote_storage.* yourself",
                outcome=CheckOutcome.NOTE,
            )
        elif found != expected:
            yield Remark(
                f"the storage manager of broker {broker.broker_id} is {found}; the platform's layout"
                f" {evidence.store.layout} is that of {expected}",
                "brokers could not read seeded segments: use the store and layout that the brokers have",
            )


def _directory(evidence: HandoverEvidence) -> Iterator[Remark]:
    shown = {broker.storage_directory for broker in evidence.brokers if broker.storage_directory is not None}
    wanted = evidence.store.directory
    for directory in sorted(shown):
        if wanted is not None and directory.rstrip("/") != wanted.rstrip("/"):
            yield Remark(
                f"brokers keep remote segments in {directory}, the platform's store is {wanted}",
                "set remote_storage.url to the directory of the brokers; all brokers need the same directory",
            )
    if not shown:
        yield Remark(
            "no broker shows where its storage manager keeps segments (the setting is secret to the admin API)",
            "compare the setting of every broker with remote_storage.url",
            outcome=CheckOutcome.NOTE,
        )


def _exact(evidence: HandoverEvidence) -> Iterator[Remark]:
    for partition in evidence.partitions:
        if partition.offsets is None:
            yield Remark(
                partition.problem or "its leader reports no offsets",
                "a handover needs the brokers' own log start, high watermark and last stable offset",
                partition.partition,
                CheckOutcome.WAITING,
            )


def _leader_readable(evidence: HandoverEvidence) -> Iterator[Remark]:
    for partition in evidence.partitions:
        if partition.offsets is None:
            continue
        if partition.replica is None:
            yield Remark(
                partition.problem
                or f"the log directory of its leader, broker {partition.offsets.leader}, is not read here",
                "add this directory to log_dirs, or move the leadership to a broker whose log directory is in log_dirs",
                partition.partition,
            )
        elif partition.replica.broker_id != partition.offsets.leader:
            yield Remark(
                f"the replica of broker {partition.replica.broker_id} was read, the leader is broker"
                f" {partition.offsets.leader}",
                "the leadership is moving: repeat the check in a moment",
                partition.partition,
                CheckOutcome.WAITING,
            )
        elif partition.replica.is_fetched and partition.replica.leader_epoch != partition.offsets.leader_epoch:
            yield Remark(
                f"broker {partition.offsets.leader} was asked for its leader epochs in epoch"
                f" {partition.replica.leader_epoch}, and leads in epoch {partition.offsets.leader_epoch}",
                "it was elected again meanwhile: repeat the check in a moment",
                partition.partition,
                CheckOutcome.WAITING,
            )
        elif partition.replica.local_bytes is None:
            yield Remark(
                f"broker {partition.offsets.leader} does not tell the size of its log",
                "without it nobody knows what is local and remote at the same time, and when brokers have deleted:"
                " allow Describe on the cluster to the user of the settings cluster.*",
                partition.partition,
            )


def _disk_space(evidence: HandoverEvidence) -> Iterator[Remark]:
    hours = evidence.hold_seconds / 3600
    for disk in evidence.disks:
        led = [
            partition.replica
            for partition in evidence.partitions
            if partition.replica is not None and partition.replica.broker_id == disk.broker_id
        ]
        rate = sum(replica.bytes_per_second or 0.0 for replica in led)
        needed_bytes = int(rate * evidence.hold_seconds)
        if unknown := sum(replica.bytes_per_second is None for replica in led):
            yield Remark(
                f"of {unknown} partitions that broker {disk.broker_id} leads, too little is read to know how fast they"
                " grow",
                "the step copy reads them, and the step recheck checks the space again",
                outcome=CheckOutcome.NOTE,
            )
        if disk.free_bytes is None and evidence.hold_seconds and any(replica.is_fetched for replica in led):
            why = f" ({disk.problem})" if disk.problem else ""
            mend = (
                "mend what the broker says"
                if disk.problem and not disk.is_forbidden
                else "allow Describe on the cluster to the user of the settings cluster.*"
            )
            yield Remark(
                f"broker {disk.broker_id} does not tell how much of its disks is free{why}; {hours:g} h of new records"
                f" need {needed_bytes} bytes",
                f"while the overrides are in force, nothing of the topic is deleted: {mend}, or set"
                " tiering.handover.free.bytes to what every broker has free",
            )
        elif disk.free_bytes is None:
            yield Remark(
                f"the free disk space of broker {disk.broker_id} cannot be read from this host; {hours:g} h of new"
                f" records need {needed_bytes} bytes",
                "check the space on that broker: while the overrides are in force, nothing of the topic is deleted",
                outcome=CheckOutcome.NOTE,
            )
        elif disk.free_bytes < needed_bytes:
            yield Remark(
                f"broker {disk.broker_id} has {disk.free_bytes} bytes free, {hours:g} h at {rate:.0f} bytes per second"
                f" need {needed_bytes} bytes",
                "while overrides are in force, nothing of the topic is deleted: free disk space, or lower"
                " tiering.handover.hold.hours",
            )


def _retention_bytes_override(evidence: HandoverEvidence) -> Iterator[Remark]:
    if (limit := evidence.limit("retention.bytes")) != UNLIMITED:
        yield Remark(
            f"retention.bytes is {limit}",
            "a person or tool set it after the step guards. At the switch, brokers before 4.3.2 count bytes"
            f" that are both local and remote twice, and delete records that are within retention.bytes. {_UNDO}",
        )


def _retention_ms_override(evidence: HandoverEvidence) -> Iterator[Remark]:
    if (limit := evidence.limit("retention.ms")) != UNLIMITED:
        yield Remark(
            f"retention.ms is {limit}",
            f"a person or tool set it after the step guards. {_UNDO}",
        )


def _local_retention_override(evidence: HandoverEvidence) -> Iterator[Remark]:
    for key in ("local.retention.ms", "local.retention.bytes"):
        if (limit := evidence.limit(key)) >= 0:
            yield Remark(
                f"{key} is {limit}",
                "local segments would be deleted at the switch, before it was checked that the brokers serve the"
                f" remote ones. {_UNDO}",
            )


def _no_leases(evidence: HandoverEvidence) -> Iterator[Remark]:
    for sentence in evidence.leases:
        yield Remark(sentence, "wait until the batch or its lease ends", outcome=CheckOutcome.WAITING)


CLUSTER_CHECKS: Final = (
    NamedCheck(
        "topic-is-the-same",
        "the topic has the id that is handed over",
        _same_topic,
        _ALWAYS | {HandoverStep.WATCH, HandoverStep.RETENTION},
    ),
    NamedCheck("topic-is-ours", "the platform owns it, it is being handed over, or it has no owner", _ours, _BEFORE),
    NamedCheck(
        "topic-is-fenced-off", "the topic's owner is handing-over: no batch copies or expires it", _fenced, _LAST
    ),
    NamedCheck("no-copier-is-left", "no batch has a lease to copy or expire a partition", _no_leases, _LAST),
    NamedCheck(
        "brokers-have-remote-storage",
        "remote storage is enabled on every broker, and none with a replica is away",
        _has_remote_storage,
        _BOTH,
    ),
    NamedCheck("brokers-are-new-enough", "every broker reports its latest tiered offset", _new_enough, _BOTH),
    NamedCheck("topic-is-not-compacted", "cleanup.policy is delete", _deleted_not_compacted, _BOTH),
    NamedCheck(
        "brokers-do-not-tier-it", "no topic config remote.* is true, and nothing is tiered", _not_tiered_yet, _BOTH
    ),
    NamedCheck("metadata-topic-exists", "__remote_log_metadata exists", _metadata_topic, _BOTH),
    NamedCheck("metadata-topic-keeps-all", "__remote_log_metadata is not limited or compacted", _metadata_kept, _BOTH),
    NamedCheck(
        "metadata-topic-is-readable",
        "every record of the topic's metadata partitions decodes",
        _metadata_readable,
        _BOTH,
    ),
    NamedCheck("layout-is-the-brokers", "the brokers' storage manager reads the platform's layout", _layout, _BOTH),
    NamedCheck("store-is-the-brokers", "the brokers read where the platform writes", _directory, _BOTH),
    NamedCheck("bounds-are-exact", "offsets come from the leaders themselves", _exact, _ALWAYS),
    NamedCheck("leader-is-read", "segments are read from the leader's replica", _leader_readable, _BOTH),
    NamedCheck("disks-have-room", "disks have space for new records while nothing is deleted", _disk_space, _BOTH),
    NamedCheck(
        "retention-bytes-is-guarded", "retention.bytes is unlimited at the switch", _retention_bytes_override, _LAST
    ),
    NamedCheck("retention-ms-is-guarded", "retention.ms is unlimited at the switch", _retention_ms_override, _LAST),
    NamedCheck(
        "local-retention-is-guarded",
        "neither local.retention.ms nor local.retention.bytes is a limit",
        _local_retention_override,
        _LAST,
    ),
)
