"""Segment metadata: what is refused at birth, what an update may change."""

from dataclasses import replace
from typing import Any

import pytest

from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState
from tests.doubles.segments import FINISHED, STARTED, partition_of, segment_of, update_of

PARTITION = partition_of()
SEGMENT = segment_of(PARTITION, 1, 10, 99, {1: 10, 2: 50, 3: 50, 4: 99})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"start_offset": -1}, "-1..99"),
        ({"end_offset": 9}, "10..9"),
        ({"segment_size_bytes": -1}, "-1"),
        ({"segment_size_bytes": 2**31}, "2147483648"),
        ({"segment_leader_epochs": LeaderEpochs()}, "at least one"),
        ({"segment_leader_epochs": LeaderEpochs.of([(0, 10), (1, 100)])}, "after end 99"),
    ],
)
def test_refused_at_birth(change: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        replace(SEGMENT, **change)


def test_one_offset_is_a_segment():
    assert replace(SEGMENT, start_offset=99, segment_leader_epochs=LeaderEpochs.of([(4, 99)])).end_offset == 99


def test_end_offset_of_each_epoch_is_inclusive():
    assert [SEGMENT.end_offset_of_epoch(epoch) for epoch in range(6)] == [None, 49, 49, 98, 99, None]


def test_an_update_changes_four_things():
    change = RemoteLogSegmentMetadataUpdate(
        SEGMENT.remote_log_segment_id, FINISHED, event_timestamp_ms=5, broker_id=9, custom_metadata=b"x"
    )
    updated = SEGMENT.with_update(change)
    assert updated == replace(SEGMENT, state=FINISHED, event_timestamp_ms=5, broker_id=9, custom_metadata=b"x")
    assert updated.with_update(replace(change, custom_metadata=None)).custom_metadata is None
    assert updated.is_finished
    assert not SEGMENT.is_finished


@pytest.mark.parametrize("source", list(RemoteLogSegmentState))
@pytest.mark.parametrize("target", list(RemoteLogSegmentState))
def test_an_update_follows_the_state_machine(source: RemoteLogSegmentState, target: RemoteLogSegmentState):
    segment = replace(SEGMENT, state=source)
    if source.may_become(target):
        assert segment.with_update(update_of(SEGMENT, target)).state is target
    else:
        with pytest.raises(ValueError, match=f"{source.name} may not become {target.name}"):
            segment.with_update(update_of(SEGMENT, target))


def test_an_update_of_another_segment_is_refused():
    other = segment_of(PARTITION, 2, 10, 99)
    with pytest.raises(ValueError, match="applied to"):
        SEGMENT.with_update(update_of(other, STARTED))
