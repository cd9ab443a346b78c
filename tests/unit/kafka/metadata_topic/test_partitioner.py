"""Which metadata partition a partition's records go to: Kafka's answers, and those of a real broker."""

import random

import pytest

from include.tiering.kafka.metadata_topic.contract import metadata_partition_of
from include.tiering.kafka.metadata_topic.record_check import partition_choice
from include.tiering.model.segments import TopicIdPartition, Uuid
from tests.doubles.broker_data import expected


@pytest.mark.parametrize(
    ("topic_id", "choices"),
    [
        (Uuid(bytes(range(1, 17))), [13, 41, 44, 37, 10, 5]),
        (Uuid.parse("LWgrMmVrT0a__7a4SasuPA"), [1, 18, 30, 2]),
    ],
)
def test_the_choice_of_kafkas_own_partitioner(topic_id: Uuid, choices: list[int]) -> None:
    chosen = [metadata_partition_of(TopicIdPartition(topic_id, p, "any"), 50) for p in range(len(choices))]
    assert chosen == choices


def test_every_record_of_a_real_broker_is_where_it_is_looked_for() -> None:
    for one in expected("tiered")["remote_log_metadata"]:
        partition = TopicIdPartition(Uuid.parse(one["topic_id"]), one["partition"], one["topic"])
        assert metadata_partition_of(partition, 3) == one["metadata_partition"]


def test_both_ways_to_the_choice_agree() -> None:
    choose = random.Random(8)
    for _ in range(2_000):
        topic_id, partition = choose.randbytes(16), choose.randrange(2**31)
        count = choose.choice((1, 3, 50, 1_000))
        chosen = metadata_partition_of(TopicIdPartition(Uuid(topic_id), partition, "any"), count)
        assert chosen == partition_choice(topic_id, partition, count)
        assert 0 <= chosen < count


def test_a_topic_without_partitions_has_no_choice() -> None:
    with pytest.raises(ValueError, match="0 partitions"):
        metadata_partition_of(TopicIdPartition(Uuid(bytes(16)), 0, "any"), 0)
