"""Which segments are rehearsed, and what is refused before a byte is copied."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.tiering.broker_process.sample import PartitionSample, sample_of, samples_of
from include.tiering.errors import RehearsalError, UnknownTopicError
from include.tiering.kafka.cluster.contract import PartitionMetadata, TopicMetadata
from include.tiering.kafka.log_dirs.contract import IneligibleReason, Replica, ScanError, ScanReport
from include.tiering.model.segments import Uuid
from tests.doubles.replicas import ORDERS, replica

OTHER = Uuid(b"orders-topic-id1")


def topic_metadata(partitions: int) -> TopicMetadata:
    return TopicMetadata(
        "orders",
        ORDERS,
        partitions={number: PartitionMetadata(number, 7, 0, (7,), (7,)) for number in range(partitions)},
    )


def report(*replicas: Replica, errors: tuple[ScanError, ...] = ()) -> ScanReport:
    return ScanReport("cluster", replicas, errors)


def bases(sample: PartitionSample) -> list[int]:
    return [segment.base_offset for segment in sample.segments]


@given(st.lists(st.integers(0, 100), min_size=1, max_size=8), st.integers(1, 500))
def test_the_newest_segments_that_fit_are_taken_without_a_gap_up_to_the_end(sizes: list[int], bound: int) -> None:
    sample = sample_of(replica(sizes), bound)
    suffixes = [sizes[start:] for start in range(len(sizes))]
    fitting = [one for one in suffixes if sum(one) <= bound or len(one) <= min(2, len(sizes))]
    assert [segment.size_bytes for segment in sample.segments] == max(fitting, key=len)
    assert all(one.end_offset + 1 == after.base_offset for one, after in pairwise(sample.segments))
    assert (sample.log_end_offset, sample.active.active) == (10 * len(sizes), True)
    assert sample.size_bytes == sum(segment.size_bytes for segment in sample.segments)


def test_the_newest_rolled_segment_is_taken_whatever_the_bound() -> None:
    assert bases(sample_of(replica([100, 100, 100]), 1)) == [10, 20]


def test_nothing_below_the_log_start_is_taken() -> None:
    below = {0: IneligibleReason.BELOW_LOG_START, 1: IneligibleReason.BELOW_LOG_START}
    assert bases(sample_of(replica([1, 1, 1, 1], reasons=below), 1_000)) == [20, 30]


def test_a_log_start_within_the_first_segment_is_kept() -> None:
    cut = replace(replica([1, 1, 1]), log_start_offset=13)
    assert sample_of(cut, 2).log_start_offset == 13
    assert sample_of(replace(cut, log_start_offset=3), 2).log_start_offset == 10


def test_epochs_are_those_of_the_sampled_records() -> None:
    epochs = ((3, 0), (5, 12), (9, 27), (12, 30))
    sample = sample_of(replica([1, 1, 1], epochs=epochs), 2)
    assert bases(sample) == [10, 20]
    assert list(sample.leader_epochs) == [(3, 10), (5, 12), (9, 27)]
    assert sample.leader_epoch == 12, "the last one, though no record of it is there"


@pytest.mark.parametrize(
    "reason", [IneligibleReason.CORRUPT, IneligibleReason.COMPACTED, IneligibleReason.BROKER_TIERED]
)
def test_what_a_hand_over_would_refuse_is_refused_at_once(reason: IneligibleReason) -> None:
    with pytest.raises(RehearsalError, match=f"orders-0, segment at offset 10: {reason}"):
        sample_of(replica([1, 1, 1], reasons={1: reason}), 1_000)
    assert bases(sample_of(replica([1, 1, 1, 1], reasons={0: reason}), 3)) == [10, 20, 30], "it is not looked at"


def test_every_partition_is_sampled_in_order() -> None:
    found = samples_of(
        "orders", report(replica([1], partition=1), replica([1, 1]), replica([1], chosen=False)), None, 9
    )
    assert [sample.partition for sample in found] == [0, 1]
    assert samples_of("orders", report(*(replica([1, 1], partition=one) for one in (0, 1))), topic_metadata(2), 9)


def test_an_unknown_topic_is_named_with_what_could_not_be_read() -> None:
    unreadable = ScanError("/kafka/a", None, "SourceUnreadableError", "permission denied")
    with pytest.raises(UnknownTopicError, match=r"topic orders \(/kafka/a: permission denied\)"):
        samples_of("orders", report(errors=(unreadable,)), None, 9)
    with pytest.raises(UnknownTopicError):
        samples_of("orders", report(replica([1, 1], topic_id=OTHER)), topic_metadata(1), 9)


def test_a_partition_that_cannot_be_read_here_is_named_with_its_leader() -> None:
    with pytest.raises(RehearsalError, match="2 of 3 partitions cannot be read here: partition 1, led by broker 7"):
        samples_of("orders", report(replica([1, 1]), replica([1, 1], partition=1, chosen=False)), topic_metadata(3), 9)
    with pytest.raises(RehearsalError, match="1 of 2 partitions cannot be read here: partition 0 is in no directory"):
        samples_of("orders", report(replica([1, 1], partition=1)), None, 9)


def test_two_topics_of_one_name_are_not_mixed() -> None:
    with pytest.raises(RehearsalError, match="2 topics of this name"):
        samples_of("orders", report(replica([1, 1]), replica([1, 1], partition=1, topic_id=OTHER)), None, 9)


def test_without_a_rolled_segment_there_is_nothing_to_rehearse() -> None:
    with pytest.raises(RehearsalError, match="has a rolled segment yet"):
        samples_of("orders", report(replica([1]), replica([1], partition=1)), None, 9)
