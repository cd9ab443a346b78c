"""Replicas under the directory that holds them."""

from dataclasses import replace

from include.tiering.kafka.log_dirs.contract import IneligibleReason, ReplicaId, ScanReport
from include.tiering.runs.cluster_log_dirs import KnownLogDir
from include.tiering.sizes.compare import describe_log_dirs
from tests.doubles.sample_values import ORDERS_0, ORDERS_1, REPLICA_0, ROLLED, partition_size, replica


def test_each_replica_is_shown_in_its_directory_with_what_is_remote() -> None:
    behind = replace(replica(ROLLED, ROLLED), high_watermark=250, log_end_offset=200)
    moving = replace(
        replica(replace(ROLLED, reason=IneligibleReason.BEING_MOVED)), replica_id=ReplicaId(ORDERS_1, 1, "dir-b")
    )
    dirs = [KnownLogDir(1, "/a", "dir-a"), KnownLogDir(1, "/b", "dir-b"), KnownLogDir(2, "/a2", "dir-a")]
    first, second, third = describe_log_dirs(ScanReport("c", (behind, moving), ()), dirs, [partition_size()])
    assert REPLICA_0.directory_id == first.log_dir.directory_id
    (shown,) = first.replicas
    assert (shown.topic_id_partition, shown.size_bytes, shown.offset_lag) == (ORDERS_0, 8192, 50)
    assert (shown.is_future, shown.remote) == (False, partition_size())
    (shown,) = second.replicas
    assert (shown.is_future, shown.offset_lag, shown.remote) == (True, 0, None)
    assert third.replicas == ()
