"""What expires, rule by rule."""

from dataclasses import replace
from typing import Any

import pytest

from include.tiering.expiration.rules import decide_deletions
from include.tiering.model.leader_epochs import LeaderEpochs, merged
from include.tiering.model.retention import DeletionReason, RetentionInput
from tests.doubles.segments import DELETE_FINISHED, DELETE_STARTED, STARTED, partition_of, segment_of
from tests.doubles.slow_expiration import NOW_MS, ONE_EPOCH, PARTITION, after, named, remote_segment, retention_input
from tests.doubles.slow_expiration import row_of_segments as row

DAY_MS = 86_400_000


def test_unset_retention_keeps_for_ever() -> None:
    outcome = decide_deletions(retention_input(row(5), local_only_bytes=10**15))
    assert (outcome.decisions, outcome.log_start_offset, outcome.unknowns) == ((), 0, ())


def test_time_goes_up_to_the_first_segment_that_is_young_enough() -> None:
    outcome = decide_deletions(retention_input(row(5), retention_ms=2))
    assert named(outcome) == [(0, 9, "time"), (10, 19, "time"), (20, 29, "time")]
    assert outcome.log_start_offset == 30
    assert outcome.decisions[0].text == f"time: timestamp_ms {NOW_MS - 5}, cut_off_ms {NOW_MS - 2}"


def test_an_old_segment_behind_a_young_one_waits() -> None:
    segments = (remote_segment(1, 0, 9, age_ms=1), remote_segment(2, 10, 19, age_ms=DAY_MS))
    assert not decide_deletions(retention_input(segments, retention_ms=10)).decisions


def test_size_stops_above_the_limit_by_less_than_one_segment() -> None:
    outcome = decide_deletions(retention_input(row(5), retention_bytes=25, local_only_bytes=3))
    assert named(outcome) == [(0, 9, "size"), (10, 19, "size")]
    assert outcome.log_start_offset == 20
    assert [one.text for one in outcome.decisions] == [
        "size: excess_bytes 28, size_bytes 10",
        "size: excess_bytes 18, size_bytes 10",
    ]


@pytest.mark.parametrize(("retention_bytes", "count"), [(50, 0), (49, 0), (41, 0), (40, 1), (1, 4), (0, 5)])
def test_a_segment_larger_than_the_excess_stays(retention_bytes: int, count: int) -> None:
    assert len(decide_deletions(retention_input(row(5), retention_bytes=retention_bytes)).decisions) == count


def test_what_time_takes_counts_for_size() -> None:
    outcome = decide_deletions(retention_input(row(5), retention_ms=3, retention_bytes=20))
    assert [reason for _, _, reason in named(outcome)] == ["time", "time", "size"]


def test_local_bytes_count_once_and_unknown_ones_delete_less() -> None:
    known = decide_deletions(retention_input(row(5), retention_bytes=40, local_only_bytes=10))
    unknown = decide_deletions(retention_input(row(5), retention_bytes=40, local_only_bytes=None))
    assert (len(known.decisions), len(unknown.decisions)) == (2, 1)
    assert known.unknowns == ()
    assert unknown.unknowns == ("local-only bytes are unknown: they count as 0",)


def test_a_raised_log_start_takes_what_lies_wholly_below_it() -> None:
    outcome = decide_deletions(retention_input(row(4), log_start_offset=25))
    assert named(outcome) == [(0, 9, "log start"), (10, 19, "log start")]
    assert outcome.log_start_offset == 25
    assert outcome.decisions[0].text == "log start: end_offset 9, log_start_offset 25"


def test_a_log_start_takes_a_segment_that_begins_inside_one_that_stays() -> None:
    """A copy that failed, and is kept by nothing, beside a longer one of the same start offset."""
    segments = (remote_segment(0, 0, 3), remote_segment(1, 0, 2), remote_segment(2, 4, 9))
    outcome = decide_deletions(retention_input(segments, log_start_offset=3))
    assert named(outcome) == [(0, 2, "log start")]
    assert outcome.log_start_offset == 3
    live = frozenset({segments[0].remote_log_segment_id})
    assert named(decide_deletions(retention_input(segments, log_start_offset=3, under_live_work=live))) == []


def test_what_the_log_start_takes_is_no_reason_to_delete_more_by_size() -> None:
    outcome = decide_deletions(retention_input(row(4), log_start_offset=20, retention_bytes=20))
    assert named(outcome) == [(0, 9, "log start"), (10, 19, "log start")]


