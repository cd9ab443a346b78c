"""One batch that removes orphans, against a real file store and a real SQLite database."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine

from include.tiering.audit.finding import FindingKind
from include.tiering.audit.plan_removals import PlannedRemoval, RemovalOutcome
from include.tiering.audit.remove_orphans import OrphanRemover, RemovalBatch, RemovalResult, RemovalStep
from include.tiering.errors import (
    ApprovalRequiredError,
    DatabaseSetBackError,
    ForeignStoreError,
    IllegalTransitionError,
    RemoteStorageError,
    RemoteStorageUnavailableError,
)
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.segments import RemoteLogSegmentMetadata, TopicIdPartition
from include.tiering.quotas.contract import UnlimitedBytes
from include.tiering.remote_storage.file.store import FileObjectStore
from include.tiering.remote_storage.layouts.aiven import AivenLayout
from include.tiering.remote_storage.object_store import SeenObject
from include.tiering.remote_storage.orphan_objects import Orphan, OrphanFailure, StoredOrphans
from include.tiering.remote_storage.segment_storage import SegmentStorage
from include.tiering.runs.batch import BatchEnd
from tests.doubles.databases import database_kind, database_url, engine, migrated_engine
from tests.doubles.deployment import LEASE_MS, Crash, Deployment, crash
from tests.doubles.quotas import SameLimiter
from tests.doubles.segments import (
    delete,
    fence_of,
    finish,
    lease_of,
    partition_of,
    segment_of,
)
from tests.doubles.stored_log import some_segment

__all__ = ["database_kind", "database_url", "engine", "migrated_engine"]

ORDERS, PAYMENTS = partition_of("orders"), partition_of("payments")
REMOVED, GONE, KEPT = RemovalOutcome.REMOVED, RemovalOutcome.GONE, RemovalOutcome.KEPT
FAILED, PLANNED = RemovalOutcome.FAILED, RemovalOutcome.PLANNED


class FailingOrphans(StoredOrphans):
    """Fails as it is told to."""

    refused: dict[str, bool]
    error: Exception | None = None

    def remove(self, orphans: Sequence[Orphan]) -> tuple[OrphanFailure, ...]:
        if self.error is not None:
            raise self.error
        done = super().remove([one for one in orphans if one.key not in self.refused])
        failures = [OrphanFailure(one, "refused", self.refused[one.key]) for one in orphans if one.key in self.refused]
        return (*done, *failures)


class World(Deployment):
    """One deployment that removes orphan objects."""

    def __init__(self, engine: Engine, root: Path) -> None:
        super().__init__(engine)
        self.root = root
        self.store = FileObjectStore(root)
        self.orphans = FailingOrphans(self.store, AivenLayout(), self.require_ours)
        self.orphans.refused = {}
        self.is_foreign = False
        self.attempts_per_group = 333
        self.number = 0
        self.require_allowed: Callable[[], None] = lambda: None

    def require_ours(self) -> None:
        if self.is_foreign:
            raise ForeignStoreError("the store belongs to somebody else")

    def segment(self, partition: TopicIdPartition = ORDERS) -> RemoteLogSegmentMetadata:
        self.number += 1
        return segment_of(partition, self.number, 10 * self.number, 10 * self.number + 9, size_bytes=1_000)

    def stored(self, segment: RemoteLogSegmentMetadata) -> list[str]:
        """Write all objects of the segment; returns their keys."""
        _, data = some_segment(1_000)
        storage = SegmentStorage(self.store, AivenLayout())
        sent = storage.copy_log_segment(segment, data, limiter=UnlimitedBytes(), on_sent=lambda _: None)
        return [one.key for one in sent]

    def removal(self, segment: RemoteLogSegmentMetadata, key: str) -> PlannedRemoval:
        seen = self.store.head(key) or SeenObject(7, 5)
        segment_id = segment.remote_log_segment_id
        return PlannedRemoval(segment_id, FindingKind.ORPHAN, key, None, seen.size_bytes, seen.last_modified_ms)

    def orphan(self, partition: TopicIdPartition = ORDERS) -> list[PlannedRemoval]:
        segment = self.segment(partition)
        return [self.removal(segment, key) for key in self.stored(segment)]

    def plan(self, *attempts: Sequence[PlannedRemoval], approved: bool = True) -> None:
        run = self.removals.save_plan("run", [one for attempt in attempts for one in attempt])
        self.removals.record_limit_check("run", needs_approval=True, detail="always", author="limits")
        if approved:
            self.removals.approve("run", run.plan_hash, author="me")

    def batch(self) -> RemovalResult:
        remover = OrphanRemover(self.orphans, self.removals, self.audits, self.registry, self.reached)
        return RemovalBatch(
            remover,
            SameLimiter(UnlimitedBytes()),
            self.loop("run", "batch"),
            self.require_allowed,
            self.clock,
            run_id="run",
            batch_id="batch",
            lease_ms=LEASE_MS,
            attempts_per_group=self.attempts_per_group,
        ).run()

    def outcomes(self) -> list[RemovalOutcome]:
        return [item.outcome for item in self.removals.items("run")]

    def stored_keys(self) -> set[str]:
        return {found.key for found in self.store.list_objects()}


@pytest.fixture
def world(engine: Engine, tmp_path: Path) -> World:
    return World(engine, tmp_path / "remote")


def keys_of(*attempts: Sequence[PlannedRemoval]) -> set[str]:
    return {one.key for attempt in attempts for one in attempt}


class TestRemoval:
    def test_of_all_that_was_planned_and_of_nothing_else(self, world):
        first, second, other, spared = world.orphan(), world.orphan(), world.orphan(PAYMENTS), world.orphan()
        world.plan(first, second, other)
        result = world.batch()
        assert (result.ended, len(result.of(REMOVED)), result.waiting) == (BatchEnd.NO_WORK, 9, ())
        assert world.stored_keys() == keys_of(spared)
        assert set(world.outcomes()) == {REMOVED}

    def test_in_groups(self, world):
        attempts = [world.orphan() for _ in range(5)]
        world.plan(*attempts)
        world.attempts_per_group = 2
        assert len(world.batch().of(REMOVED)) == 15
        assert world.stored_keys() == set()

    def test_of_no_further_group_once_a_guard_is_active(self, world):
        world.plan(*(world.orphan() for _ in range(3)))
        world.attempts_per_group = 1

        def require_allowed() -> None:
            if REMOVED in world.outcomes():
                raise DatabaseSetBackError("an audit found that the database was set back")

        world.require_allowed = require_allowed
        with pytest.raises(DatabaseSetBackError):
            world.batch()
        assert sorted(world.outcomes()) == [PLANNED] * 6 + [REMOVED] * 3

    def test_its_progress_counts_the_bytes_of_all_groups(self, world):
        attempts = [world.orphan(), world.orphan(PAYMENTS)]
        world.plan(*attempts)
        world.attempts_per_group = 1
        world.batch()
        size_bytes = sum(one.size_bytes for attempt in attempts for one in attempt)
        (progress,) = world.work.progress("run")
        assert size_bytes > 2 * 1_000
        assert (progress.done_bytes, progress.planned_bytes, progress.finished) == (size_bytes, size_bytes, True)

    def test_not_before_somebody_approved_it(self, world):
        orphan = world.orphan()
        world.plan(orphan, approved=False)
        with pytest.raises(ApprovalRequiredError, match="nothing is removed"):
            world.batch()
        assert world.stored_keys() == keys_of(orphan)

    def test_beside_a_copy_into_the_same_partition(self, world):
        orphan = world.orphan()
        fence = lease_of(world.engine, ORDERS).fence
        segment = world.segment()
        world.metadata.add_segment(segment, fence=fence)
        copied = world.stored(segment)
        world.plan(orphan)
        world.batch()
        assert world.stored_keys() == set(copied)

    def test_of_an_open_upload(self, world):
        segment = world.segment()
        (key, *_) = world.stored(segment)
        (world.root / key).rename(world.root / f"{key}.~0011223344556677")
        (upload,) = world.store.list_open_uploads()
        removal = replace(
            world.removal(segment, key), kind=FindingKind.OPEN_MULTIPART_UPLOAD, token=upload.token, size_bytes=0
        )
        rest = [world.removal(segment, other) for other in world.stored_keys()]
        world.plan([*rest, removal])
        world.batch()
        assert set(world.outcomes()) == {REMOVED}
        assert list(world.store.list_open_uploads()) == []

    def test_ends_the_ids(self, world):
        segment = world.segment()
        world.plan([world.removal(segment, key) for key in world.stored(segment)])
        world.batch()
        with pytest.raises(IllegalTransitionError):
            world.metadata.add_segment(segment, fence=fence_of(world.engine, ORDERS))


class TestSecondLook:
    def test_a_segment_that_metadata_knows_is_kept(self, world):
        """Planned as an orphan, whatever the reason was: rows are asked again, and they decide."""
        fence = fence_of(world.engine, ORDERS)
        segments = [world.segment() for _ in range(3)]
        planned = [[world.removal(one, key) for key in world.stored(one)] for one in segments]
        world.metadata.add_segment(segments[0], fence=fence)
        finish(world.metadata, segments[1], fence)
        delete(world.metadata, finish(world.metadata, segments[2], fence), fence)
        world.plan(*planned)
        world.batch()
        assert world.outcomes() == [KEPT] * 6 + [REMOVED] * 3
        assert world.stored_keys() == keys_of(*planned[:2])

    def test_an_id_at_two_places_is_looked_at_in_both(self, world):
        """What was written again at the second place keeps all of the id."""
        segment = world.segment()
        moved = replace(segment, start_offset=segment.start_offset + 1)
        planned = [world.removal(segment, key) for one in (segment, moved) for key in world.stored(one)]
        other = world.segment()
        again = replace(other, start_offset=other.start_offset + 1)
        changed = [world.removal(other, key) for one in (other, again) for key in world.stored(one)]
        os.utime(world.root / changed[-1].key, (5, 5))
        world.plan(planned, changed)
        world.batch()
        assert world.outcomes() == [REMOVED] * 6 + [KEPT] * 6
        assert world.stored_keys() == keys_of(changed)

    def test_a_row_that_appears_after_the_look_is_respected(self, world):
        segment = world.segment()
        planned = [world.removal(segment, key) for key in world.stored(segment)]
        fence = fence_of(world.engine, ORDERS)
        world.at[RemovalStep.CHECKED] = lambda: finish(world.metadata, segment, fence)
        world.plan(planned)
        world.batch()
        assert set(world.outcomes()) == {KEPT}
        assert world.stored_keys() == keys_of(planned)

    def test_a_row_cannot_appear_after_the_id_was_marked_for_deletion(self, world):
        """An adoption that comes too late is refused, and so leaves no reference to what goes."""
        segment = world.segment()
        planned = [world.removal(segment, key) for key in world.stored(segment)]
        fence = fence_of(world.engine, ORDERS)
        refused = []

        def adopt() -> None:
            with pytest.raises(IllegalTransitionError):
                world.metadata.add_segment(segment, fence=fence)
            refused.append(segment)

        world.at[RemovalStep.MARKED] = adopt
        world.plan(planned)
        world.batch()
        assert refused
        assert set(world.outcomes()) == {REMOVED}

    def test_what_is_gone_is_gone(self, world):
        orphan = world.orphan()
        world.plan(orphan)
        world.store.delete([orphan[0].key])
        world.batch()
        assert world.outcomes() == [GONE, REMOVED, REMOVED]

    @pytest.mark.parametrize("change", ["later", "longer"])
    def test_an_object_that_was_written_again_keeps_all_of_its_segment(self, world, change):
        orphan = world.orphan()
        world.plan(orphan)
        path = world.root / orphan[1].key
        if change == "longer":
            status = path.stat()
            path.write_bytes(path.read_bytes() + b"x")
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        else:
            os.utime(path, (2_000_000_000, 2_000_000_000))
        world.batch()
        assert set(world.outcomes()) == {KEPT}
        assert world.stored_keys() == keys_of(orphan)
        assert "written again" in world.removals.items("run")[0].message

    def test_an_object_that_came_since_keeps_all_of_its_segment(self, world):
        """It may have become a complete copy."""
        orphan = world.orphan()
        world.plan(orphan[:2])
        world.batch()
        assert set(world.outcomes()) == {KEPT}
        assert world.stored_keys() == keys_of(orphan)

    def test_a_topic_that_its_brokers_write_now(self, world):
        orphan = world.orphan()
        world.plan(orphan)
        world.registry.set_owner(ORDERS.topic_id, "orders", TopicOwner.BROKER, expected=TopicOwner.NONE, author="test")
        world.batch()
        assert set(world.outcomes()) == {KEPT}
        assert world.stored_keys() == keys_of(orphan)

    def test_a_store_that_is_not_ours_any_more(self, world):
        orphan = world.orphan()
        world.plan(orphan)
        world.is_foreign = True
        result = world.batch()
        assert world.stored_keys() == keys_of(orphan)
        assert set(world.outcomes()) == {FAILED}
        assert "ForeignStoreError" in result.items[0].message


class TestFailures:
    def test_of_one_key(self, world):
        orphan, other = world.orphan(), world.orphan(PAYMENTS)
        world.orphans.refused = {orphan[0].key: False}
        world.plan(orphan, other)
        result = world.batch()
        assert [item.planned.key for item in result.of(FAILED)] == [orphan[0].key]
        assert world.stored_keys() == {orphan[0].key}
        assert not world.removals.has_work("run")

    def test_that_may_pass_stay_planned_for_the_same_run(self, world):
        orphan, other = world.orphan(), world.orphan(PAYMENTS)
        world.orphans.refused = {orphan[0].key: True}
        world.plan(orphan, other)
        assert [item.planned.key for item in world.batch().waiting] == [orphan[0].key]
        assert world.outcomes().count(PLANNED) == 1
        world.orphans.refused = {}
        assert [item.planned.key for item in world.batch().items] == [orphan[0].key]
        assert world.stored_keys() == set()

    @pytest.mark.parametrize(
        ("error", "outcome"),
        [(RemoteStorageUnavailableError("away"), PLANNED), (RemoteStorageError("denied"), FAILED)],
    )
    def test_of_the_whole_request(self, world, error, outcome):
        orphan = world.orphan()
        world.plan(orphan)
        world.orphans.error = error
        result = world.batch()
        assert world.outcomes() == [outcome] * 3
        assert len(result.waiting) == (3 if outcome is PLANNED else 0)

    @pytest.mark.parametrize("step", RemovalStep)
    def test_a_crash_at_each_step_is_completed_by_the_same_run(self, world, step):
        orphan, spared = world.orphan(), world.orphan()
        world.at[step] = crash
        world.plan(orphan)
        with pytest.raises(Crash):
            world.batch()
        world.batch()
        assert world.stored_keys() == keys_of(spared)
        assert set(world.outcomes()) <= {REMOVED, GONE}
