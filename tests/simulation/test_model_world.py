"""What the model of brokers must be right about, so that schedules test the product and not the model."""

import itertools

from include.tiering.model.segments import TopicIdPartition, Uuid
from tests.simulation.world.brokers import Cluster, PartitionLog, Transaction
from tests.simulation.world.log_source import ClusterMetadataFeed, ClusterMetadataView, ModelSource

TOPIC = Uuid(b"orders' topic id")
PARTITION = TopicIdPartition(TOPIC, 0, "orders")


def cluster_of_two_brokers() -> tuple[Cluster, PartitionLog]:
    cluster = Cluster("cluster", itertools.count().__next__)
    cluster.create_topic(TOPIC, "orders", 1, (1, 2), (3, 2))
    return cluster, cluster.logs[PARTITION]


def source_of(cluster: Cluster, feed: ClusterMetadataFeed) -> tuple[ModelSource, ClusterMetadataView]:
    cluster_metadata = ClusterMetadataView(cluster, feed)
    return ModelSource(cluster, cluster_metadata, feed), cluster_metadata


def test_what_a_process_knows_of_before_an_election_is_not_what_others_are_told() -> None:
    cluster, log = cluster_of_two_brokers()
    log.produce(8)
    log.replicate()
    for replica in log.replicas.values():
        log.checkpoint(replica)
    feed = ClusterMetadataFeed(cluster)
    (old, _), (new, _) = source_of(cluster, feed), source_of(cluster, feed)
    seen = next(one for one in old.scan().replicas if one.replica_id.broker_id == 1)
    assert seen.chosen
    log.elect(2, clean=True)
    cluster.changed()

    old.size_doubts(seen.replica_id, seen.segments)  # asks for no newer metadata

    with new.open_segment(seen.replica_id, 0) as opened:
        assert not opened.segment.eligible


def test_a_size_that_was_mended_since_the_scan_is_in_doubt() -> None:
    cluster, log = cluster_of_two_brokers()
    log.produce(8)
    source, _ = source_of(cluster, ClusterMetadataFeed(cluster))
    damaged, active = log.replicas[1].files[0], log.replicas[1].files[-1]
    damaged.claimed_bytes = active.claimed_bytes = 1 << 40
    seen = next(one for one in source.scan().replicas if one.replica_id.broker_id == 1)
    damaged.claimed_bytes = active.claimed_bytes = 0
    cluster.changed()

    doubts = source.size_doubts(seen.replica_id, seen.segments)

    assert set(doubts) == {damaged.base_offset, active.base_offset}


def test_a_transaction_is_not_open_in_a_history_that_never_had_it() -> None:
    _, log = cluster_of_two_brokers()
    log.produce(8)
    log.isr = [1]  # broker 2 has nothing
    log.advance_high_watermark()
    log.elect(2, clean=False)
    log.produce(6)
    log.transactions.append(Transaction((log.leader_epoch, 5)))
    log.advance_high_watermark()
    assert log.last_stable_offset == 5

    log.elect(1, clean=False)  # it has another record at offset 5

    assert log.transactions == []
    assert log.last_stable_offset == log.high_watermark


def test_a_transaction_whose_end_was_lost_is_open_again() -> None:
    _, log = cluster_of_two_brokers()
    log.produce(2)
    log.replicate()
    log.isr = [1]
    log.transactions.append(Transaction((0, 1), (0, 3)))
    log.produce(2)
    assert log.last_stable_offset == log.high_watermark

    log.elect(2, clean=False)

    assert log.last_stable_offset == 1