def test_segments_of_epochs_before_that_of_the_log_start_go_as_unreferenced() -> None:
    lineage = LeaderEpochs.of([(0, 0), (1, 10), (2, 20)])
    segments = tuple(remote_segment(number, 10 * number, 10 * number + 9, {number: 10 * number}) for number in range(3))
    outcome = decide_deletions(retention_input(segments, lineage, log_start_offset=25))
    assert named(outcome) == [(0, 9, "unreferenced leader epoch"), (10, 19, "unreferenced leader epoch")]
    assert outcome.decisions[1].text == "unreferenced leader epoch: last_epoch 1, first_epoch 2, log_start_offset 25"


def test_unfinished_deletes_come_first_wherever_they_are() -> None:
    segments = (
        *row(3),
        remote_segment(7, 10, 19, state=DELETE_STARTED),
        remote_segment(8, 90, 99, {5: 90}, state=DELETE_STARTED),
        remote_segment(9, 30, 39, state=DELETE_FINISHED),
    )
    outcome = decide_deletions(retention_input(segments, retention_ms=2))
    assert named(outcome) == [(10, 19, "unfinished delete"), (90, 99, "unfinished delete"), (0, 9, "time")]
    assert outcome.log_start_offset == 10


def test_a_copy_that_nobody_works_on_is_abandoned_after_its_time() -> None:
    young = remote_segment(1, 30, 39, state=STARTED, event_age_ms=DAY_MS - 1)
    old = remote_segment(2, 40, 49, state=STARTED, event_age_ms=DAY_MS)
    worked_on = remote_segment(3, 50, 59, state=STARTED, event_age_ms=9 * DAY_MS)
    live = frozenset({worked_on.remote_log_segment_id})
    outcome = decide_deletions(retention_input((*row(3), young, old, worked_on), under_live_work=live))
    assert named(outcome) == [(40, 49, "abandoned copy")]
    assert outcome.decisions[0].text == f"abandoned copy: age_ms {DAY_MS}, expiry_ms {DAY_MS}"
    assert outcome.log_start_offset == 0


def test_a_copy_from_the_future_is_not_abandoned() -> None:
    segment = remote_segment(1, 0, 9, state=STARTED, event_age_ms=-DAY_MS)
    assert not decide_deletions(retention_input((segment,), abandoned_copy_expiry_ms=0)).decisions


def test_the_scan_stops_at_a_segment_that_is_worked_on() -> None:
    segments = row(4)
    live = frozenset({segments[1].remote_log_segment_id})
    assert named(decide_deletions(retention_input(segments, retention_ms=0, under_live_work=live))) == [(0, 9, "time")]


def test_a_delete_that_is_worked_on_is_left_to_its_worker_and_stops_nothing() -> None:
    deleting = remote_segment(9, 0, 9, state=DELETE_STARTED)
    live = frozenset({deleting.remote_log_segment_id})
    outcome = decide_deletions(retention_input((deleting, *row(2)), retention_ms=0, under_live_work=live))
    assert named(outcome) == [(0, 9, "time"), (10, 19, "time")]


def test_a_begun_copy_stops_the_scan_until_it_is_abandoned() -> None:
    abandoned = remote_segment(9, 15, 24, state=STARTED, size_bytes=1)
    given = retention_input((*row(4), abandoned), retention_bytes=10)
    assert named(decide_deletions(given)) == [(0, 9, "size"), (10, 19, "size")]
    a_day_later = replace(given, now_ms=NOW_MS + DAY_MS)
    assert named(decide_deletions(a_day_later)) == [
        (15, 24, "abandoned copy"),
        (0, 9, "size"),
        (10, 19, "size"),
        (20, 29, "size"),
    ]


def test_a_begun_copy_past_retention_goes_without_moving_the_log_start() -> None:
    abandoned = remote_segment(9, 0, 49, state=STARTED, age_ms=DAY_MS)
    outcome = decide_deletions(retention_input((abandoned, remote_segment(1, 10, 19)), retention_ms=1000))
    assert named(outcome) == [(0, 49, "time")]
    assert outcome.log_start_offset == 0


def test_a_begun_copy_past_retention_is_no_part_of_what_size_has_to_free() -> None:
    abandoned = remote_segment(9, 0, 4, state=STARTED, age_ms=DAY_MS, size_bytes=1_000)
    segments = (abandoned, remote_segment(1, 5, 9), remote_segment(2, 10, 19))
    outcome = decide_deletions(retention_input(segments, retention_ms=1000, retention_bytes=10))
    assert named(outcome) == [(0, 4, "time"), (5, 9, "size")]


