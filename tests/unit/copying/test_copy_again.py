"""Copies that are made again, and forms in which they are made."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from include.tiering.copying.copy_segment import CopyStep
from include.tiering.copying.plan import HeldBack
from include.tiering.formats.aiven_manifest import CustomMetadataField, encode_custom_metadata
from include.tiering.kafka.log_dirs.contract import LogSegment, ReplicaId
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import RemoteLogSegmentId, RemoteLogSegmentState, Verdict
from include.tiering.remote_storage.layouts.aiven_form import AivenForm
from include.tiering.remote_storage.layouts.key_ring import KeyRing
from include.tiering.remote_storage.location import open_storage
from include.tiering.runs.contract import SegmentOutcome
from tests.doubles.deployment import Crash, World, crash, lose_the_answer
from tests.doubles.key_pairs import key_files
from tests.doubles.present import present
from tests.doubles.storage_decorators import Lies, LyingStorage

# A batch that copies a failed segment anew: source in memory, a real file store and a real SQLite database.

FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
THREE, FOUR = [(0, 9), (10, 19), (20, 29)], [(0, 9), (10, 19), (20, 29), (30, 39)]


@pytest.fixture
def orders(world: World) -> ReplicaId:
    """Three segments are copied, the second failed, and a fourth has rolled since."""
    orders = world.source.add("orders")
    world.plan("first")
    world.batch("first", "first/0")
    fail(world, orders, 10)
    grow(world, orders, 30)
    return orders


def grow(world: World, replica_id: ReplicaId, base: int) -> None:
    replica = world.source.replicas[replica_id]
    last = replica.segments[-1]
    more = LogSegment(base, base + 9, last.size_bytes, last.max_timestamp_ms, last.leader_epochs, False, None)
    ends = dict.fromkeys(("log_end_offset", "high_watermark", "last_stable_offset", "recovery_point"), base + 10)
    world.source.change(replica_id, segments=(*replica.segments, more), **ends)


def finished_at(world: World, replica_id: ReplicaId, start: int) -> RemoteLogSegmentId:
    rows = world.metadata.list_segments(replica_id.topic_id_partition)
    (one,) = [row.metadata for row in rows if row.metadata.is_finished and row.metadata.start_offset == start]
    return one.remote_log_segment_id


def fail(world: World, replica_id: ReplicaId, start: int) -> RemoteLogSegmentId:
    segment_id = finished_at(world, replica_id, start)
    world.metadata.record_verdict(segment_id, Verdict.FAILED, detail="Q102: other bytes")
    return segment_id


def require_superseded(world: World, orders: ReplicaId, old: RemoteLogSegmentId) -> None:
    """One copy of each range, the old one waits to be deleted with all its objects, nothing else is left."""
    partition = orders.topic_id_partition
    assert world.offsets(orders) == FOUR
    row = world.metadata.segment(old)
    assert (row.metadata.state, row.superseded_by) == (DELETING, finished_at(world, orders, 10).id)
    assert sorted(world.states(orders)) == [FINISHED] * 4 + [DELETING]
    assert world.objects() == 5 * 3
    assert world.metadata.stopped_reason(partition) is None
    assert world.metadata.highest_copied_offset(partition) == 39


def test_it_takes_the_place_and_the_partition_goes_on_in_the_same_run(world, orders):
    old = finished_at(world, orders, 10)
    world.plan()
    result = world.batch()
    assert [(one.start_offset, one.supersedes) for one in result.copied] == [(10, old), (30, None)]
    assert [(item.segment.base_offset, item.segment.supersedes) for item in world.work.items("run")] == [
        (10, old.id),
        (30, None),
    ]
    require_superseded(world, orders, old)
    again = world.metadata.segment(finished_at(world, orders, 10))
    assert again.verdict is Verdict.NONE
    assert again.metadata.segment_leader_epochs == world.metadata.segment(old).metadata.segment_leader_epochs
    world.plan("next")
    assert world.batch("next", "next/0").copied == ()


@pytest.mark.parametrize("step", [step for step in CopyStep if not step.startswith(("delete", "objects"))], ids=str)
def test_a_crash_after_any_step_is_cleaned_up_and_completed(world, orders, step):
    old = finished_at(world, orders, 10)
    world.plan()
    world.at[step, 10] = crash
    with pytest.raises(Crash):
        world.batch()
    if step is not CopyStep.FINISHED:
        assert world.metadata.segment(old).metadata.is_finished
        assert world.metadata.stopped_reason(orders.topic_id_partition) is not None
    assert world.batch().failed == ()
    require_superseded(world, orders, old)
    assert {outcome for _, outcome in world.outcomes()} <= {SegmentOutcome.COPIED, SegmentOutcome.SKIPPED}


def test_a_lost_answer_to_finished_costs_no_object(world, orders):
    old = finished_at(world, orders, 10)
    world.plan()
    world.at[CopyStep.FINISHED, 10] = lose_the_answer
    assert [failure.item.error for failure in world.batch().failed] == ["MetadataUnavailableError"]
    assert world.batch(batch_id="run/1").failed == ()
    require_superseded(world, orders, old)
    assert (10, SegmentOutcome.SKIPPED) in world.outcomes()


def test_objects_of_the_failed_one_that_are_gone_do_not_matter(world, orders):
    old = finished_at(world, orders, 10)
    assert not world.storage.delete_log_segments([world.metadata.segment(old).metadata])
    world.plan()
    assert len(world.batch().copied) == 2
    assert world.offsets(orders) == FOUR
    assert world.objects() == 4 * 3


def test_what_passed_before_its_turn_is_not_copied_again(world, orders):
    old = finished_at(world, orders, 10)
    world.plan()
    world.metadata.record_verdict(old, Verdict.PASSED)
    assert [one.start_offset for one in world.batch().copied] == [30]
    (skipped, _) = world.work.items("run")
    assert skipped.outcome is SegmentOutcome.SKIPPED
    assert skipped.message.endswith("COPY_SEGMENT_FINISHED and passed now: there is nothing to replace")
    assert (world.offsets(orders), world.objects()) == (FOUR, 4 * 3)


def test_what_passed_while_it_was_copied_again_stays_and_the_new_copy_goes(world, orders):
    old = finished_at(world, orders, 10)
    world.plan()
    world.at[CopyStep.RECHECKED, 10] = lambda: world.metadata.record_verdict(old, Verdict.PASSED)
    (failure,) = world.batch().failed
    assert failure.item.error == "StateConflictError"
    assert "only a FINISHED segment that failed is superseded" in failure.item.message
    assert world.metadata.segment(old).metadata.is_finished
    assert world.objects() == 3 * 3


def other_epochs(world: World, orders: ReplicaId) -> None:
    replica = world.source.replicas[orders]
    epochs = LeaderEpochs.of([(4, 10)])
    segments = tuple(replace(s, leader_epochs=epochs) if s.base_offset == 10 else s for s in replica.segments)
    world.source.change(orders, segments=segments)


def corrupt(world: World, orders: ReplicaId) -> None:
    world.source.corrupt.add((orders.topic_id_partition, 10))


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (other_epochs, "is not replaced: offsets up to 19 under epochs"),
        (corrupt, "is not replaced: the source itself is damaged: bad CRC-32C"),
    ],
)
def test_a_source_that_is_not_what_it_was_replaces_nothing(
    world: World, orders: ReplicaId, spoil: Callable[[World, ReplicaId], None], says: str
):
    old = finished_at(world, orders, 10)
    world.plan()
    spoil(world, orders)
    (failure,) = world.batch().failed
    assert f"failed segment {old.id} {says}" in present(failure.item.message)
    assert world.metadata.segment(old).metadata.is_finished
    assert (world.offsets(orders), world.objects()) == (THREE, 3 * 3)
    assert world.metadata.stopped_reason(orders.topic_id_partition) is not None


def test_a_new_copy_that_fails_as_well_waits_for_a_person(world, orders):
    world.plan()
    world.batch()
    second = fail(world, orders, 10)
    grow(world, orders, 40)
    plan = world.planned("again")
    assert (plan.partitions, [held.reason for held in plan.held_back]) == ((), [HeldBack.FAILED_AGAIN])
    assert "copied again once, and it failed again: Q102" in plan.held_back[0].detail
    assert world.metadata.segment(second).metadata.is_finished


def test_what_the_source_has_lost_is_told_by_the_stop_until_somebody_decides(world, orders):
    partition, old = orders.topic_id_partition, finished_at(world, orders, 10)
    kept = tuple(s for s in world.source.replicas[orders].segments if s.base_offset >= 20)
    world.source.change(orders, segments=kept, log_start_offset=20)
    plan = world.planned()
    assert (plan.partitions, [held.reason for held in plan.held_back]) == ((), [HeldBack.LOST])
    assert world.metadata.stopped_reason(partition).endswith("; lost: the source's log starts at 20")
    world.failed_copies.give_up(old, reason="agreed", author="me")
    world.plan("goes on")
    assert [one.start_offset for one in world.batch("goes on", "b").copied] == [30]
    assert world.metadata.segment(old).metadata.is_finished


# A copy in each form: what is proved on the way, what brokers are told, and what is refused before it begins.

SIZE, PREFIX, KEY = CustomMetadataField
TRANSFORMED = AivenForm(100, compresses=True, encrypts=True)


def in_form(world: World, tmp_path: Path, form: AivenForm) -> None:
    keys = KeyRing([key_files(tmp_path, "one")], "one")
    world.storage = open_storage((tmp_path / "remote").as_uri(), form=form, keys=keys)


def test_a_transformed_log_is_copied_and_proved(world: World, tmp_path: Path) -> None:
    orders = world.source.add("orders")
    in_form(world, tmp_path, TRANSFORMED)
    world.plan()
    assert world.batch().failed == ()
    assert world.offsets(orders) == [(0, 9), (10, 19), (20, 29)]
    assert world.objects() == 9


def test_a_store_that_has_something_else_is_caught(world: World, tmp_path: Path) -> None:
    world.source.add("orders")
    in_form(world, tmp_path, TRANSFORMED)
    world.storage = LyingStorage(world.storage, Lies(crc32c_xor=1))
    world.plan()
    assert {one.item.error for one in world.batch().failed} == {"RemoteChecksumError"}


def test_brokers_are_told_what_is_set_with_finished(world: World, tmp_path: Path) -> None:
    orders = world.source.add("orders")
    form = replace(TRANSFORMED, custom_metadata=frozenset({SIZE, PREFIX}), key_prefix="t-")
    in_form(world, tmp_path, form)
    world.plan()
    world.batch()
    for row in world.metadata.list_segments(orders.topic_id_partition):
        stored_bytes = sum(one.size_bytes for one in world.storage.stat_log_segment(row.metadata))
        assert row.metadata.custom_metadata == encode_custom_metadata({SIZE: stored_bytes, PREFIX: "t-"})
        assert stored_bytes > 0


def test_without_chosen_fields_nothing_is_told(world: World, tmp_path: Path) -> None:
    orders = world.source.add("orders")
    in_form(world, tmp_path, AivenForm())
    world.plan()
    world.batch()
    assert {row.metadata.custom_metadata for row in world.metadata.list_segments(orders.topic_id_partition)} == {None}


def test_what_brokers_would_not_take_is_refused_before_anything_is_begun(world: World, tmp_path: Path) -> None:
    """They would delete the copy and cancel their own copying of the partition."""
    orders = world.source.add("orders")
    in_form(world, tmp_path, AivenForm(custom_metadata=frozenset(CustomMetadataField), custom_metadata_max_bytes=80))
    world.plan()
    (failed,) = world.batch().failed
    assert failed.item.error == "CustomMetadataTooLargeError"
    assert "brokers accept 80" in str(failed.item.message)
    assert world.metadata.list_segments(orders.topic_id_partition) == []
    assert world.objects() == 0
    assert (0, SegmentOutcome.FAILED) in world.outcomes()
