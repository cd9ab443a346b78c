"""The leader epochs that a scan shows, kept for good: a broker forgets them when its log start moves."""

from typing import Final

from include.tiering.kafka.log_dirs.contract import ScanReport
from include.tiering.model.ownership import TopicOwner
from include.tiering.segments.contract import RemoteLogMetadata, TopicRegistry
from include.tiering.telemetry import for_partition, get_logger

_log: Final = get_logger(__name__)


def remember_leader_epochs(report: ScanReport, metadata: RemoteLogMetadata, registry: TopicRegistry) -> None:
    """Complete the history of every scanned partition that the platform owns; a contradiction is a warning.

    Entries at or above the high watermark are left out: an election that loses nothing may yet cut them off.
    """
    for replica in report.replicas:
        partition = replica.topic_id_partition
        if not replica.chosen or registry.owner(partition.topic_id) is not TopicOwner.PLATFORM:
            continue
        committed = replica.leader_epochs.range(-1, replica.high_watermark)
        for contradiction in metadata.merge_leader_epochs(partition, committed, replica.log_start_offset):
            for_partition(_log, partition).warning("leader epochs: %s", contradiction)
