"""The life of many segments against a plain model: any order of changes, by the right and by the wrong batch."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, precondition, rule
from sqlalchemy import func, select

from include.tiering.database.schema import partitions
from include.tiering.errors import IllegalTransitionError, LeaseLostError, StateConflictError, TieringError
from include.tiering.model.histories import not_skipped
from include.tiering.model.ownership import Fence, TopicOwner
from include.tiering.model.segments import RemoteLogSegmentId, RemoteLogSegmentMetadata, RemoteLogSegmentState, Verdict
from include.tiering.model.sizes import partition_size
from include.tiering.segments.sql import SqlRemoteLogMetadata
from include.tiering.segments.sql_failed_copies import SqlFailedCopies
from include.tiering.segments.sql_topics import SqlTopicRegistry
from tests.doubles.databases import empty, memory_engine
from tests.doubles.present import present
from tests.doubles.segments import (
    CLUSTER_ID,
    DELETE_FINISHED,
    DELETE_STARTED,
    FINISHED,
    STARTED,
    lease_of,
    partition_of,
    segment_of,
    update_of,
)

PARTITION = partition_of("orders", 0)
LAST_OFFSET = 40
NEXT = {STARTED: FINISHED, FINISHED: DELETE_STARTED, DELETE_STARTED: DELETE_FINISHED}

states = st.sampled_from(RemoteLogSegmentState)
sizes = st.integers(0, 2**31 - 1)


@st.composite
def shapes(draw: st.DrawFn, lowest_end: int = 0) -> tuple[int, int, dict[int, int]]:
    """Start and end offset (inclusive) and up to three leader epochs, some of them without a record."""
    end = draw(st.integers(lowest_end, lowest_end + LAST_OFFSET))
    start = draw(st.integers(max(0, end - LAST_OFFSET), end))
    epochs = sorted(draw(st.sets(st.integers(0, 4), min_size=1, max_size=3)))
    later = sorted(draw(st.lists(st.integers(start, end), min_size=len(epochs) - 1, max_size=len(epochs) - 1)))
    return start, end, dict(zip(epochs, [start, *later], strict=True))


@dataclass
class Attempt:
    """What the model remembers of one attempt."""

    arrival: int
    metadata: RemoteLogSegmentMetadata
    verdict: Verdict = Verdict.NONE
    superseded: bool = False
    given_up: bool = False

    @property
    def segment_id(self) -> RemoteLogSegmentId:
        return self.metadata.remote_log_segment_id

    @property
    def is_failed(self) -> bool:
        return self.metadata.is_finished and self.verdict is Verdict.FAILED

    @property
    def stops(self) -> bool:
        return self.is_failed and not self.given_up

    def holds(self, epoch: int, offset: int) -> bool:
        starts = dict(self.metadata.segment_leader_epochs)
        return epoch in starts and starts[epoch] <= offset <= present(self.metadata.end_offset_of_epoch(epoch))

    def become(self, state: RemoteLogSegmentState) -> None:
        self.metadata = self.metadata.with_update(update_of(self.metadata, state))


@dataclass
class Model:
    """One partition, as plainly as it can be said."""

    attempts: list[Attempt] = field(default_factory=list)
    highest: int | None = None
    highest_of_epoch: dict[int, int] = field(default_factory=dict)

    @property
    def failed(self) -> list[Attempt]:
        return [one for one in self.attempts if one.is_failed]

    @property
    def is_stopped(self) -> bool:
        return any(one.stops for one in self.attempts)

    def refusal(
        self, attempt: Attempt, expected: RemoteLogSegmentState, target: RemoteLogSegmentState
    ) -> type[TieringError] | None:
        state = attempt.metadata.state
        if not expected.may_become(target):
            return IllegalTransitionError
        if state is target and expected is not target:
            return None
        if state is not expected:
            return StateConflictError
        if (expected, target) == (STARTED, FINISHED):
            behind = self.highest is not None and attempt.metadata.end_offset <= self.highest
            return StateConflictError if behind or self.is_stopped else None
        return None

    def finished(self, metadata: RemoteLogSegmentMetadata) -> None:
        self.highest = metadata.end_offset if self.highest is None else max(self.highest, metadata.end_offset)
        for epoch, start in metadata.segment_leader_epochs:
            end = present(metadata.end_offset_of_epoch(epoch))
            if end >= start:
                self.highest_of_epoch[epoch] = max(end, self.highest_of_epoch.get(epoch, end))

    def answer(self, epoch: int, offset: int) -> RemoteLogSegmentId | None:
        holding = [one for one in self.attempts if one.metadata.is_finished and one.holds(epoch, offset)]
        newest = max(holding, key=lambda one: one.metadata.end_offset, default=None)
        return None if newest is None else newest.segment_id

    def listed(self) -> list[Attempt]:
        visible = [one for one in self.attempts if one.metadata.state is not DELETE_FINISHED]
        return sorted(visible, key=_list_order)


def _list_order(attempt: Attempt) -> tuple[int, int, int, int]:
    finished = attempt.metadata.is_finished
    end_first = -attempt.metadata.end_offset if finished else 0
    return attempt.metadata.start_offset, 0 if finished else 1, end_first, attempt.arrival


class SegmentLifeCycle(RuleBasedStateMachine):
    """Each rule does what a batch may try, and expects what the model says."""

    attempts: Bundle[Attempt] = Bundle("attempts")
    lost_fences: Bundle[Fence] = Bundle("lost_fences")

    @initialize()
    def begin(self) -> None:
        empty(memory_engine())
        self.metadata = SqlRemoteLogMetadata(memory_engine(), CLUSTER_ID)
        self.failed_copies = SqlFailedCopies(memory_engine(), CLUSTER_ID)
        SqlTopicRegistry(memory_engine(), CLUSTER_ID).set_owner(
            PARTITION.topic_id, PARTITION.topic, TopicOwner.PLATFORM, expected=TopicOwner.NONE, author="test"
        )
        self.model = Model()
        self.fence = self._claim()

    @rule(target=lost_fences)
    def another_batch_claims(self) -> Fence:
        lost, self.fence = self.fence, self._claim()
        assert self.fence.token > lost.token
        return lost

    @rule(target=attempts, shape=shapes(), size_bytes=sizes)
    def add(self, shape: tuple[int, int, dict[int, int]], size_bytes: int) -> Attempt:
        return self._add(*shape, size_bytes)

    @precondition(lambda self: not self.model.is_stopped)
    @rule(target=attempts, data=st.data(), size_bytes=sizes)
    def copy_the_next(self, data: st.DataObject, size_bytes: int) -> Attempt:
        lowest_end = 0 if self.model.highest is None else self.model.highest + 1
        attempt = self._add(*data.draw(shapes(lowest_end)), size_bytes)
        self._change(attempt, STARTED, FINISHED)
        assert attempt.metadata.is_finished
        return attempt

    @rule(attempt=attempts, expected=states, wanted=states)
    def change(self, attempt: Attempt, expected: RemoteLogSegmentState, wanted: RemoteLogSegmentState) -> None:
        self._change(attempt, expected, wanted)

    @rule(attempt=attempts)
    def advance(self, attempt: Attempt) -> None:
        state = attempt.metadata.state
        self._change(attempt, state, NEXT.get(state, state))

    @precondition(lambda self: self.model.attempts)
    @rule(data=st.data(), wanted=st.sampled_from([DELETE_STARTED, DELETE_FINISHED]))
    def delete_many(self, data: st.DataObject, wanted: RemoteLogSegmentState) -> None:
        """Each is given in a state in which it may be: where it is another one by now, nothing happens to it."""
        picked = data.draw(st.lists(st.sampled_from(self.model.attempts), unique_by=id))
        possible = st.sampled_from([state for state in RemoteLogSegmentState if state.may_become(wanted)])
        seen = [replace(one.metadata, state=data.draw(possible)) for one in picked]
        advanced = self.metadata.advance_deletion(seen, wanted, event_timestamp_ms=5, fence=self.fence)
        going = [
            one
            for one, was in zip(picked, seen, strict=True)
            if one.metadata.state in (was.state, wanted) and not (one.superseded and was.is_finished)
        ]
        assert [one.remote_log_segment_id for one in advanced] == [one.segment_id for one in going]
        for one in going:
            if one.metadata.state is not wanted:
                one.metadata = replace(one.metadata, state=wanted, event_timestamp_ms=5)

    @rule(attempt=attempts, verdict=st.sampled_from(Verdict))
    def record_verdict_of(self, attempt: Attempt, verdict: Verdict) -> None:
        self.metadata.record_verdict(attempt.segment_id, verdict)
        attempt.verdict = verdict
        attempt.given_up &= verdict is not Verdict.PASSED

    @precondition(lambda self: self.model.failed)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        """What of its offsets no decision covered is covered then."""
        lost = data.draw(st.sampled_from(self.model.failed))
        before = self.metadata.skipped_offsets(PARTITION)
        decisions = self.failed_copies.give_up(lost.segment_id, reason="lost", author="test")
        span = lost.metadata.start_offset, lost.metadata.end_offset
        new = () if lost.given_up else not_skipped(*span, before)
        assert tuple(one.offsets for one in decisions) == new
        lost.given_up = True

    @precondition(lambda self: self.model.failed)
    @rule(target=attempts, size_bytes=sizes)
    def supersede(self, size_bytes: int) -> Attempt:
        old = self.model.failed[-1]
        shape = old.metadata.start_offset, old.metadata.end_offset, dict(old.metadata.segment_leader_epochs)
        new = self._add(*shape, size_bytes)
        self.metadata.update_segment(
            update_of(new.metadata, FINISHED), expected=STARTED, fence=self.fence, supersedes=old.segment_id
        )
        old.become(DELETE_STARTED)
        old.superseded = True
        new.become(FINISHED)
        self.model.finished(new.metadata)
        return new

    @rule(attempt=attempts, fence=lost_fences, wanted=states)
    def a_late_batch_changes_nothing(self, attempt: Attempt, fence: Fence, wanted: RemoteLogSegmentState) -> None:
        state = attempt.metadata.state
        target = wanted if state.may_become(wanted) else state
        with pytest.raises(LeaseLostError):
            self.metadata.update_segment(update_of(attempt.metadata, target), expected=state, fence=fence)
        with pytest.raises(LeaseLostError):
            self.metadata.add_segment(segment_of(PARTITION, 10**6, 0, 1), fence=fence)

    @rule(epoch=st.integers(0, 5), offset=st.integers(0, 3 * LAST_OFFSET))
    def look_up(self, epoch: int, offset: int) -> None:
        found = self.metadata.segment_for_offset(PARTITION, epoch, offset)
        assert (None if found is None else found.remote_log_segment_id) == self.model.answer(epoch, offset)

    @rule(attempt=attempts)
    def look_up_the_edges(self, attempt: Attempt) -> None:
        for epoch, start in attempt.metadata.segment_leader_epochs:
            for offset in (start - 1, start, attempt.metadata.end_offset_of_epoch(epoch), attempt.metadata.end_offset):
                self.look_up(epoch, offset)

    @rule(epoch=st.integers(0, 5))
    def list_by_epoch(self, epoch: int) -> None:
        rows = self.metadata.list_segments(PARTITION, epoch)
        listed = [one.metadata for one in self.model.listed() if epoch in dict(one.metadata.segment_leader_epochs)]
        assert [row.metadata for row in rows] == listed
        assert self.metadata.highest_offset_for_epoch(PARTITION, epoch) == self.model.highest_of_epoch.get(epoch)

    @invariant()
    def rows_and_counters_agree_with_the_model(self) -> None:
        listed = self.model.listed()
        rows = self.metadata.list_segments(PARTITION)
        assert [(row.metadata, row.verdict) for row in rows] == [(one.metadata, one.verdict) for one in listed]
        recounted = partition_size(PARTITION, [one.metadata for one in listed])
        assert list(self.metadata.partition_sizes()) == ([recounted] if recounted.segments else [])
        with memory_engine().connect() as connection:
            by_triggers = connection.execute(select(func.sum(partitions.c.finished_bytes))).scalar_one()
        assert (by_triggers or 0) == recounted.size_bytes
        assert self.metadata.highest_copied_offset(PARTITION) == self.model.highest
        assert (self.metadata.stopped_reason(PARTITION) is not None) is self.model.is_stopped
        given_up = {one.segment_id: one.given_up for one in self.failed_copies.all()}
        assert given_up == {one.segment_id: one.given_up for one in self.model.failed}

    def _claim(self) -> Fence:
        return lease_of(memory_engine(), PARTITION, lease_ms=0).fence

    def _add(self, start: int, end: int, epochs: dict[int, int], size_bytes: int) -> Attempt:
        arrival = len(self.model.attempts)
        attempt = Attempt(arrival, segment_of(PARTITION, arrival, start, end, epochs, size_bytes=size_bytes))
        self.metadata.add_segment(attempt.metadata, fence=self.fence)
        self.model.attempts.append(attempt)
        return attempt

    def _change(self, attempt: Attempt, expected: RemoteLogSegmentState, target: RemoteLogSegmentState) -> None:
        update, state = update_of(attempt.metadata, target), attempt.metadata.state
        refusal = self.model.refusal(attempt, expected, target)
        if refusal is not None:
            with pytest.raises(refusal):
                self.metadata.update_segment(update, expected=expected, fence=self.fence)
            return
        updated = self.metadata.update_segment(update, expected=expected, fence=self.fence)
        if state is expected:
            attempt.become(target)
            if target is FINISHED and state is not FINISHED:
                self.model.finished(attempt.metadata)
        assert updated == attempt.metadata


TestSegmentLifeCycle = SegmentLifeCycle.TestCase
TestSegmentLifeCycle.settings = settings(max_examples=30, stateful_step_count=30)
