"""Kafka tickets about retention, and logs that their broker has lost."""

from dataclasses import replace

import pytest

from include.tiering.expiration.rules import decide_deletions
from include.tiering.model.leader_epochs import LeaderEpochs, merged
from tests.doubles.segments import DELETE_STARTED, STARTED
from tests.doubles.slow_expiration import NOW_MS, after, named, remote_segment, retention_input
from tests.doubles.slow_expiration import row_of_segments as row

# Bugs of Kafka's expiration that were fixed: each named after its ticket, none to be made again.

THREE_EPOCHS = LeaderEpochs.of([(0, 0), (1, 10), (2, 20)])
HOUR_MS = 3_600_000


def test_kafka_15479_a_segment_that_spans_epochs_counts_and_goes_once() -> None:
    spanning = remote_segment(1, 0, 29, {0: 0, 1: 10, 2: 20})
    segments = (spanning, *(remote_segment(n, 10 * n, 10 * n + 9, {2: 10 * n}) for n in (3, 4, 5)))
    outcome = decide_deletions(retention_input(segments, THREE_EPOCHS, retention_bytes=20))
    assert named(outcome) == [(0, 29, "size"), (30, 39, "size")]


def test_kafka_17062_abandoned_copies_are_not_in_the_total() -> None:
    abandoned = tuple(remote_segment(90 + n, 30, 39, state=STARTED, size_bytes=1_000) for n in range(3))
    assert not decide_deletions(retention_input((*row(3), *abandoned), retention_bytes=30)).decisions


def test_kafka_17062_a_failed_copy_is_cleaned_up_by_itself() -> None:
    abandoned = remote_segment(9, 30, 39, state=STARTED, event_age_ms=24 * HOUR_MS)
    assert named(decide_deletions(retention_input((*row(3), abandoned)))) == [(30, 39, "abandoned copy")]


def test_kafka_17428_a_failed_clean_up_is_tried_again() -> None:
    """Also behind the first segment that stays, where a broker's scan would not come."""
    half_deleted = remote_segment(9, 30, 39, state=DELETE_STARTED, size_bytes=1_000)
    outcome = decide_deletions(retention_input((*row(3), half_deleted), retention_bytes=30))
    assert named(outcome) == [(30, 39, "unfinished delete")]
    assert outcome.log_start_offset == 0


def test_kafka_16890_of_overlapping_segments_the_highest_end_is_the_new_log_start() -> None:
    segments = (remote_segment(1, 0, 29, age_ms=9), remote_segment(2, 5, 14, age_ms=9), remote_segment(3, 30, 39))
    assert decide_deletions(retention_input(segments, retention_ms=1)).log_start_offset == 30


def test_kafka_16511_an_overlap_does_not_hold_up_expiry_once_its_beginning_is_forgotten() -> None:
    """The new leader copied the segment that holds the next offset whole: it begins before the log start's epoch."""
    lineage = LeaderEpochs.of([(5, 0), (7, 15), (9, 100)])
    overlap = remote_segment(1, 5, 120, {5: 5, 7: 15, 9: 100}, age_ms=HOUR_MS)
    behind = remote_segment(2, 121, 130, {9: 121}, age_ms=HOUR_MS)
    outcome = decide_deletions(retention_input((overlap, behind), lineage, log_start_offset=51, retention_ms=1))
    assert named(outcome) == [(5, 120, "time"), (121, 130, "time")]


def test_kafka_15352_the_log_start_is_known_before_anything_is_deleted() -> None:
    outcome = decide_deletions(retention_input(row(4), retention_bytes=10))
    assert all(one.segment.end_offset < outcome.log_start_offset for one in outcome.decisions)


def test_kafka_15351_the_log_start_never_falls_back() -> None:
    assert decide_deletions(retention_input((), log_start_offset=70, retention_ms=0)).log_start_offset == 70
    late = remote_segment(1, 0, 9, {0: 0}, age_ms=HOUR_MS)
    assert decide_deletions(retention_input((late,), log_start_offset=70, retention_ms=0)).log_start_offset == 70


@pytest.mark.parametrize("retention_ms", [NOW_MS + 1, 2**63 - 1])
def test_kafka_17995_retention_longer_than_the_clock_keeps_and_leaves_the_other_rules_alone(retention_ms: int) -> None:
    given = retention_input(row(3), retention_ms=retention_ms, retention_bytes=20)
    assert named(decide_deletions(given)) == [(0, 9, "size")]


def test_kafka_20091_a_segment_exactly_at_the_limit_stays() -> None:
    segments = (remote_segment(1, 0, 9, age_ms=HOUR_MS),)
    assert not decide_deletions(retention_input(segments, retention_ms=HOUR_MS)).decisions
    assert decide_deletions(retention_input(segments, retention_ms=HOUR_MS - 1)).decisions


