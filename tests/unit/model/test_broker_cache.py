"""A broker's cache: the traces that Kafka's own classes gave, and its drops."""

import pytest

from include.tiering.errors import PoisonRecordError
from include.tiering.model.broker_cache import BrokerCache, BrokerCacheState, Effect
from include.tiering.model.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState
from tests.doubles.segments import (
    DELETE_FINISHED,
    DELETE_STARTED,
    FINISHED,
    STARTED,
    partition_of,
    segment_of,
    update_of,
)

PARTITION = partition_of("orders")
A = segment_of(PARTITION, 1, 0, 99, {0: 0, 1: 60})
B = segment_of(PARTITION, 2, 100, 199, {1: 100, 2: 150})


def cache_of(*finished: RemoteLogSegmentMetadata) -> BrokerCache:
    cache = BrokerCache()
    for segment in finished:
        assert cache.add(segment) is Effect.APPLIED
        assert cache.update(update_of(segment, FINISHED)) is Effect.APPLIED
    return cache


def ids(segments: object) -> list[object]:
    return [one.remote_log_segment_id for one in segments]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("epoch", "offset", "answers"),
    [
        (0, 59, A),
        (0, 60, None),
        (1, 59, None),
        (1, 60, A),
        (1, 149, B),
        (1, 150, None),
        (2, 150, B),
        (2, 200, None),
        (3, 0, None),
    ],
)
def test_lookups_by_epoch_and_offset(epoch: int, offset: int, answers: RemoteLogSegmentMetadata | None) -> None:
    found = cache_of(A, B).segment_for_offset(epoch, offset)
    assert (found and found.remote_log_segment_id) == (answers and answers.remote_log_segment_id)


def test_highest_offsets_outlive_deletions() -> None:
    cache = cache_of(A, B)
    for state in (DELETE_STARTED, DELETE_FINISHED):
        cache.update(update_of(A, state))
        cache.update(update_of(B, state))
    assert [cache.highest_offset_for_epoch(epoch) for epoch in (0, 1, 2, 3)] == [59, 149, 199, None]
    assert cache.list_segments() == []


def test_a_superset_takes_the_place_of_what_it_covers() -> None:
    short, superset = segment_of(PARTITION, 1, 0, 100), segment_of(PARTITION, 2, 0, 200)
    cache = cache_of(short, superset)
    for offset in (0, 100, 101, 200):
        assert cache.segment_for_offset(0, offset).remote_log_segment_id == superset.remote_log_segment_id
    assert ids(cache.list_segments(0)) == ids([superset, short])
    assert cache.remote_log_size(0) == 2_000


def test_an_overlapping_segment_of_the_next_leader_answers() -> None:
    old, new, after = (segment_of(PARTITION, n, *offsets) for n, offsets in enumerate([(10, 90), (5, 100), (101, 200)]))
    cache = cache_of(old, new, after)
    assert cache.segment_for_offset(0, 95).remote_log_segment_id == new.remote_log_segment_id
    assert ids(cache.list_segments(0)) == ids([new, old, after])


def test_a_shorter_copy_leaks_the_one_whose_place_it_takes() -> None:
    a, b, again = (segment_of(PARTITION, n, *offsets) for n, offsets in enumerate([(0, 100), (101, 200), (0, 100)]))
    cache = cache_of(a, b, again)
    assert ids(cache.list_segments(0)) == ids([again, b])
    assert set(ids(cache.list_segments())) == set(ids([a, b, again]))
    assert cache.remote_log_size(0) == 2_000
    cache.update(update_of(a, DELETE_STARTED))
    assert ids(cache.list_segments(0)) == ids([again, a, b]), "its deletion makes the epoch know it again"
    cache.update(update_of(a, DELETE_FINISHED))
    assert ids(cache.list_segments(0)) == ids([again, b])


def test_a_gap_and_what_is_not_finished_answer_nothing() -> None:
    cache = cache_of(segment_of(PARTITION, 1, 0, 9), segment_of(PARTITION, 2, 20, 29))
    cache.add(segment_of(PARTITION, 3, 30, 39))
    assert cache.segment_for_offset(0, 15) is None
    assert cache.segment_for_offset(0, 30) is None
    cache.update(update_of(segment_of(PARTITION, 2, 20, 29), DELETE_STARTED))
    assert cache.segment_for_offset(0, 25) is None
    assert len(cache.list_segments(0)) == 3


