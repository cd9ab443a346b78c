"""Retention decisions equal those of a slow oracle, over random logs with leader changes, overlaps and failed copies;
and what must hold whatever the rules are."""

from dataclasses import replace
from itertools import pairwise
from typing import Final

from hypothesis import event, given
from hypothesis import strategies as st

from include.tiering.expiration.rules import decide_deletions
from include.tiering.model.histories import Lineage
from include.tiering.model.leader_epochs import LeaderEpochs, merged
from include.tiering.model.retention import DeletionReason, RetentionInput
from include.tiering.model.segments import RemoteLogSegmentMetadata
from tests.doubles.epoch_worlds import MOST_OFFSET, EpochWorld, cut_views, epoch_worlds
from tests.doubles.segments import DELETE_FINISHED, DELETE_STARTED, FINISHED, STARTED, segment_of
from tests.doubles.slow_expiration import PARTITION, SlowExpiration, after

NOW_MS: Final = 100
BY_LIMIT: Final = (DeletionReason.TIME, DeletionReason.SIZE)


@st.composite
def segments_of(draw: st.DrawFn, history: LeaderEpochs, number: int) -> RemoteLogSegmentMetadata:
    """Any part of a history, in any state but mostly FINISHED, with timestamps before and after now, or without."""
    start_offset = draw(st.integers(0, MOST_OFFSET))
    end_offset = start_offset + draw(st.integers(0, 12))
    state = draw(st.sampled_from([FINISHED] * 6 + [STARTED] * 2 + [DELETE_STARTED, DELETE_FINISHED]))
    epochs = dict(history.range(start_offset, end_offset + 1))
    segment = segment_of(
        PARTITION, number, start_offset, end_offset, epochs, size_bytes=draw(st.integers(0, 9)), state=state
    )
    return replace(
        segment,
        max_timestamp_ms=draw(st.one_of(st.just(start_offset), st.integers(-1, NOW_MS + 10))),
        event_timestamp_ms=draw(st.integers(0, NOW_MS + 10)),
    )


@st.composite
def rolled_row(draw: st.DrawFn, history: LeaderEpochs) -> list[RemoteLogSegmentMetadata]:
    """Segments as a leader rolled them: one behind the other, FINISHED, older ones before younger ones."""
    bounds = sorted(draw(st.sets(st.integers(0, MOST_OFFSET), min_size=2, max_size=7)))
    return [
        replace(
            segment_of(
                PARTITION,
                500 + start,
                start,
                end - 1,
                dict(history.range(start, end)),
                size_bytes=draw(st.integers(1, 9)),
                state=FINISHED,
            ),
            max_timestamp_ms=end,
        )
        for start, end in pairwise(bounds)
    ]


