"""Run the checks of a step: gather evidence, evaluate it, and store the results.

Evidence comes from brokers, log directories or leaders, the platform's database, the metadata topic and settings.
`check_preconditions` is the whole first step: it decides whether this topic may be handed over, and changes nothing but
the stored results. After its checks, the controller validates the configs that the topic would have at the end.

    step        done when it is reached                  a crash right after it leaves       cleaned up by
    gathered    all sources were read                    nothing                             -
    recorded    the results of the checks are stored     the results                         the next try replaces them
    validated   the controller would accept the configs  the results                         the next try replaces them
                that the topic has at the end
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from include.tiering.copying.next_segments import uncopied
from include.tiering.errors import BrokersError
from include.tiering.handover.brokers_disks import (
    bytes_per_second,
    disk_space,
    follower_bytes,
    local_segments,
    rate_of_cuts,
)
from include.tiering.handover.checks import (
    UNLIMITED,
    BrokerCapabilities,
    CheckOutcome,
    CheckResult,
    FrozenPartition,
    HandoverEvidence,
    HandoverPartition,
    LeaderOffsets,
    LeaderReplica,
    SeededSegment,
    results_of,
    worst,
)
from include.tiering.handover.contract import Handover, LocalRetention, RetentionOverride, SeededPartition
from include.tiering.handover.pitfalls import CHECKS
from include.tiering.handover.ports import (
    DONE,
    REMOTE_STORAGE,
    HandoverPorts,
    HandoverRun,
    StepEnd,
    StepResult,
)
from include.tiering.handover.retention_overrides import LOCAL_BYTES, LOCAL_MS
from include.tiering.handover.rules import HandoverStep, RetentionOrder, kept_bytes, local_bytes
from include.tiering.kafka.cluster.contract import (
    METADATA_VERSION,
    BrokerConfig,
    BrokerNode,
    OffsetsAnswer,
    PartitionMetadata,
    PartitionOffsets,
    TopicMetadata,
)
from include.tiering.kafka.log_dirs.contract import Replica
from include.tiering.kafka.metadata_topic.contract import METADATA_TOPIC
from include.tiering.model.histories import newest_history, open_divergence
from include.tiering.model.ownership import LeaseRole, SegmentOrigin
from include.tiering.model.segments import TopicIdPartition, Uuid, Verdict
from include.tiering.segments.contract import RemoteLogMetadata, SegmentRow


def check_preconditions(run: HandoverRun) -> StepResult:
    """Run the checks of the first step; if they pass, have the controller validate the final configs.

    Raises:
        BrokersRefusedError: brokers do not accept remote storage with these values of local and total retention.
            Brokers compare these values only if remote storage is on. So without this validation the refusal would
            come as late as in the last step.
    """
    result = evaluate_checks(run, HandoverStep.PRECONDITIONS, evidence_of(run))
    if result.end is StepEnd.DONE:
        run.ports.brokers.alter_topic_configs(run.handover.topic, _configs_at_the_end(run), dry_run=True)
    return result


def _configs_at_the_end(run: HandoverRun) -> dict[str, str | None]:
    """Return the configs that the handover changes, with their values at its end.

    These are the old values, the requested values in place of old ones, and remote.storage.enable=true. A value of
    None means that the topic does not set the config.
    """
    handover = run.handover
    overrides = run.ports.handovers.overrides(handover.handover_id)
    at_the_end = {override.key: override.old_value for override in overrides if not override.restored}
    wanted = handover.wanted
    for key, value in ((LOCAL_MS, wanted.local_retention_ms), (LOCAL_BYTES, wanted.local_retention_bytes)):
        if value is not None:
            at_the_end[key] = str(value)
    return at_the_end | {REMOTE_STORAGE: "true"}


def evidence_of(run: HandoverRun) -> HandoverEvidence:
    """Gather the evidence about the topic of this handover, as it is now."""
    handover = run.handover
    return gather(run.ports, handover.topic, handover.topic_id, handover)


def evaluate_checks(run: HandoverRun, step: HandoverStep, evidence: HandoverEvidence) -> StepResult:
    """Evaluate the checks of a step, store their results, and return what follows from them."""
    results = results_of(CHECKS, step, evidence)
    run.ports.handovers.record_checks(run.drive, step, results)
    return concluded(results)


def concluded(results: Sequence[CheckResult]) -> StepResult:
    """Return STOP if a check refused, WAIT if no check refused and one waits, else DONE."""
    outcome = worst(results)
    if outcome is CheckOutcome.REFUSED:
        return StepResult(StepEnd.STOP, _sentence(results, outcome))
    if outcome is CheckOutcome.WAITING:
        return StepResult(StepEnd.WAIT, _sentence(results, outcome))
    return DONE


def _sentence(results: Sequence[CheckResult], outcome: CheckOutcome) -> str:
    matching = [result for result in results if result.outcome is outcome]
    first = matching[0]
    where = "" if first.partition is None else f" (partition {first.partition})"
    more = f", and {len(matching) - 1} more" if len(matching) > 1 else ""
    return f"{first.name}{where}: {first.numbers}{more}"


_EPOCHS_ARE_ASKED: Final = frozenset({HandoverStep.PRECONDITIONS, HandoverStep.QUALITY_CHECK, HandoverStep.RECHECK})
"""The steps whose checks need the leader epochs of the leader itself; each epoch is a request of its own."""
_LIST_OFFSETS: Final = 2
_LATEST_TIERED_VERSION: Final = 9
"""The first version of ListOffsets that returns the latest tiered offset (KIP-1005, Kafka 3.9)."""
_COUNTS_ONCE_LEVEL: Final = 31
"""The first metadata.version of Kafka 4.4, in which brokers count data that is local and remote once (KAFKA-20732).
Kafka 4.3.2 does so too, but has the same metadata.version as 4.3.1, which does not."""
_BROKER_DEFAULTS: Final = {
    "retention.bytes": (("log.retention.bytes", 1),),
    "retention.ms": (
        ("log.retention.ms", 1),
        ("log.retention.minutes", 60_000),
        ("log.retention.hours", 3_600_000),
    ),
    "local.retention.ms": (("log.local.retention.ms", 1),),
    "local.retention.bytes": (("log.local.retention.bytes", 1),),
}


def gather(ports: HandoverPorts, topic: str, topic_id: Uuid, handover: Handover | None = None) -> HandoverEvidence:
    """Gather the evidence about the topic; with a handover, also its stored overrides and offsets.

    Raises:
        BrokersError: the brokers do not answer a request. Offsets that one leader does not report raise no error.
        SourceError: the leader changed while it was asked for its leader epochs.
        MetadataTopicError: the metadata topic cannot be read.
    """
    topics = ports.brokers.topics([topic, METADATA_TOPIC])
    now = topics.get(topic)
    configs = (
        {key: topic_config.value or "" for key, topic_config in ports.brokers.topic_configs(topic).items()}
        if now
        else {}
    )
    nodes = ports.brokers.describe().brokers
    by_broker = {node.broker_id: ports.brokers.broker_configs(node.broker_id) for node in nodes}
    partitions = sorted(now.partitions.values(), key=lambda partition: partition.partition) if now is not None else []
    ids = [TopicIdPartition(topic_id, partition.partition, topic) for partition in partitions]
    overrides = () if handover is None else ports.handovers.overrides(handover.handover_id)
    old_configs = _old_configs(configs, overrides, next(iter(by_broker.values()), {}))
    seed = () if handover is None else ports.handovers.seed(handover.handover_id)
    offsets = ports.brokers.partition_offsets(ids)
    # Before the leaders' logs, so that a follower that keeps up does not seem to have more.
    is_last = handover is not None and handover.step is HandoverStep.LOCAL_RETENTION
    followers = follower_bytes(ports.brokers, ids, partitions) if is_last else {}
    replicas, problems = _replicas(ports, topic, topic_id)
    now_ms = ports.handovers.now_ms()
    local_limits = _local_limits(handover, old_configs)
    asks_leaders = handover is None or handover.step in _EPOCHS_ARE_ASKED
    return HandoverEvidence(
        topic=topic,
        topic_id=topic_id,
        topic_id_now=None if now is None else now.topic_id,
        owner=ports.registry.owner(topic_id),
        brokers=tuple(_broker(node, by_broker[node.broker_id]) for node in nodes),
        configs=configs,
        old_configs=old_configs,
        partitions=tuple(
            _partition(
                ports, partition, known, offsets, replicas, problems, now_ms, local_limits, asks_leaders=asks_leaders
            )
            for partition, known in zip(ids, partitions, strict=True)
        )
        + tuple(_not_listed(seed, ids)),
        metadata_topic=ports.metadata_scan.evidence(
            ports.metadata_topic, ports.publications, _configs(topics.get(METADATA_TOPIC)), ids
        ),
        store=ports.store,
        disks=tuple(disk_space(ports.actions, node.broker_id) for node in nodes),
        leases=tuple(_leases(ports, ids, handover)),
        frozen={seeded.topic_id_partition.partition: _frozen(seeded) for seeded in seed},
        now_ms=now_ms,
        hold_seconds=ports.limits.hold_seconds,
        local_target_ms=local_limits[0],
        local_target_bytes=local_limits[1],
        count_once=ports.limits.count_once,
        retention_order=RetentionOrder.LOCAL_FIRST if handover is None else handover.retention_order,
        followers=followers,
        silent_brokers=frozenset(broker for known in partitions for broker in known.replicas) - by_broker.keys(),
    )


def seed_rows(metadata: RemoteLogMetadata, partition: TopicIdPartition, log_start_offset: int) -> list[SegmentRow]:
    """Return the platform's FINISHED segments that end at or above the broker's log start, ordered by end offset.

    Segments below the log start are not handed over. They stay in the store as segments of the platform, whose
    expiration leaves the topic out from then on.
    """
    rows = metadata.list_segments(partition)
    finished = [row for row in rows if row.metadata.is_finished and row.origin is SegmentOrigin.PLATFORM]
    reaching = [row for row in finished if row.metadata.end_offset >= log_start_offset]
    return sorted(reaching, key=lambda row: row.metadata.end_offset)


def is_enabled(ports: HandoverPorts, topic: str) -> bool:
    """Return whether remote storage is on for the topic according to the brokers. Raises BrokersError."""
    config = ports.brokers.topic_configs(topic).get("remote.storage.enable")
    return config is not None and (config.value or "").lower() == "true"


def _configs(topic: TopicMetadata | None) -> Mapping[str, str] | None:
    return None if topic is None else topic.configs


def _broker(node: BrokerNode, configs: Mapping[str, BrokerConfig]) -> BrokerCapabilities:
    def value(key: str) -> str | None:
        return configs[key].value or None if key in configs else None

    supported = node.api_versions.get(_LIST_OFFSETS, (0, _LATEST_TIERED_VERSION))
    return BrokerCapabilities(
        broker_id=node.broker_id,
        remote_storage_system=(value("remote.log.storage.system.enable") or "").lower() == "true",
        storage_manager_class=value("remote.log.storage.manager.class.name"),
        storage_directory=value("rsm.config.dir"),
        lists_remote_offsets=supported[1] >= _LATEST_TIERED_VERSION,
        counts_once=node.supported_features.get(METADATA_VERSION, 0) >= _COUNTS_ONCE_LEVEL,
    )


def _old_configs(
    configs: Mapping[str, str], overrides: Sequence[RetentionOverride], broker: Mapping[str, BrokerConfig]
) -> dict[str, str]:
    """Return the configs that are in force once all overrides are restored.

    An overridden config gets the topic's old value or, without one, the default of the broker `broker`, one of several.
    """
    old = dict(configs)
    for override in overrides:
        if override.restored:
            continue
        default = _default_of(override.key, broker)
        value = override.old_value if override.old_value is not None else default
        if value is not None:
            old[override.key] = value
    return old


def _local_limits(handover: Handover | None, old_configs: Mapping[str, str]) -> tuple[int, int]:
    """Return local.retention.ms and .bytes at the end of the handover, each -1 if that is no limit.

    These are the requested values, else the old ones. In the last step those in force count: the step has set them, and
    a person may have changed them since.
    """
    is_set = handover is not None and handover.step is HandoverStep.LOCAL_RETENTION
    wanted = LocalRetention() if handover is None or is_set else handover.wanted
    asked = (wanted.local_retention_ms, wanted.local_retention_bytes)
    had = (old_configs.get(key, "") for key in (LOCAL_MS, LOCAL_BYTES))
    limit_ms, limit_bytes = (
        value if value is not None else int(old) if old.isdigit() else UNLIMITED
        for value, old in zip(asked, had, strict=True)
    )
    return limit_ms, limit_bytes


def _default_of(key: str, broker: Mapping[str, BrokerConfig]) -> str | None:
    for name, factor in _BROKER_DEFAULTS.get(key, ()):
        config = broker.get(name)
        if config is not None and config.value and config.value.lstrip("-").isdigit():
            value = int(config.value)
            return str(value if value < 0 else value * factor)
    return None


def _replicas(ports: HandoverPorts, topic: str, topic_id: Uuid) -> tuple[dict[int, Replica], tuple[str, ...]]:
    report = ports.source.scan(topics=[topic])
    chosen = {
        replica.topic_id_partition.partition: replica
        for replica in report.replicas
        if replica.chosen and replica.topic_id_partition.topic_id == topic_id
    }
    return chosen, tuple(f"{error.path}: {error.message}" for error in (*report.errors, *report.notes))


def _partition(
    ports: HandoverPorts,
    partition: TopicIdPartition,
    known: PartitionMetadata,
    answer: OffsetsAnswer,
    replicas: Mapping[int, Replica],
    problems: Sequence[str],
    now_ms: int,
    local_limits: tuple[int, int],
    *,
    asks_leaders: bool,
) -> HandoverPartition:
    replica, metadata = replicas.get(partition.partition), ports.metadata
    try:
        reported = answer.of(partition)
    except BrokersError as error:
        return HandoverPartition(partition.partition, None, None, (), str(error))
    if replica is not None and asks_leaders:
        replica = replace(replica, leader_epochs=ports.source.leader_epochs(replica))
    rows = seed_rows(metadata, partition, reported.earliest)
    end = max((row.metadata.end_offset for row in rows), default=None)
    return HandoverPartition(
        partition.partition,
        LeaderOffsets(
            leader=reported.leader,
            leader_epoch=reported.leader_epoch,
            in_sync_replicas=len(known.isr),
            earliest=reported.earliest,
            latest_tiered=reported.latest_tiered,
            last_stable_offset=reported.last_stable_offset,
            high_watermark=reported.high_watermark,
        ),
        None if replica is None else _leader(replica, end, reported, now_ms, local_limits),
        tuple(_seeded(metadata, row) for row in rows),
        "" if replica is not None else "; ".join(problems),
        _histories(metadata, partition, rows),
    )


def _not_listed(seed: Sequence[SeededPartition], listed: Sequence[TopicIdPartition]) -> list[HandoverPartition]:
    """Return the decided partitions that the brokers' answer lacks: nothing is known of them, and no check may pass.

    A topic never loses a partition, but a broker may answer from metadata that is older than the partition.
    """
    lacking = sorted({one.topic_id_partition.partition for one in seed} - {one.partition for one in listed})
    problem = "the broker that was asked for the topic's partitions does not list it"
    return [HandoverPartition(number, None, None, (), problem) for number in lacking]


def _histories(metadata: RemoteLogMetadata, partition: TopicIdPartition, rows: Sequence[SegmentRow]) -> str:
    """Return why the archive does not continue the broker's log, as a sentence; empty if it does.

    Either a log divergence is undecided, or a copied segment that ends at or above the broker's log start is of an
    older history: a decision has replaced that history by another one (see `model/histories.py`).
    """
    divergences = metadata.divergences(partition)
    undecided = open_divergence(divergences)
    if undecided is not None:
        return str(undecided)
    older = [row.metadata for row in rows if row.history != newest_history(divergences)]
    if not older:
        return ""
    offsets = f"{min(segment.start_offset for segment in older)}..{max(segment.end_offset for segment in older)}"
    return f"offsets {offsets} were archived from a history that the source has left, and reach into the broker's log"


def _seeded(metadata: RemoteLogMetadata, row: SegmentRow) -> SeededSegment:
    if row.verdict is not Verdict.FAILED:
        return SeededSegment(row.metadata, row.verdict, passed_deep=row.deep_passed_at_ms is not None)
    results = metadata.quality_results(row.metadata.remote_log_segment_id)
    broken = tuple(f"{result.rule}: {result.message}" for result in results if not result.passed)
    return SeededSegment(row.metadata, row.verdict, broken or (row.verdict_detail,))


def _leader(
    replica: Replica, seed_end: int | None, offsets: PartitionOffsets, now_ms: int, local_limits: tuple[int, int]
) -> LeaderReplica:
    earliest_local = max(offsets.earliest, offsets.earliest_local or 0)
    local = local_segments(replica, earliest_local)
    is_fetched = replica.found_to is not None
    active = next((segment for segment in local if segment.active), None)
    waiting = uncopied(replica.segments, seed_end, offsets.earliest)
    return LeaderReplica(
        broker_id=replica.replica_id.broker_id,
        leader_epochs=replica.leader_epochs,
        active_base=replica.log_end_offset if active is None else active.base_offset,
        recovery_point=replica.recovery_point,
        waiting=tuple(
            (segment.base_offset, None if segment.reason is None else str(segment.reason)) for segment in waiting
        ),
        bytes_per_second=rate_of_cuts(local, now_ms) if is_fetched else bytes_per_second(replica.segments, now_ms),
        local_bytes=replica.log_bytes if is_fetched else local_bytes(local),
        active_bytes=0 if active is None else active.size_bytes,
        kept_bytes=kept_bytes(local, *local_limits, now_ms),
        earliest_local=earliest_local,
        leader_epoch=replica.leader_epoch if is_fetched else None,
        found_to=replica.found_to,
        segment_bytes=replica.segment_bytes,
    )


def _leases(ports: HandoverPorts, partitions: Sequence[TopicIdPartition], handover: Handover | None) -> list[str]:
    mine = None if handover is None else handover.run_id
    found = []
    for partition in partitions:
        for role in (LeaseRole.COPY, LeaseRole.EXPIRE):
            holder = ports.work.holder(partition, role)
            if holder is not None and holder.run_id != mine:
                found.append(f"{partition}: batch {holder.batch_id} of run {holder.run_id} has the lease to {role}")
    return found


def _frozen(seeded: SeededPartition) -> FrozenPartition:
    partition = seeded.topic_id_partition.partition
    return FrozenPartition(
        partition, seeded.start_offset, seeded.end_offset, seeded.log_start_offset, seeded.leader, seeded.leader_epoch
    )
