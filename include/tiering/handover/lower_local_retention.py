"""The last step: lower local retention in small steps, and compare the records that are only remote after each step.

    step        done when it is reached                  a crash right after it leaves       cleaned up by
    lowered     local.retention.bytes is at a level      a level, down to which brokers      the next try, from the
                                                         delete                              bytes that it finds
    compared    the records that consumers receive from  the same                            the next try, after the
                remote-only segments were compared                                           last compared offset
    final       both configs have the requested or       retention.bytes, if it is still     the next try
                their old values                         unlimited
    checked     the check `retention-bytes-is-safe` has  the same                            the next try, which changes
                a result                                                                     local retention no more
    safe        no broker that starts again can delete   nothing                             -
                records within retention.bytes, which
                has its old value again

A local retention that is set by hand after `checked` therefore stays: where brokers keep too many local segments, a
lower one is the way out.

Records served by brokers are compared with the records in the store, after the checksum of the stored bytes was
compared with the source's checksum, if that is known. So no local copy is needed for the comparison, and a repeated try
loses nothing. A difference stops the handover: local retention is not lowered further.
"""

from collections.abc import Mapping, Sequence

from include.tiering.handover.brokers_disks import local_segments
from include.tiering.handover.checks import UNLIMITED
from include.tiering.handover.contract import SeededPartition
from include.tiering.handover.ports import DONE, HandoverRun, StepEnd, StepResult
from include.tiering.handover.retention_overrides import (
    LOCAL_BYTES,
    LOCAL_MS,
    LOCAL_OVERRIDES,
    TOTAL_BYTES,
    change_configs,
    hold_overrides,
    restore_overrides,
)
from include.tiering.handover.rules import HandoverStep, levels, local_bytes, next_local_start, target_bytes
from include.tiering.handover.run_checks import evaluate_checks, evidence_of, seed_rows
from include.tiering.kafka.cluster.contract import PartitionOffsets
from include.tiering.kafka.log_dirs.contract import Replica
from include.tiering.model.segments import TopicIdPartition
from include.tiering.units import format_bytes


def lower_local_retention(run: HandoverRun) -> StepResult:
    """Lower local retention to the requested or else the old values, and compare records after each level.

    If retention.bytes was not restored before, it is restored last, once that is safe. Until then the step waits; it
    stops if brokers delete no more local segments.

    Raises:
        BrokersError: the brokers do not answer, or refuse a change.
        RemoteStorageError: a stored segment cannot be read, or has another checksum than the source.
    """
    final = {} if _was_lowered(run) else final_configs(run)
    if any(key in final for key in LOCAL_OVERRIDES):
        for level in _levels(run, final):
            change_configs(run, run.handover.topic, {LOCAL_BYTES: str(level)})
            run.on_message(f"{LOCAL_BYTES}={level} ({format_bytes(level)})")
            if (difference := _settle_and_compare(run, level)) is not None:
                return difference
        change_configs(run, run.handover.topic, final)
        if (difference := _settle_and_compare(run, None)) is not None:
            return difference
        run.ports.handovers.overrides_restored(run.drive, list(LOCAL_OVERRIDES))
        run.on_message(
            ", ".join(f"{key}={'unset' if value is None else value}" for key, value in sorted(final.items()))
        )
    return _restore_bytes(run)


def _was_lowered(run: HandoverRun) -> bool:
    """Return whether local retention has had its final value: only then the check of this step is evaluated."""
    return bool(run.ports.handovers.checks(run.handover.handover_id, HandoverStep.LOCAL_RETENTION))


def _restore_bytes(run: HandoverRun) -> StepResult:
    """Restore retention.bytes, if it is still overridden, as soon as a restart of a broker does no harm with it.

    Returns:
        WAIT if that is not so within `settle_seconds`, by which time brokers should have deleted local segments; STOP
        if brokers delete no more of them, or after a difference between the records of a remote-only segment.
    """
    deadline = run.ports.clock.monotonic() + run.ports.limits.settle_seconds
    while _is_held(run, TOTAL_BYTES):
        hold_overrides(run, (TOTAL_BYTES,))
        result = evaluate_checks(run, HandoverStep.LOCAL_RETENTION, evidence_of(run))
        if result.end is StepEnd.DONE:
            if (difference := compare_remote_only(run)) is not None:
                return difference
            restore_overrides(run, (TOTAL_BYTES,))
        elif run.ports.clock.monotonic() >= deadline:
            return result
        else:
            run.pause()
    return DONE