def test_kafka_20732_data_that_is_local_and_remote_is_not_counted_twice() -> None:
    """All of it is within retention; what is also local is no part of the local-only bytes, and unknown means none."""
    assert not decide_deletions(retention_input(row(8), retention_bytes=100, local_only_bytes=20)).decisions
    assert not decide_deletions(retention_input(row(8), retention_bytes=100, local_only_bytes=None)).decisions


def test_kafka_20609_a_timestamp_in_the_future_holds_up_time_only_and_is_named() -> None:
    segments = (remote_segment(1, 0, 9, age_ms=-HOUR_MS), *row(3)[1:])
    held_up = decide_deletions(retention_input(segments, retention_ms=0))
    assert not held_up.decisions
    assert held_up.unknowns == (
        f"timestamps lie up to {HOUR_MS} ms in the future: retention.ms keeps these segments and all later ones",
    )
    by_size = retention_input(segments, retention_ms=0, retention_bytes=20)
    outcome = decide_deletions(by_size)
    assert named(outcome) == [(0, 9, "size"), (10, 19, "time"), (20, 29, "time")]
    assert not decide_deletions(after(by_size, outcome)).decisions


# A broker without tiered storage forgets: nothing of that deletes what is archived; our own retention does.

HISTORY = LeaderEpochs.of([(0, 0), (1, 100), (2, 200), (4, 300)])
ARCHIVED = (
    remote_segment(1, 0, 99, {0: 0}, age_ms=40),
    remote_segment(2, 100, 199, {1: 100}, age_ms=30),
    remote_segment(3, 200, 320, {2: 200, 4: 300}, age_ms=20),
    remote_segment(4, 321, 399, {4: 321}, age_ms=10),
)


@pytest.mark.parametrize("broker_log_start", [0, 50, 100, 250, 300, 399, 400, 5_000])
def test_a_raised_log_start_and_a_cut_epoch_cache_decide_nothing(broker_log_start: int) -> None:
    seen = HISTORY.truncated_from_start(broker_log_start)
    remembered = merged(HISTORY, seen, broker_log_start)
    assert remembered.history == HISTORY
    assert remembered.contradictions == ()
    outcome = decide_deletions(retention_input(ARCHIVED, remembered.history, log_end_offset=None))
    assert outcome.decisions == ()
    assert outcome.log_start_offset == 0


def test_a_broker_that_decided_by_its_own_log_start_would_have_deleted() -> None:
    """The same archive, decided by what the broker has left: this is what must never be the input."""
    forgetful = retention_input(ARCHIVED, HISTORY.truncated_from_start(350), log_start_offset=350)
    assert named(decide_deletions(forgetful)) == [
        (200, 320, "log start"),
        (0, 99, "unreferenced leader epoch"),
        (100, 199, "unreferenced leader epoch"),
    ]


def test_a_cut_epoch_cache_alone_is_no_reason_even_if_nobody_remembered_the_rest() -> None:
    """A broker deletes what is wholly of epochs before its cache; an archive asks its own log start as well."""
    outcome = decide_deletions(retention_input(ARCHIVED, LeaderEpochs.of([(4, 350)]), log_start_offset=0))
    assert outcome.decisions == ()


def test_a_shrunken_log_end_makes_segments_foreign_and_deletes_nothing() -> None:
    outcome = decide_deletions(retention_input(ARCHIVED, HISTORY, log_end_offset=0, retention_ms=0, retention_bytes=0))
    assert outcome.decisions == ()


def test_our_own_retention_deletes_all_the_same_when_the_broker_has_nothing_left() -> None:
    history = merged(HISTORY, LeaderEpochs.of([(4, 5_000)]), 5_000).history
    given = retention_input(ARCHIVED, history, retention_ms=25, local_only_bytes=None)
    outcome = decide_deletions(given)
    assert named(outcome) == [(0, 99, "time"), (100, 199, "time")]
    assert outcome.log_start_offset == 200
    by_size = replace(given, retention_ms=None, retention_bytes=10)
    assert named(decide_deletions(by_size)) == [(0, 99, "size"), (100, 199, "size"), (200, 320, "size")]


def test_a_recorded_truncation_deletes_by_our_log_start() -> None:
    outcome = decide_deletions(retention_input(ARCHIVED, HISTORY, log_start_offset=321))
    assert named(outcome) == [
        (200, 320, "log start"),
        (0, 99, "unreferenced leader epoch"),
        (100, 199, "unreferenced leader epoch"),
    ]