@st.composite
def inputs(draw: st.DrawFn) -> RetentionInput:
    """A partition whose log may have changed its leader cleanly or not, decided by a lineage that may be incomplete."""
    world = draw(epoch_worlds())
    segments = draw(rolled_row(world.main))
    for number in range(draw(st.integers(0, 5))):
        history = world.branch if draw(st.booleans()) else world.main
        segments.append(draw(segments_of(history, number)))
    lineage = draw(lineages(world))
    ids = [segment.remote_log_segment_id for segment in segments]
    begun = [segment.remote_log_segment_id for segment in segments if segment.state is DELETE_STARTED]
    return RetentionInput(
        PARTITION,
        tuple(draw(st.permutations(segments))),
        lineage,
        log_start_offset=draw(st.sampled_from([0, 0]) | st.integers(0, MOST_OFFSET + 5)),
        now_ms=NOW_MS,
        log_end_offset=draw(st.sampled_from([None, None, MOST_OFFSET + 20]) | st.integers(0, MOST_OFFSET + 20)),
        local_only_bytes=draw(st.none() | st.integers(0, 30)),
        retention_ms=draw(st.none() | st.integers(NOW_MS // 2, NOW_MS + 5)),
        retention_bytes=draw(st.none() | st.integers(0, 40)),
        abandoned_copy_expiry_ms=draw(st.integers(0, NOW_MS)),
        under_live_work=frozenset(draw(st.lists(st.sampled_from(ids), max_size=1))),
        superseded_at_ms={one: draw(st.integers(0, NOW_MS + 5)) for one in begun if draw(st.booleans())},
        superseded_hold_ms=draw(st.integers(0, NOW_MS)),
        left=frozenset(draw(st.lists(st.sampled_from(ids), max_size=2))),
    )


@st.composite
def lineages(draw: st.DrawFn, world: EpochWorld) -> LeaderEpochs:
    """Mostly what was merged over time; at times what is left of it, or nothing."""
    whole = merged(world.branch, world.main, 0).history
    cut, _ = draw(cut_views(world.main))
    return draw(st.sampled_from([whole, whole, whole, world.main, cut, LeaderEpochs()]))


@given(inputs())
def test_decisions_equal_the_slow_oracle(given_: RetentionInput) -> None:
    slow = SlowExpiration(given_)
    outcome = decide_deletions(given_)
    for reason in {str(one.reason) for one in outcome.decisions}:
        event(reason)
    assert [(one.segment, str(one.reason)) for one in outcome.decisions] == slow.deletions
    assert outcome.log_start_offset == slow.log_start_offset


@given(inputs())
def test_what_is_superseded_is_held_for_its_time_and_neither_longer_nor_shorter(given_: RetentionInput) -> None:
    outcome = decide_deletions(given_)
    named = {one.segment.remote_log_segment_id for one in outcome.decisions}
    over = {one for one, since_ms in given_.superseded_at_ms.items() if since_ms + given_.superseded_hold_ms <= NOW_MS}
    assert {one.remote_log_segment_id for one in outcome.held} == set(given_.superseded_at_ms) - over
    assert named & set(given_.superseded_at_ms) == over - given_.under_live_work


@given(inputs())
def test_deciding_again_after_it_was_done_gives_nothing(given_: RetentionInput) -> None:
    outcome = decide_deletions(given_)
    again = decide_deletions(after(given_, outcome))
    assert again.decisions == ()
    assert again.log_start_offset == outcome.log_start_offset


@given(inputs())
def test_the_log_start_rises_to_behind_a_named_segment_or_stays(given_: RetentionInput) -> None:
    outcome = decide_deletions(given_)
    ends = {one.segment.end_offset + 1 for one in outcome.decisions if one.reason in BY_LIMIT}
    assert outcome.log_start_offset in ends | {given_.log_start_offset}
    assert outcome.log_start_offset >= given_.log_start_offset
    finished = (one.segment for one in outcome.decisions if one.reason in BY_LIMIT and one.segment.is_finished)
    assert all(segment.end_offset < outcome.log_start_offset for segment in finished)


@given(inputs())
def test_nobody_is_named_twice_and_nobody_who_is_worked_on(given_: RetentionInput) -> None:
    ids = [one.segment.remote_log_segment_id for one in decide_deletions(given_).decisions]
    assert len(set(ids)) == len(ids)
    assert not given_.under_live_work & set(ids)


@given(inputs())
def test_limits_name_nothing_behind_the_first_valid_segment_that_stays(given_: RetentionInput) -> None:
    """Valid: within the lineage, of the history that is followed, and not passed by the log start in the meantime."""
    outcome = decide_deletions(given_)
    named = {one.segment.remote_log_segment_id for one in outcome.decisions}
    lineage = Lineage.of(given_.lineage, log_start_offset=given_.log_start_offset, log_end_offset=given_.log_end_offset)
    kept = [
        one
        for one in given_.segments
        if one.remote_log_segment_id not in named
        and one.state in (FINISHED, STARTED)
        and one.end_offset >= outcome.log_start_offset
        and lineage.holds(one)
        and one.remote_log_segment_id not in given_.left
    ]
    first_kept = min((one.start_offset for one in kept), default=None)
    by_limit = [one.segment.start_offset for one in outcome.decisions if one.reason in BY_LIMIT]
    assert first_kept is None or all(start <= first_kept for start in by_limit)


@given(inputs(), st.integers(0, 40))
def test_size_ends_less_than_one_segment_and_what_it_covers_above_the_limit_and_never_below_it(
    given_: RetentionInput, retention_bytes: int
) -> None:
    """Where no copy is under way or left behind, which would stop the scan."""
    copied = tuple(one for one in given_.segments if one.state is not STARTED)
    sized = replace(
        given_, segments=copied, under_live_work=frozenset(), retention_ms=None, retention_bytes=retention_bytes
    )
    outcome = decide_deletions(sized)
    later = after(sized, outcome)
    left = SlowExpiration(later)
    excess = left.total_bytes() - retention_bytes
    if (first := left.first_within()) is not None:
        covered = [one for one in later.segments if one.is_finished and one.end_offset <= first.end_offset]
        assert excess < max(1, sum(one.segment_size_bytes for one in covered))
    if any(one.reason is DeletionReason.SIZE for one in outcome.decisions):
        assert excess >= 0


@given(inputs(), st.data())
def test_what_a_broker_forgets_changes_nothing(given_: RetentionInput, data: st.DataObject) -> None:
    seen, log_start = data.draw(cut_views(given_.lineage))
    remembered = merged(given_.lineage, seen, log_start)
    assert remembered.history == given_.lineage
    assert decide_deletions(replace(given_, lineage=remembered.history)) == decide_deletions(given_)


@given(inputs(), epoch_worlds())
def test_without_limits_only_our_own_log_start_deletes_whatever_the_history_says(
    given_: RetentionInput, world: EpochWorld
) -> None:
    unlimited = replace(given_, lineage=world.main, retention_ms=None, retention_bytes=None)
    outcome = decide_deletions(unlimited)
    assert outcome.log_start_offset == given_.log_start_offset
    finished = [one.segment for one in outcome.decisions if one.segment.is_finished]
    assert all(segment.end_offset < given_.log_start_offset for segment in finished)


@given(inputs())
def test_unknown_local_bytes_never_delete_more_by_size(given_: RetentionInput) -> None:
    alone = replace(given_, retention_ms=None)
    unknown = decide_deletions(replace(alone, local_only_bytes=None))
    known = decide_deletions(alone)
    assert {one.segment.remote_log_segment_id for one in unknown.decisions} <= {
        one.segment.remote_log_segment_id for one in known.decisions
    }
