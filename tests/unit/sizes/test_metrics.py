"""Sizes, lags and costs by topic; nothing left is 0, not what was there before."""

from decimal import Decimal
from typing import Any

import pytest

from include.tiering.model.segments import TopicIdPartition, Uuid
from include.tiering.model.sizes import CostEstimate, PartitionLag, PartitionStates, partition_states
from include.tiering.settings import TieringSettings
from include.tiering.sizes.metrics import SizeGauges
from include.tiering.sizes.service import SizeService
from tests.doubles.partial import Partial
from tests.doubles.recorded_metrics import RecordedMetrics
from tests.doubles.segments import DELETE_STARTED, FINISHED, STARTED, partition_of, segment_of


@pytest.fixture
def recorder() -> RecordedMetrics:
    return RecordedMetrics()


def test_sizes_of_a_topic_are_the_sum_of_its_partitions_and_go_back_to_nothing(recorder: RecordedMetrics) -> None:
    gauges = SizeGauges(recorder)
    states = [FINISHED, STARTED, DELETE_STARTED, FINISHED]
    partitions = [
        partition_states(
            partition, [segment_of(partition, n, n * 100, n * 100 + 99, state=states[n]) for n in range(4)]
        )
        for partition in (partition_of("orders", 0), partition_of("orders", 1), partition_of("payments"))
    ]
    gauges.sizes(partitions)
    assert recorder.values() == {
        ("RemoteLogSizeBytes", "orders"): 6_000,
        ("RemoteLogSizeBytes", "payments"): 3_000,
        ("tiering_remote_log_finished_bytes", "orders"): 4_000,
        ("tiering_remote_log_finished_bytes", "payments"): 2_000,
        ("tiering_remote_log_segments", "orders"): 4,
        ("tiering_remote_log_segments", "payments"): 2,
        ("RemoteLogMetadataCount", "orders"): 8,
        ("RemoteLogMetadataCount", "payments"): 4,
    }
    gauges.sizes([PartitionStates(partition_of("payments"), ())])
    assert recorder.values()["RemoteLogSizeBytes", "payments"] == 0
    assert recorder.values()["tiering_remote_log_finished_bytes", "payments"] == 0
    assert recorder.values()["RemoteLogMetadataCount", "payments"] == 0


def test_lags_add_up_and_the_longest_wait_counts(recorder: RecordedMetrics) -> None:
    gauges = SizeGauges(recorder)
    orders = [PartitionLag(partition_of("orders", n), 100, 2, 5.0 * n) for n in range(2)]
    gauges.copy_lags(orders, [partition_of("audit", n) for n in range(3)])
    gauges.delete_lags(orders[:1], ["orders", "payments"])
    assert recorder.values() == {
        ("RemoteCopyLagBytes", "orders"): 200,
        ("RemoteCopyLagSegments", "orders"): 4,
        ("tiering_remote_copy_lag_seconds", "orders"): 5,
        ("tiering_remote_copy_out_of_sight_partitions", "orders"): 0,
        ("tiering_remote_copy_out_of_sight_partitions", "audit"): 3,
        ("RemoteDeleteLagBytes", "orders"): 100,
        ("RemoteDeleteLagBytes", "payments"): 0,
        ("RemoteDeleteLagSegments", "orders"): 2,
        ("RemoteDeleteLagSegments", "payments"): 0,
        ("tiering_remote_delete_lag_seconds", "orders"): 0,
        ("tiering_remote_delete_lag_seconds", "payments"): 0,
    }


def test_a_recount_duplicates_and_costs(recorder: RecordedMetrics) -> None:
    gauges = SizeGauges(recorder)
    gauges.recount(milliseconds=1500, differences=2)
    gauges.duplicates("remote", {"orders": 7})
    gauges.cost(CostEstimate("EUR", Decimal("2.5"), None, None, None))
    gauges.cost(None)
    assert recorder.values() == {
        ("RemoteLogSizeComputationTime",): 1500,
        ("tiering_remote_log_size_differences",): 2,
        ("tiering_duplicate_bytes", "orders", "remote"): 7,
        ("tiering_storage_cost_per_month", "EUR"): 2.5,
    }


def test_a_topic_whose_last_segment_is_gone_has_no_delete_lag(recorder: RecordedMetrics) -> None:
    counters = Counters()
    nothing: Any = Partial()
    service = SizeService(
        settings=TieringSettings(),
        source=nothing,
        sizes=counters,
        metadata=counters,
        registry=nothing,
        failed_copies=counters,
        ingestion=counters,
        cluster_metadata=nothing,
        log_dirs=nothing,
        names=nothing,
        planner=nothing,
        recorder=recorder,
        clock=nothing,
    )
    service.report(scan_log_dirs=False)
    assert recorder.values()["RemoteDeleteLagBytes", "orders"] == 100
    counters.lags = []
    service.report(scan_log_dirs=False)
    assert recorder.values()["RemoteDeleteLagBytes", "orders"] == 0
    assert recorder.values()["tiering_remote_delete_lag_seconds", "orders"] == 0


class Counters(Partial):
    """Stands for the stores: a topic without a FINISHED segment, the last of which waits for its deletion."""

    def __init__(self) -> None:
        self.lags = [PartitionLag(partition_of("orders"), 100, 1, 5.0)]

    def partition_states(self) -> list[PartitionStates]:
        return []

    def delete_lags(self) -> list[PartitionLag]:
        return self.lags

    def topic_names(self) -> dict[Uuid, str]:
        return {partition_of("orders").topic_id: "orders"}

    def verdict_totals(self) -> tuple[()]:
        return ()

    def unread(self) -> dict[TopicIdPartition, str]:
        return {}

    def all(self) -> tuple[()]:
        return ()
