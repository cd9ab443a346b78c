"""One batch against a source in memory, a real file store and a real SQLite database."""

from dataclasses import replace
from typing import Any

import pytest

from include.tiering.copying.copy_segment import CopyStep
from include.tiering.errors import RemoteStorageUnavailableError
from include.tiering.kafka.log_dirs.contract import IneligibleReason
from include.tiering.model.histories import OffsetRange, SkippedOffsets
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.segments import RemoteLogSegmentState, Uuid
from include.tiering.remote_storage.contract import ObjectKind
from include.tiering.runs.batch import BatchEnd
from include.tiering.runs.contract import SegmentOutcome
from tests.doubles.deployment import Crash, World, crash, lose_the_answer
from tests.doubles.storage_decorators import Lies, LyingStorage, RecordingStorage

FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


THREE = [(0, 9), (10, 19), (20, 29)]
COPIED = [(0, SegmentOutcome.COPIED), (10, SegmentOutcome.COPIED), (20, SegmentOutcome.COPIED)]


def test_copies_every_partition_in_order(world):
    orders, payments = world.source.add("orders"), world.source.add("payments")
    world.plan()
    result = world.batch()
    assert (world.offsets(orders), world.offsets(payments)) == (THREE, THREE)
    assert (len(result.copied), result.failed, result.ended) == (6, (), BatchEnd.NO_WORK)
    assert world.objects() == 6 * 3
    assert [segment.start_offset for segment in result.copied] == [0, 10, 20] * 2


def test_a_partition_whose_metadata_is_not_complete_any_more_is_left_for_a_retry(world, monkeypatch):
    orders, payments = world.source.add("orders"), world.source.add("payments")
    world.plan()
    is_ready = world.metadata.is_ready
    with monkeypatch.context() as behind:
        behind.setattr(world.metadata, "is_ready", lambda one: one != orders.topic_id_partition and is_ready(one))
        result = world.batch()
    assert (world.offsets(orders), world.offsets(payments)) == ([], THREE)
    assert (len(result.copied), result.ended, result.worth_retrying) == (3, BatchEnd.NO_WORK, True)
    (failed,) = result.failed
    assert "its metadata is not complete: ./tiering ready" in str(failed.item.message)
    assert len(world.batch(batch_id="run/1").copied) == 3


def test_a_second_batch_finds_nothing_to_do(world):
    orders = world.source.add("orders")
    world.plan()
    world.batch()
    assert world.batch(batch_id="run/1").copied == ()
    assert world.offsets(orders) == THREE


def test_what_is_copied_already_is_passed_over_under_one_claim(world, monkeypatch):
    """A partition that was left for each such segment would be claimed as often."""
    orders = world.source.add("orders", segments=5)
    world.plan("one")
    world.plan("two")
    world.source.corrupt.add((orders.topic_id_partition, 30))
    world.batch("one")
    world.source.corrupt.clear()
    claim, claims = world.work.claim, []

    def claimed(*given: Any, **named: Any) -> Any:
        claims.append(claim(*given, **named))
        return claims[-1]

    monkeypatch.setattr(world.work, "claim", claimed)
    result = world.batch("two", "two/0")
    assert world.outcomes("two") == [
        *((offset, SegmentOutcome.SKIPPED) for offset in (0, 10, 20)),
        *((offset, SegmentOutcome.COPIED) for offset in (30, 40)),
    ]
    assert (len(result.copied), result.failed) == (2, ())
    assert [lease is not None for lease in claims] == [True, False]


@pytest.mark.parametrize("step", [step for step in CopyStep if not step.startswith(("delete", "objects"))], ids=str)
def test_a_crash_after_any_step_is_cleaned_up_and_completed(world, step):
    orders = world.source.add("orders")
    world.plan()
    world.at[step, 10] = crash
    with pytest.raises(Crash):
        world.batch()
    assert world.batch().failed == ()
    assert world.offsets(orders) == THREE
    assert world.states(orders) == [FINISHED] * 3
    assert world.objects() == 9
    assert {outcome for _, outcome in world.outcomes()} <= {SegmentOutcome.COPIED, SegmentOutcome.SKIPPED}


@pytest.mark.parametrize("step", [CopyStep.DELETE_STARTED, CopyStep.OBJECTS_DELETED, CopyStep.DELETE_FINISHED], ids=str)
def test_a_crash_while_cleaning_up_is_cleaned_up_too(world, step):
    orders = world.source.add("orders")
    world.plan()
    for at in ((CopyStep.STARTED, 10), (step, 10)):
        world.at[at] = crash
        with pytest.raises(Crash):
            world.batch()
    world.batch()
    assert world.offsets(orders) == THREE
    assert world.objects() == 9


