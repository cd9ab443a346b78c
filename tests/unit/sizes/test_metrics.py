"""Sizes, lags and costs by topic; nothing left is 0, not what was there before."""

from decimal import Decimal
from typing import Any

import pytest

from include.tiering.model.segments import TopicIdPartition, Uuid
from include.tiering.model.sizes import CostEstimate, PartitionLag, PartitionStates, partition_states
from include.tiering.settings import TieringSettings
from include.tiering.sizes.compare import DuplicateBytes, TierComparison
from include.tiering.sizes.metrics import SizeGauges
from include.tiering.sizes.report import SizeReport
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
    assert recorder.values() == {
        ("RemoteLogSizeComputationTime",): 1500,
        ("tiering_remote_log_size_differences",): 2,
        ("tiering_duplicate_bytes", "orders", "remote"): 7,
        ("tiering_storage_cost_per_month", "EUR"): 2.5,
    }
    gauges.cost(None)
    assert ("tiering_storage_cost_per_month", "EUR") not in recorder.values()


def test_of_a_log_directory_that_cannot_be_read_no_free_bytes_are_known(recorder: RecordedMetrics) -> None:
    SizeGauges(recorder).log_dirs({(1, "/a"): 5, (2, "/b"): None})
    assert recorder.values() == {
        ("tiering_log_dir_free_bytes", "1", "/a"): 5,
        ("tiering_log_dir_unreadable", "1", "/a"): 0,
        ("tiering_log_dir_unreadable", "2", "/b"): 1,
    }
    SizeGauges(recorder).log_dirs({(2, "/b"): 7})
    assert recorder.values()["tiering_log_dir_unreadable", "2", "/b"] == 0
    assert ("tiering_log_dir_unreadable", "1", "/a") not in recorder.values(), "it is not in the settings any more"


@pytest.mark.parametrize("are_all", [True, False])
def test_a_topic_that_is_no_longer_copied_has_no_lag_unless_it_may_have_been_out_of_reach(
    recorder: RecordedMetrics, are_all: bool
) -> None:
    gauges = SizeGauges(recorder)
    gauges.copy_lags([PartitionLag(partition_of(topic), 100, 2, 5.0) for topic in ("orders", "gone")])
    gauges.copy_lags([PartitionLag(partition_of("orders"), 100, 2, 5.0)], are_all=are_all)
    assert (("tiering_remote_copy_lag_seconds", "gone") in recorder.values()) is not are_all
    assert (("RemoteCopyLagBytes", "gone") in recorder.values()) is not are_all


@pytest.mark.parametrize("errors", [(), (Partial(),)], ids=["all of it", "with an error"])
def test_what_is_no_longer_in_both_tiers_is_0_bytes(recorder: RecordedMetrics, errors: tuple[Any, ...]) -> None:
    key = ("tiering_duplicate_bytes", "orders", "local")
    service, nothing = service_with(Counters(), recorder), dict[TopicIdPartition, str]()
    both = TierComparison((), (DuplicateBytes(partition_of("orders"), 9),), (), nothing)
    service._publish(SizeReport([], [], both, None, (), {}, {}))
    assert recorder.values()[key] == 9
    service._publish(SizeReport([], [], TierComparison((), (), errors, nothing), None, (), {}, {}))
    assert recorder.values()[key] == (9 if errors else 0)


def test_a_topic_whose_last_segment_is_gone_has_no_delete_lag(recorder: RecordedMetrics) -> None:
    counters = Counters()
    service = service_with(counters, recorder)
    service.report(scan_log_dirs=False)
    assert recorder.values()["RemoteDeleteLagBytes", "orders"] == 100
    counters.lags = []
    service.report(scan_log_dirs=False)
    assert recorder.values()["RemoteDeleteLagBytes", "orders"] == 0
    assert recorder.values()["tiering_remote_delete_lag_seconds", "orders"] == 0


def service_with(counters: "Counters", recorder: RecordedMetrics) -> SizeService:
    nothing: Any = Partial()
    return SizeService(
        settings=TieringSettings(),
        sizes=counters,
        metadata=counters,
        registry=nothing,
        failed_copies=counters,
        ingestion=counters,
        cluster_metadata=nothing,
        log_dirs=counters,
        names=nothing,
        planner=nothing,
        recorder=recorder,
        clock=nothing,
    )


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

    def free_bytes(self) -> dict[tuple[int, str], int]:
        return {}

    def unread(self) -> dict[TopicIdPartition, str]:
        return {}

    def all(self) -> tuple[()]:
        return ()