def test_foreign_lineage_is_stepped_over_and_never_counts() -> None:
    lineage = LeaderEpochs.of([(0, 0), (2, 10)])
    cut_off = remote_segment(9, 5, 19, {0: 5, 1: 12}, size_bytes=1_000, age_ms=DAY_MS)
    held = (remote_segment(1, 0, 9, age_ms=3), remote_segment(2, 10, 19, {2: 10}), remote_segment(3, 20, 29, {2: 20}))
    given = retention_input((*held, cut_off), lineage, retention_bytes=20)
    assert named(decide_deletions(given)) == [(0, 9, "size")]
    assert named(decide_deletions(replace(given, retention_bytes=10))) == [
        (0, 9, "size"),
        (10, 19, "size"),
        (5, 19, "unreferenced leader epoch"),
    ]


def test_foreign_lineage_stays_while_the_log_start_has_not_passed_it() -> None:
    lineage = LeaderEpochs.of([(0, 0), (2, 10)])
    cut_off = remote_segment(9, 0, 99, {0: 0, 1: 12}, age_ms=DAY_MS)
    segments = (cut_off, remote_segment(1, 0, 9, age_ms=3), remote_segment(2, 10, 19, {2: 10}, age_ms=3))
    outcome = decide_deletions(retention_input(segments, lineage, retention_ms=2))
    assert named(outcome) == [(0, 9, "time"), (10, 19, "time")]


def test_an_epoch_without_records_stops_nothing() -> None:
    lineage = LeaderEpochs.of([(0, 0), (1, 10), (2, 10), (3, 20)])
    segments = (
        remote_segment(1, 0, 14, {0: 0, 1: 10, 2: 10}, age_ms=5),
        remote_segment(2, 15, 24, {2: 15, 3: 20}, age_ms=5),
    )
    assert named(decide_deletions(retention_input(segments, lineage, retention_ms=1))) == [
        (0, 14, "time"),
        (15, 24, "time"),
    ]


def test_what_ends_behind_the_log_end_is_foreign_and_an_unknown_log_end_asks_nothing() -> None:
    given = retention_input(row(2), retention_ms=0, log_end_offset=15)
    assert named(decide_deletions(given)) == [(0, 9, "time")]
    assert len(decide_deletions(replace(given, log_end_offset=None)).decisions) == 2


def test_without_any_epoch_nothing_goes_and_the_outcome_says_so() -> None:
    outcome = decide_deletions(retention_input(row(2), LeaderEpochs(), retention_ms=0, log_start_offset=100))
    assert not outcome.decisions
    assert outcome.unknowns == ("no leader epoch is known: whatever their age and size, segments stay: 2",)


def test_a_segment_without_timestamp_ages_from_its_copy() -> None:
    undated = replace(remote_segment(1, 0, 9, event_age_ms=50), max_timestamp_ms=-1)
    kept = decide_deletions(retention_input((undated,), retention_ms=50))
    assert not kept.decisions
    assert kept.unknowns == ("segments without a timestamp, whose age counts from the last event of their copy: 1",)
    assert named(decide_deletions(retention_input((undated,), retention_ms=49))) == [(0, 9, "time")]


def test_segments_are_visited_in_listing_order_whatever_order_they_come_in() -> None:
    longer, shorter = remote_segment(1, 0, 19, size_bytes=30), remote_segment(2, 0, 9)
    given = retention_input((shorter, longer), retention_bytes=0)
    assert named(decide_deletions(given)) == [(0, 19, "size"), (0, 9, "log start")]


@pytest.mark.parametrize(("retention_bytes", "goes"), [(10, ["size", "log start"]), (11, []), (20, [])])
def test_what_a_covering_copy_takes_along_counts_with_it(retention_bytes: int, goes: list[str]) -> None:
    covering, covered = remote_segment(1, 0, 19, size_bytes=30), remote_segment(2, 0, 9, size_bytes=10)
    given = retention_input(
        (covering, covered, remote_segment(3, 20, 29, size_bytes=10)), retention_bytes=retention_bytes
    )
    assert [reason for _, _, reason in named(decide_deletions(given))] == goes


@pytest.mark.parametrize("by", [{"retention_ms": 1}, {}])
def test_what_a_copy_takes_along_is_not_taken_once_more_by_size(by: dict[str, Any]) -> None:
    """The longer copy goes, by time or by size, and frees the bytes of the shorter one: that is no excess any more."""
    longer, shorter = (
        remote_segment(1, 0, 19, size_bytes=10, age_ms=5),
        remote_segment(2, 0, 9, size_bytes=10, age_ms=0),
    )
    given = retention_input((longer, shorter), retention_bytes=0, **by)
    assert [reason for _, _, reason in named(decide_deletions(given))] == ["time" if by else "size", "log start"]