def test_a_segment_of_several_epochs_counts_in_each() -> None:
    cache = cache_of(A)
    assert (cache.remote_log_size(0), cache.remote_log_size(1), cache.remote_log_size(2)) == (1_000, 1_000, 0)


@pytest.mark.parametrize("state", [FINISHED, DELETE_STARTED, DELETE_FINISHED])
def test_an_update_of_an_unknown_segment_is_dropped(state: RemoteLogSegmentState) -> None:
    cache = BrokerCache()
    assert cache.update(update_of(A, state)) is Effect.UNKNOWN_SEGMENT
    assert cache.state() == BrokerCacheState({}, {}, {})


@pytest.mark.parametrize(
    ("path", "state"),
    [
        ([], DELETE_FINISHED),
        ([FINISHED], DELETE_FINISHED),
        ([FINISHED], STARTED),
        ([DELETE_STARTED], FINISHED),
        ([DELETE_STARTED], STARTED),
    ],
)
def test_an_illegal_transition_is_dropped(path: list[RemoteLogSegmentState], state: RemoteLogSegmentState) -> None:
    cache = BrokerCache()
    cache.add(A)
    for step in path:
        cache.update(update_of(A, step))
    before = cache.state()
    assert cache.update(update_of(A, state)) is Effect.ILLEGAL_TRANSITION
    assert cache.state() == before


def test_a_segment_that_begins_again_is_dropped_once_it_is_finished() -> None:
    cache = cache_of(A)
    before = cache.state()
    assert cache.add(A) is Effect.ILLEGAL_TRANSITION
    assert cache.state() == before


def test_what_was_forgotten_may_begin_again() -> None:
    cache = cache_of(A)
    cache.update(update_of(A, DELETE_STARTED))
    cache.update(update_of(A, DELETE_FINISHED))
    assert cache.update(update_of(A, DELETE_FINISHED)) is Effect.UNKNOWN_SEGMENT
    assert cache.add(A) is Effect.APPLIED


@pytest.mark.parametrize("state", [FINISHED, DELETE_STARTED])
def test_staying_in_a_state_changes_event_time_and_custom_metadata_alone(state: RemoteLogSegmentState) -> None:
    cache = BrokerCache()
    cache.add(A)
    cache.update(update_of(A, state, custom_metadata=b"first"))
    references = cache.state().references
    assert cache.update(update_of(A, state, custom_metadata=None)) is Effect.APPLIED
    assert cache.list_segments()[0].custom_metadata is None
    assert cache.state().references == references


@pytest.mark.parametrize("state", [FINISHED, DELETE_STARTED, DELETE_FINISHED])
def test_a_segment_record_in_another_state_stops_every_broker(state: RemoteLogSegmentState) -> None:
    with pytest.raises(PoisonRecordError, match=state.name):
        BrokerCache().add(segment_of(PARTITION, 1, 0, 9, state=state))


def test_an_update_to_started_stops_every_broker_while_it_is_started() -> None:
    cache = BrokerCache()
    assert cache.update(update_of(A, STARTED)) is Effect.UNKNOWN_SEGMENT
    cache.add(A)
    with pytest.raises(PoisonRecordError, match="COPY_SEGMENT_STARTED"):
        cache.update(update_of(A, STARTED))


def test_a_topic_that_was_created_again_has_other_partitions() -> None:
    again = partition_of("orders", topic_number=77)
    assert again != PARTITION
    assert cache_of(A).update(update_of(segment_of(again, 1, 0, 99), FINISHED)) is Effect.UNKNOWN_SEGMENT


def test_an_epoch_without_a_record_ends_before_it_begins() -> None:
    cache = cache_of(segment_of(PARTITION, 1, 0, 99, {0: 0, 1: 100 - 1, 2: 100 - 1}))
    assert cache.highest_offset_for_epoch(1) == 98
    assert cache.segment_for_offset(1, 99) is None
    assert cache.segment_for_offset(2, 99) is not None