def test_a_lost_answer_to_finished_costs_no_object(world):
    """Found by simulation, seed 2099: the attempt was FINISHED, and its objects were deleted as an abandoned one's."""
    orders = world.source.add("orders")
    world.plan()
    world.at[CopyStep.FINISHED, 10] = lose_the_answer
    assert [failure.item.error for failure in world.batch().failed] == ["MetadataUnavailableError"]
    assert (world.offsets(orders), world.objects()) == (THREE[:2], 6)
    assert world.batch(batch_id="run/1").failed == ()
    assert (world.offsets(orders), world.objects()) == (THREE, 9)
    assert (10, SegmentOutcome.SKIPPED) in world.outcomes()


CHANGES = {
    "truncated": lambda source, replica: source.change(replica, log_end_offset=15),
    "leader changed": lambda source, replica: source.change(replica, chosen=False),
    "log start raised": lambda source, replica: source.change(replica, log_start_offset=25),
    "topic gone": lambda source, replica: source.replicas.pop(replica),
    "files replaced": lambda source, replica: setattr(source, "generation", 2),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
@pytest.mark.parametrize("step", [CopyStep.CHECKED, CopyStep.STARTED, CopyStep.SENT, CopyStep.VERIFIED], ids=str)
def test_a_source_that_changed_meanwhile_is_never_finished(world, step, change):
    orders = world.source.add("orders", segments=1)
    world.plan()
    world.at[step, 0] = lambda: change(world.source, orders)
    result = world.batch()
    assert world.offsets(orders) == []
    assert world.states(orders) == []
    assert world.objects() == 0
    assert [failure.item.error for failure in result.failed] == ["SourceChangedError"]
    assert result.worth_retrying


def test_a_topic_that_changed_owner_meanwhile_is_never_finished(world):
    orders = world.source.add("orders", segments=1)
    topic_id: Uuid = orders.topic_id_partition.topic_id
    world.plan()
    world.at[CopyStep.VERIFIED, 0] = lambda: world.registry.set_owner(
        topic_id, "orders", TopicOwner.HANDING_OVER, expected=TopicOwner.PLATFORM, author="test"
    )
    world.batch()
    assert world.states(orders) == []


def test_a_corrupt_segment_stops_its_partition_and_no_other(world):
    orders, payments = world.source.add("orders"), world.source.add("payments")
    world.source.corrupt.add((orders.topic_id_partition, 10))
    world.plan()
    result = world.batch()
    assert world.offsets(orders) == [(0, 9)]
    assert world.offsets(payments) == THREE
    (failure,) = result.failed
    assert (failure.item.error, failure.item.segment.base_offset, failure.item.position) == ("CorruptFileError", 10, 61)
    assert not result.worth_retrying
    assert world.outcomes()[:3] == [
        (0, SegmentOutcome.COPIED),
        (10, SegmentOutcome.FAILED),
        (20, SegmentOutcome.PLANNED),
    ]


def test_a_segment_that_is_not_eligible_any_more_is_left_alone(world):
    orders = world.source.add("orders")
    world.plan()
    late = replace(world.source.replicas[orders].segments[1], reason=IneligibleReason.ABOVE_HIGH_WATERMARK)
    first, _, third = world.source.replicas[orders].segments
    world.source.change(orders, segments=(first, late, third))
    (failure,) = world.batch().failed
    assert "above the high watermark" in failure.item.message
    assert world.offsets(orders) == [(0, 9)]


class Broken:
    """A limiter that stands for a store that does not answer, the first `times` times."""

    waited_seconds = 0.0
    waits_for = None

    def __init__(self, times: int) -> None:
        self.left = times

    def take(self, wanted_bytes: int) -> int:
        if wanted_bytes and self.left:
            self.left -= 1
            raise RemoteStorageUnavailableError("no answer")
        return wanted_bytes


def test_a_store_that_does_not_answer_leaves_the_work_planned(world):
    orders = world.source.add("orders")
    world.plan()
    world.limiter = Broken(times=1)
    result = world.batch()
    assert result.worth_retrying
    assert world.outcomes() == [(base, SegmentOutcome.PLANNED) for base, _ in THREE]
    assert world.objects() == 0
    world.batch()
    assert world.offsets(orders) == THREE
    assert world.outcomes() == COPIED


@pytest.mark.parametrize("lies", [Lies(crc32c_xor=1), Lies(hides=frozenset({ObjectKind.INDEXES}))])
def test_what_the_store_does_not_have_is_never_finished(world, lies):
    replica = world.source.add("orders", 0, segments=2)
    world.plan()
    world.storage = LyingStorage(world.storage, lies)
    result = world.batch()
    assert [failure.item.error for failure in result.failed] == ["RemoteChecksumError"]
    assert world.offsets(replica) == []
    assert world.objects() == 0


class Confirming(RecordingStorage):
    """Its answers to writes confirm the kinds that are not in `but`."""

    but: frozenset[ObjectKind] = frozenset()

    def copy_log_segment(self, metadata, data, **options):
        sent = super().copy_log_segment(metadata, data, **options)
        return tuple(replace(stored, confirmed=stored.kind not in self.but) for stored in sent)


@pytest.mark.parametrize(("but", "asked"), [(frozenset(), 0), (frozenset({ObjectKind.LOG}), 2)])
def test_a_store_is_asked_for_what_it_did_not_confirm_already(world, but, asked):
    replica = world.source.add("orders", 0, segments=2)
    world.plan()
    world.storage = Confirming(world.storage)
    world.storage.but = but
    assert not world.batch().failed
    assert len(world.offsets(replica)) == 2
    assert [call for call, _ in world.storage.calls].count("stat_log_segment") == asked


def test_a_batch_whose_time_is_over_leaves_the_rest_planned(world):
    orders = world.source.add("orders")
    world.plan()
    assert world.batch(max_seconds=0.0).ended is BatchEnd.TIME_OVER
    assert world.offsets(orders) == []


def test_a_surplus_batch_ends_after_its_segment(world):
    orders = world.source.add("orders")
    world.pool_mirror.record("remote_log_copier", 1, seen=None, author="test")
    world.plan()
    world.at[CopyStep.FINISHED, 0] = lambda: world.pool_mirror.record("remote_log_copier", 0, seen=1, author="test")
    assert world.batch(pool="remote_log_copier").ended is BatchEnd.SURPLUS
    assert world.offsets(orders) == [(0, 9)]


def test_a_paused_topic_waits_and_others_go_on(world):
    orders, payments = world.source.add("orders"), world.source.add("payments")
    world.plan()
    world.work.pause("orders", author="test")
    world.at[CopyStep.FINISHED, 20] = lambda: world.work.resume("orders", author="test")
    world.batch()
    assert world.offsets(payments) == THREE
    assert world.offsets(orders) == THREE


def test_who_lost_the_lease_finishes_nothing_and_the_new_holder_cleans_up(world):
    """A batch that was started again elsewhere gives way. Found by simulation, seed 100: the two processes took the
    lease from each other for ever."""
    orders = world.source.add("orders", segments=1)
    world.plan()
    finished_by_the_loser = []
    world.at[CopyStep.VERIFIED, 0] = lambda: world.work.claim("run", "run/0", lease_ms=30_000)
    world.at[CopyStep.DELETE_STARTED, 0] = lambda: finished_by_the_loser.extend(world.offsets(orders))
    loser = world.batch()
    assert (loser.failed, loser.copied, loser.ended) == ((), (), BatchEnd.STOPPED)
    assert world.batch().failed == ()
    assert finished_by_the_loser == []
    assert (world.offsets(orders), world.states(orders), world.objects()) == ([(0, 9)], [FINISHED], 3)


def test_behind_a_hole_it_goes_on_only_by_decision_and_asks_for_that_once(world: World) -> None:
    """The plan was made with the decision; a batch that does not find it copies nothing."""
    orders = world.source.add("orders", segments=8)
    partition = orders.topic_id_partition
    segments = world.source.replica(orders).segments
    world.source.change(orders, segments=segments[:3])
    world.plan()
    world.batch()
    world.source.change(orders, segments=segments[5:], log_start_offset=50)
    world.plan("held")
    assert world.batch("held", "held/0").copied == ()
    hole = OffsetRange(30, 49)
    decision = world.metadata.skip_offsets(partition, hole, reason="retention was quicker", author="me")
    world.plan("on")
    asked: list[int] = []
    found: list[SkippedOffsets] = []

    def decisions(_: object) -> list[SkippedOffsets]:
        asked.append(1)
        return found

    world.metadata.skipped_offsets = decisions  # type: ignore[method-assign, assignment]
    (failed,) = world.batch("on", "on/0").failed
    assert "offsets 30..49 would be left out" in str(failed.item.message)
    assert world.offsets(orders) == THREE
    found.append(decision)
    world.plan("again")
    asked.clear()
    world.batch("again", "again/0")
    assert world.offsets(orders) == [*THREE, (50, 59), (60, 69), (70, 79)]
    assert len(asked) == 1