def test_one_decision_is_as_many_runs_of_a_broker_as_it_takes() -> None:
    """The first segment raises the log start above the second, which held up the third."""
    segments = (
        remote_segment(1, 0, 29, age_ms=5),
        remote_segment(2, 10, 19, age_ms=0),
        remote_segment(3, 30, 39, age_ms=5),
    )
    given = retention_input(segments, retention_ms=1)
    outcome = decide_deletions(given)
    assert named(outcome) == [(0, 29, "time"), (10, 19, "log start"), (30, 39, "time")]
    assert not decide_deletions(after(given, outcome)).decisions


def test_a_deleted_topic_loses_everything_that_nobody_works_on() -> None:
    copying = remote_segment(8, 30, 39, state=STARTED)
    segments = (*row(2), remote_segment(9, 20, 29, {7: 20}), copying, remote_segment(5, 0, 9, state=DELETE_STARTED))
    live = frozenset({copying.remote_log_segment_id})
    outcome = decide_deletions(retention_input(segments, LeaderEpochs(), topic_deletion_due=True, under_live_work=live))
    assert named(outcome) == [
        (0, 9, "unfinished delete"),
        (0, 9, "topic deleted"),
        (10, 19, "topic deleted"),
        (20, 29, "topic deleted"),
    ]
    assert outcome.log_start_offset == 30
    assert outcome.decisions[1].text == "topic deleted: size_bytes 10"


@pytest.mark.parametrize("more", [{}, {"topic_deletion_due": True}, {"retention_ms": 0, "retention_bytes": 0}])
def test_what_is_superseded_is_held_whatever_else_goes_and_then_goes(more: dict[str, Any]) -> None:
    """By the time of the database; the event's time, of some worker's clock, says nothing."""
    old = remote_segment(7, 0, 9, state=DELETE_STARTED, age_ms=DAY_MS, event_age_ms=DAY_MS)
    other = remote_segment(8, 0, 9, state=DELETE_STARTED)
    at = {old.remote_log_segment_id: NOW_MS - 1_000}
    given = retention_input((*row(2), old, other), superseded_at_ms=at, superseded_hold_ms=1_001, **more)
    held = decide_deletions(given)
    assert held.held == (old,)
    assert named(held)[0] == (0, 9, "unfinished delete")
    assert old.remote_log_segment_id not in {one.segment.remote_log_segment_id for one in held.decisions}
    over = decide_deletions(replace(given, superseded_hold_ms=1_000))
    assert over.held == ()
    (gone,) = [one for one in over.decisions if one.reason is DeletionReason.SUPERSEDED]
    assert (gone.segment, gone.text) == (old, "superseded: age_ms 1000, hold_ms 1000")
    assert over.log_start_offset == held.log_start_offset


def test_what_is_superseded_changes_no_other_decision() -> None:
    old = remote_segment(7, 0, 9, state=DELETE_STARTED)
    without = decide_deletions(retention_input(row(5), retention_bytes=25))
    given = retention_input((*row(5), old), retention_bytes=25, superseded_at_ms={old.remote_log_segment_id: NOW_MS})
    assert decide_deletions(given).decisions == without.decisions


@pytest.mark.parametrize(
    "wrong",
    [
        {"retention_ms": -1},
        {"retention_bytes": -1},
        {"local_only_bytes": -1},
        {"abandoned_copy_expiry_ms": -1},
        {"superseded_hold_ms": -1},
    ],
)
def test_a_negative_number_is_refused(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(ValueError, match=f"orders-0: {name} is -1"):
        retention_input((), **wrong)


def test_a_segment_of_another_partition_is_refused() -> None:
    with pytest.raises(ValueError, match="is not a segment of orders-0"):
        RetentionInput(PARTITION, (segment_of(partition_of("orders", 1), 1, 0, 9),), ONE_EPOCH, 0, NOW_MS)


def test_every_reason_is_reached_by_a_rule() -> None:
    assert {str(reason) for reason in DeletionReason} == {
        "time",
        "size",
        "log start",
        "unreferenced leader epoch",
        "unfinished delete",
        "abandoned copy",
        "topic deleted",
        "superseded",
    }


def test_a_contradicting_history_deletes_nothing_of_the_archive() -> None:
    """A replica without data was elected: the log begins anew at 0, and everything archived is foreign."""
    history = merged(LeaderEpochs.of([(0, 0), (1, 20)]), LeaderEpochs.of([(9, 0)]), 0).history
    segments = (*row(2), remote_segment(3, 20, 29, {1: 20}, age_ms=DAY_MS))
    given = retention_input(segments, history, retention_ms=0, retention_bytes=0, log_end_offset=0)
    assert not decide_deletions(given).decisions