def _is_held(run: HandoverRun, key: str) -> bool:
    overrides = run.ports.handovers.overrides(run.handover.handover_id)
    return any(override.key == key and not override.restored for override in overrides)


def final_configs(run: HandoverRun) -> dict[str, str | None]:
    """Return the final values of the configs: the requested values, else the old values of overrides. None: unset."""
    handover = run.handover
    final: dict[str, str | None] = {
        override.key: override.old_value
        for override in run.ports.handovers.overrides(handover.handover_id)
        if override.key in LOCAL_OVERRIDES and not override.restored
    }
    for key, wanted in (
        (LOCAL_MS, handover.wanted.local_retention_ms),
        (LOCAL_BYTES, handover.wanted.local_retention_bytes),
    ):
        if wanted is not None:
            final[key] = str(wanted)
    if final and LOCAL_BYTES not in final:
        # The levels change this config. It had no override, so it was -2: by default, or because the topic set it.
        final[LOCAL_BYTES] = None if _limit(run, LOCAL_BYTES, None) == UNLIMITED else LOCAL_OVERRIDES[LOCAL_BYTES]
    return final


def _levels(run: HandoverRun, final: Mapping[str, str | None]) -> Sequence[int]:
    """Return the values of local.retention.bytes to set one after another; none without a limit of local retention.

    They fall from below the largest number of local bytes of any partition to the largest number that a partition
    keeps. Values above retention.bytes are left out, because Kafka refuses them.
    """
    limit_ms, limit_bytes = (_limit(run, key, final.get(key)) for key in (LOCAL_MS, LOCAL_BYTES))
    if limit_ms < 0 and limit_bytes < 0:
        return ()
    now_ms = run.ports.handovers.now_ms()
    rolled = [local_segments(replica, offsets.earliest_local or 0) for replica, offsets in _leaders(run)]
    has = max((local_bytes(segments) for segments in rolled), default=0)
    wants = max((target_bytes(segments, limit_ms, limit_bytes, now_ms) for segments in rolled), default=0)
    total = _number(run.ports.brokers.topic_configs(run.handover.topic)["retention.bytes"].value)
    return [level for level in levels(has, wants, run.ports.limits.local_steps) if total == UNLIMITED or level <= total]


def _limit(run: HandoverRun, key: str, value: str | None) -> int:
    """Return the limit that `value` means; for None the lowest default of all brokers, -1 without a limit."""
    if value is not None:
        return _number(value)
    nodes = run.ports.brokers.describe().brokers
    defaults = [run.ports.brokers.broker_configs(node.broker_id).get(f"log.{key}") for node in nodes]
    limits = [_number(default.value) for default in defaults if default is not None]
    return min((limit for limit in limits if limit >= 0), default=UNLIMITED)


def _settle_and_compare(run: HandoverRun, level: int | None) -> StepResult | None:
    """Wait at most `settle_seconds` until brokers have deleted down to `level` (None: do not wait), then compare.

    Returns:
        STOP after a difference; None if all compared records are equal.
    """
    starts: dict[TopicIdPartition, int] = {}
    most_bytes: dict[TopicIdPartition, int] = {}
    for replica, offsets in _leaders(run) if level is not None else ():
        if replica.found_to is not None:
            most_bytes[replica.topic_id_partition] = (level or 0) + (replica.segment_bytes or 0)
            continue
        segments = local_segments(replica, offsets.earliest_local or 0)
        if (start := next_local_start(segments, level or 0, offsets.latest_tiered)) is not None:
            starts[replica.topic_id_partition] = start
    deadline = run.ports.clock.monotonic() + run.ports.limits.settle_seconds
    while (starts or most_bytes) and run.ports.clock.monotonic() < deadline:
        answer = run.ports.brokers.partition_offsets([*starts, *most_bytes]).offsets
        have_risen = all(
            (answer[each].earliest_local or 0) >= start for each, start in starts.items() if each in answer
        )
        if have_risen and _have_shrunk(run, answer, most_bytes):
            break
        run.pause()
    return compare_remote_only(run)


