"""Which abandoned copies continue what is copied, or replace what failed, once the source has lost their records."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from include.tiering.copying import finish_abandoned
from include.tiering.copying.copy_segment import CopyStep
from include.tiering.copying.finish_abandoned import (
    AbandonedCopies,
    abandoned_copies_of,
    continuing_copies,
    replacement_copies,
)
from include.tiering.kafka.log_dirs.contract import ReplicaId
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.runs.contract import PlannedSegment
from include.tiering.segments.contract import SegmentRow
from include.tiering.segments.stored_copies import WholeCopy
from tests.doubles.deployment import World
from tests.doubles.quotas import SameLimiter
from tests.unit.copying.test_finish_abandoned import left_at


@pytest.fixture
def orders(world: World) -> ReplicaId:
    return world.source.add("orders")


@pytest.fixture
def left(world: World, orders: ReplicaId) -> SegmentRow:
    """Offsets 0 to 9 are copied; a whole copy of 10 to 19 was never finished."""
    return left_at(world, orders, CopyStep.VERIFIED)


NEXT = PlannedSegment(10, 19, 1_000)


@pytest.mark.parametrize(
    ("highest", "following", "found"),
    [
        (None, 20, [NEXT]),
        (None, 15, [NEXT]),
        (None, 10, []),
        (None, 21, []),
        (8, 20, []),
        (9, 20, [NEXT]),
        (9, 19, [NEXT]),
        (9, 10, []),
        (9, 21, [NEXT]),
        (15, 20, [NEXT]),
        (18, 20, [NEXT]),
        (19, 30, []),
    ],
)
def test_a_copy_continues_where_it_joins_and_the_source_goes_on_behind_it(
    world: World, orders: ReplicaId, left: SegmentRow, highest: int | None, following: int, found: list[PlannedSegment]
) -> None:
    asked = []

    def is_whole(row: SegmentRow) -> bool:
        asked.append(row)
        return True

    epochs, partition = left.metadata.segment_leader_epochs, orders.topic_id_partition
    assert continuing_copies(world.metadata, partition, highest, following, epochs, is_whole) == found
    assert asked == ([left] if found else [])
    assert continuing_copies(world.metadata, partition, highest, following, epochs, lambda _: False) == []


def test_a_copy_that_ends_in_records_of_another_leader_continues_nothing(
    world: World, orders: ReplicaId, left: SegmentRow
) -> None:
    other = LeaderEpochs.of([(0, 0), (1, 15)])
    partition = orders.topic_id_partition
    assert continuing_copies(world.metadata, partition, 9, 15, other, lambda _: True) == []
    assert continuing_copies(world.metadata, partition, 9, 20, other, lambda _: True) == [NEXT]


def test_a_copy_whose_deletion_has_begun_continues_nothing(
    world: World, orders: ReplicaId, left: SegmentRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finish_abandoned, "is_started", lambda _: False)
    partition = orders.topic_id_partition
    assert (
        continuing_copies(world.metadata, partition, 9, 20, left.metadata.segment_leader_epochs, lambda _: True) == []
    )
    assert replacement_copies(world.metadata, partition, [left.metadata], lambda _: True) == []


def test_a_copy_of_another_history_continues_nothing(
    world: World, orders: ReplicaId, left: SegmentRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = orders.topic_id_partition
    monkeypatch.setattr(finish_abandoned, "newest_history", lambda _: 7)
    assert left.history != 7
    assert (
        continuing_copies(world.metadata, partition, 9, 20, left.metadata.segment_leader_epochs, lambda _: True) == []
    )
    monkeypatch.undo()
    monkeypatch.setattr(finish_abandoned, "other_history", lambda *_: "of another leader")
    assert (
        continuing_copies(world.metadata, partition, 9, 20, left.metadata.segment_leader_epochs, lambda _: True) == []
    )
    assert replacement_copies(world.metadata, partition, [left.metadata], lambda _: True) == []


def test_a_whole_copy_of_the_failed_records_replaces_them(world: World, orders: ReplicaId, left: SegmentRow) -> None:
    partition = orders.topic_id_partition
    failed = left.metadata
    other = replace(failed, end_offset=failed.end_offset + 1)
    expected = PlannedSegment(10, 19, 1_000, supersedes=failed.remote_log_segment_id.id)
    assert replacement_copies(world.metadata, partition, [other, failed], lambda _: True) == [expected]
    assert replacement_copies(world.metadata, partition, [other], lambda _: True) == []
    assert replacement_copies(world.metadata, partition, [failed], lambda _: False) == []


@pytest.mark.parametrize(("step", "stays"), [(CopyStep.STARTED, False), (CopyStep.VERIFIED, True)])
def test_before_brokers_take_over_only_what_has_no_object_is_abandoned(
    world: World, orders: ReplicaId, step: CopyStep, stays: bool
) -> None:
    row = left_at(world, orders, step)
    whole = WholeCopy(world.storage, SameLimiter(world.limiter))
    fence: Any = SimpleNamespace(topic_id_partition=orders.topic_id_partition)
    abandoned: list[Any] = []
    copier: Any = SimpleNamespace(metadata=world.metadata, abandon=lambda segment, _: abandoned.append(segment))
    AbandonedCopies(copier, whole, lambda: None).abandon_empty(fence)
    assert abandoned == ([] if stays else [row.metadata])
    assert [each.metadata for each in abandoned_copies_of(world.metadata, orders.topic_id_partition)] == [row.metadata]


# Whether the source still has what was copied: offsets, size and epochs first, then the fingerprint, then the bytes.


def opened(row: SegmentRow, *, fingerprint: str = "same", crc32c: int | None = None, **changes: Any) -> Any:
    metadata = row.metadata
    segment = {
        "base_offset": metadata.start_offset,
        "end_offset": metadata.end_offset,
        "size_bytes": metadata.segment_size_bytes,
        "leader_epochs": metadata.segment_leader_epochs,
        **changes,
    }
    text = row.source_fingerprint if fingerprint == "same" else fingerprint
    checked = SimpleNamespace(data=SimpleNamespace(log_crc32c=crc32c))
    return SimpleNamespace(
        segment=SimpleNamespace(**segment),
        fingerprint=SimpleNamespace(as_text=lambda: text),
        check=lambda: checked,
    )


def test_a_source_is_the_same_by_its_fingerprint_or_else_by_its_bytes(left: SegmentRow) -> None:
    same = finish_abandoned._is_same
    assert same(opened(left), left)
    assert same(opened(left, fingerprint="another", crc32c=left.log_crc32c), left)
    assert not same(opened(left, fingerprint="another", crc32c=(left.log_crc32c or 0) + 1), left)


@pytest.mark.parametrize(
    "changes",
    [
        {"base_offset": 11},
        {"end_offset": 20},
        {"size_bytes": 1_001},
        {"leader_epochs": LeaderEpochs.of([(1, 0)])},
    ],
    ids=str,
)
def test_a_source_with_other_offsets_size_or_epochs_is_another(left: SegmentRow, changes: dict[str, Any]) -> None:
    assert not finish_abandoned._is_same(opened(left, crc32c=left.log_crc32c, **changes), left)