def _have_shrunk(
    run: HandoverRun, answer: Mapping[TopicIdPartition, PartitionOffsets], most_bytes: Mapping[TopicIdPartition, int]
) -> bool:
    """Return whether each log has fewer bytes than `most_bytes` gives for it, or nothing that a broker may delete.

    Over the network it is not known where the segments of a leader end. A leader deletes as long as the bytes above the
    limit are at least those of its oldest segment.
    """
    deletable = {
        partition: found.leader
        for partition, found in answer.items()
        if partition in most_bytes
        and found.latest_tiered is not None
        and found.latest_tiered >= max(found.earliest, found.earliest_local or 0)
    }
    sizes = run.ports.brokers.log_sizes(deletable) if deletable else {}
    return all(each in sizes and sizes[each] < most_bytes[each] for each in deletable)


def compare_remote_only(run: HandoverRun) -> StepResult | None:
    """Compare the records of each seeded segment that is remote only and was not compared yet.

    Returns:
        STOP after a difference; None if all compared records are equal.
    """
    answer = run.ports.brokers.partition_offsets([seeded.topic_id_partition for seeded in run.seed])
    for seeded in run.seed:
        offsets = answer.of(seeded.topic_id_partition)
        if (difference := _compare_partition(run, seeded, offsets)) is not None:
            return difference
    return None


def _compare_partition(run: HandoverRun, seeded: SeededPartition, offsets: PartitionOffsets) -> StepResult | None:
    partition, actions = seeded.topic_id_partition, run.ports.actions
    local_start = offsets.earliest_local or 0
    rows = seed_rows(run.ports.metadata, partition, offsets.earliest)
    for segment in (row.metadata for row in rows):
        start = max(segment.start_offset, seeded.compared_offset, offsets.earliest)
        if segment.end_offset >= local_start or segment.end_offset > seeded.end_offset or start > segment.end_offset:
            continue
        run.renew()
        stored = actions.stored_digest(partition, start, segment.end_offset)
        served = actions.served_digest(partition, start, segment.end_offset, stored.not_opened)
        if stored.digest != served:
            return _differs(partition, start, segment.end_offset, stored.digest.records, served.records)
        for left_out in stored.not_opened:
            run.on_message(
                f"{partition}: offsets {left_out} are in a batch that is too large to decode; they were not compared"
            )
        run.ports.handovers.note_compared(run.drive, partition.partition, segment.end_offset + 1)
        run.on_message(
            f"{partition}: offsets {start}..{segment.end_offset} are remote only, {served.records} records equal"
        )
    return None


def _differs(partition: TopicIdPartition, start: int, end: int, stored: int, served: int) -> StepResult:
    return StepResult(
        StepEnd.STOP,
        f"{partition}: of offsets {start}..{end} the brokers serve {served} records and {stored} were copied; these"
        " records are not equal: local retention is not lowered further",
    )


def _leaders(run: HandoverRun) -> list[tuple[Replica, PartitionOffsets]]:
    handover = run.handover
    replicas = [
        replica
        for replica in run.ports.source.scan(topics=[handover.topic]).replicas
        if replica.chosen and replica.topic_id_partition.topic_id == handover.topic_id
    ]
    answer = run.ports.brokers.partition_offsets([replica.topic_id_partition for replica in replicas])
    return [(replica, answer.of(replica.topic_id_partition)) for replica in replicas]


def _number(value: str | None) -> int:
    """Return the number; -1 for None, for a negative number, and for a text that is not a number."""
    return int(value) if value is not None and value.isdigit() else UNLIMITED
