"""What is missing in the store is lost only if the store is the right one, and a place is proved by what lies there."""

import dataclasses
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from include.tiering.errors import RemoteStorageError, RemoteStorageUnavailableError, StoreInDoubtError
from include.tiering.model.segments import RemoteLogSegmentMetadata, Verdict
from include.tiering.remote_storage.contract import KeptObject, ObjectKind
from include.tiering.segments import stored_copies
from include.tiering.segments.contract import SegmentRow
from include.tiering.segments.stored_copies import (
    PlaceProof,
    StoreWitness,
    WholeCopy,
    absent_kinds,
    explains_length,
    prove_place,
)
from tests.doubles.deployment import World, copy_world
from tests.doubles.quotas import SameLimiter
from tests.doubles.storage_decorators import StorageDecorator


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Three segments of each of two topics are copied; nothing is verified."""
    with copy_world(tmp_path) as world:
        for topic in ("audit", "orders"):
            world.source.add(topic)
        world.plan()
        assert len(world.batch().copied) == 6
        yield world


def rows(world: World, topic: str = "orders") -> list[SegmentRow]:
    (partition,) = (one for one in world.metadata.partitions() if one.topic == topic)
    return list(world.metadata.list_segments(partition))


def segments(world: World, topic: str = "orders") -> list[RemoteLogSegmentMetadata]:
    return [row.metadata for row in rows(world, topic)]


def passed(world: World, *wanted: RemoteLogSegmentMetadata) -> None:
    for one in wanted:
        world.metadata.record_verdict(one.remote_log_segment_id, Verdict.PASSED)


def path(world: World, segment: RemoteLogSegmentMetadata, suffix: str) -> Path:
    (found,) = world.store.rglob(f"*{segment.remote_log_segment_id.id}.{suffix}")
    return found


def lose(world: World, segment: RemoteLogSegmentMetadata, *suffixes: str) -> None:
    for suffix in suffixes or ("log", "indexes", "rsm-manifest"):
        path(world, segment, suffix).unlink()


def another_manifest(world: World, segment: RemoteLogSegmentMetadata, other: RemoteLogSegmentMetadata) -> None:
    target = path(world, segment, "rsm-manifest")
    target.chmod(0o600)
    shutil.copyfile(path(world, other, "rsm-manifest"), target)


def change(file: Path, content: Callable[[bytes], bytes]) -> None:
    file.chmod(0o600)
    file.write_bytes(content(file.read_bytes()))


def shorten(world: World, segment: RemoteLogSegmentMetadata) -> None:
    change(path(world, segment, "log"), lambda content: content[:-1])


class Watched(StorageDecorator):
    """Counts looks at the marker; `error` is raised by what opens a segment."""

    markers = 0
    error: Exception | None = None

    def check_marker(self) -> None:
        self.markers += 1
        super().check_marker()

    def open_log_segment(self, *args: Any, **options: Any) -> Any:
        if self.error is not None:
            raise self.error
        return super().open_log_segment(*args, **options)


def witness(world: World) -> StoreWitness:
    return StoreWitness(world.metadata, lambda: world.storage)


@pytest.mark.parametrize(
    ("stored", "absent"),
    [
        ([], ("indexes", "log", "rsm-manifest")),
        ([(ObjectKind.LOG, 1), (ObjectKind.INDEXES, 1), (ObjectKind.MANIFEST, 1)], ()),
        ([(ObjectKind.LOG, 0), (ObjectKind.INDEXES, 1), (ObjectKind.MANIFEST, 0)], ("log", "rsm-manifest")),
        ([(ObjectKind.OFFSET_INDEX, 0), (ObjectKind.LOG, 5)], ("indexes", "rsm-manifest")),
    ],
)
def test_what_is_empty_is_absent(stored: list[tuple[ObjectKind, int]], absent: tuple[str, ...]) -> None:
    found = [KeptObject(kind, f"a.{kind}", size_bytes, None) for kind, size_bytes in stored]
    assert absent_kinds(found, (ObjectKind.MANIFEST, ObjectKind.LOG, ObjectKind.INDEXES)) == absent


def test_an_index_may_be_empty_but_not_missing() -> None:
    indexes = (ObjectKind.OFFSET_INDEX, ObjectKind.TIME_INDEX, ObjectKind.TRANSACTION_INDEX)
    assert absent_kinds([KeptObject(kind, "a", 0, None) for kind in indexes], indexes) == ()
    assert absent_kinds([], indexes) == tuple(sorted(indexes))


class TestStoreWitness:
    def test_a_segment_with_all_of_its_objects_is_not_lost_whatever_they_hold(self, world: World) -> None:
        first, second, _ = segments(world)
        passed(world, second)
        lose(world, second)
        shorten(world, first)
        assert witness(world).doubt(first) is None

    def test_a_missing_segment_is_lost_where_another_one_that_passed_is_whole(self, world: World) -> None:
        first, second, _ = segments(world)
        passed(world, second)
        lose(world, first, "log")
        assert witness(world).doubt(first) is None
        witness(world).require(first)

    @pytest.mark.parametrize("lost", ["log", "indexes", "rsm-manifest"])
    def test_the_store_is_in_doubt_where_the_other_one_lacks_an_object(self, world: World, lost: str) -> None:
        first, second, third = segments(world)
        passed(world, second)
        for one in (first, second):
            lose(world, one, lost)
        doubt = witness(world).doubt(first)
        assert doubt is not None
        assert f"segment {first.remote_log_segment_id} is not whole" in doubt
        assert f"{second.remote_log_segment_id}, which passed: it has no {lost};" in doubt
        assert str(third.remote_log_segment_id) not in doubt
        with pytest.raises(StoreInDoubtError):
            witness(world).require(first)

    def test_the_store_is_in_doubt_where_the_other_one_has_the_manifest_of_a_third(self, world: World) -> None:
        first, second, third = segments(world)
        passed(world, second)
        lose(world, first)
        another_manifest(world, second, third)
        assert "it has a manifest that does not match" in str(witness(world).doubt(first))

    def test_the_store_is_in_doubt_where_the_log_of_the_other_one_is_shorter(self, world: World) -> None:
        first, second, _ = segments(world)
        passed(world, second)
        lose(world, first)
        shorten(world, second)
        assert "it has a log of 999 bytes, not 1000" in str(witness(world).doubt(first))

    def test_without_another_one_that_passed_the_segment_is_lost(self, world: World) -> None:
        first, second, third = segments(world)
        world.metadata.record_verdict(second.remote_log_segment_id, Verdict.FAILED)
        passed(world, first)
        for one in (first, second, third):
            lose(world, one)
        assert witness(world).doubt(first) is None

    def test_a_partition_without_one_that_passed_is_judged_by_another_partition(self, world: World) -> None:
        first, *_ = segments(world)
        elsewhere, *_ = segments(world, "audit")
        passed(world, elsewhere)
        lose(world, first)
        assert witness(world).doubt(first) is None
        lose(world, elsewhere, "log")
        assert str(elsewhere.remote_log_segment_id) in str(witness(world).doubt(first))

    def test_its_own_partition_is_asked_before_others(self, world: World) -> None:
        first, second, _ = segments(world)
        elsewhere, *_ = segments(world, "audit")
        passed(world, elsewhere, second)
        lose(world, first)
        lose(world, elsewhere)
        assert witness(world).doubt(first) is None

    @pytest.mark.parametrize(
        ("verdicts", "asked"),
        [
            ([(Verdict.PASSED, 5), (Verdict.PASSED, 7), (Verdict.PASSED, 6)], 1),
            ([(Verdict.PASSED, 1), (Verdict.EXPIRED, 9), (Verdict.FAILED, 9)], 0),
            ([(Verdict.NONE, 9), (Verdict.EXPIRED, 3), (Verdict.EXPIRED, 2)], 1),
            ([(Verdict.NONE, None), (Verdict.FAILED, 3), (Verdict.NONE, None)], None),
        ],
    )
    def test_the_one_that_passed_last_is_asked_else_the_one_whose_verdict_expired_last(
        self, world: World, verdicts: list[tuple[Verdict, int | None]], asked: int | None
    ) -> None:
        judged = [
            dataclasses.replace(row, verdict=verdict, verdict_at_ms=at_ms)
            for row, (verdict, at_ms) in zip(rows(world), verdicts, strict=True)
        ]
        expected = None if asked is None else judged[asked].metadata
        assert stored_copies._last_passed(judged) == expected

    def test_marker_and_witness_are_looked_at_once_for_each_partition(self, world: World) -> None:
        first, second, third = segments(world)
        other, *_ = segments(world, "audit")
        passed(world, third)
        for one in (first, second, other):
            lose(world, one)
        world.storage = watched = Watched(world.storage)
        judge = witness(world)
        assert [judge.doubt(one) for one in (first, second, first)] == [None] * 3
        assert watched.markers == 1
        assert judge.doubt(other) is None
        assert watched.markers == 2

    def test_a_store_that_cannot_be_read_is_a_reason_to_doubt(self, world: World) -> None:
        first, *_ = segments(world)
        world.storage = watched = Watched(world.storage)
        watched.error = RemoteStorageUnavailableError("no answer")
        with pytest.raises(RemoteStorageError):
            witness(world).doubt(first)
        assert witness(world).doubt_or_error(first) == (
            "it could not be checked whether the store is the right one: no answer"
        )
        watched.error = None
        assert witness(world).doubt_or_error(first) is None


class TestWholeCopy:
    @pytest.fixture
    def whole(self, world: World) -> WholeCopy:
        return WholeCopy(world.storage, SameLimiter(world.limiter))

    def test_a_copy_as_it_was_sent_is_whole(self, world: World, whole: WholeCopy) -> None:
        assert [whole.fault(row) for row in rows(world)] == [None] * 3
        assert all(whole.is_there(row) and not whole.is_in_parts(row) for row in rows(world))

    def test_objects_that_lack_are_named_in_order(self, world: World, whole: WholeCopy) -> None:
        row, *_ = rows(world)
        lose(world, row.metadata, "rsm-manifest", "log")
        assert whole.fault(row) == "has no log, rsm-manifest in the store"
        assert (whole.is_there(row), whole.is_in_parts(row)) == (False, True)

    def test_a_log_of_another_checksum_or_length_is_told_with_both(self, world: World, whole: WholeCopy) -> None:
        first, second, _ = rows(world)
        change(path(world, first.metadata, "log"), lambda content: bytes([content[0] ^ 1]) + content[1:])
        shorten(world, second.metadata)
        assert f"not 1000 with {first.log_crc32c:08x}" in str(whole.fault(first))
        assert "has a log of 1000 bytes with CRC-32C" in str(whole.fault(first))
        assert "has a log of 999 bytes with CRC-32C" in str(whole.fault(second))
        assert not whole.is_in_parts(first)

    def test_another_manifest_and_indexes_of_another_length_are_faults(self, world: World, whole: WholeCopy) -> None:
        first, second, third = rows(world)
        another_manifest(world, first.metadata, third.metadata)
        assert str(whole.fault(first)).startswith("has a manifest that does not match")
        said = path(world, second.metadata, "indexes").stat().st_size
        change(path(world, second.metadata, "indexes"), lambda content: content + b"x")
        assert whole.fault(second) == f"has {said + 1} bytes of indexes, but {said} by its manifest"

    def test_without_a_known_checksum_nothing_is_whole(self, world: World, whole: WholeCopy) -> None:
        row, *_ = rows(world)
        assert whole.fault(dataclasses.replace(row, log_crc32c=None)) == "has no known checksum to compare with"

    @pytest.mark.parametrize("is_passing", [True, False])
    def test_a_failure_that_passes_is_raised_and_any_other_one_is_a_fault(self, world: World, is_passing: bool) -> None:
        class Failing(StorageDecorator):
            def stat_log_segment(self, *_: object) -> Any:
                raise RemoteStorageUnavailableError("away") if is_passing else RemoteStorageError("refused")

        row, *_ = rows(world)
        whole = WholeCopy(Failing(world.storage), SameLimiter(world.limiter))
        assert whole.is_there(row) is None
        if is_passing:
            with pytest.raises(RemoteStorageUnavailableError):
                whole.fault(row)
        else:
            assert whole.fault(row) == "cannot be read: refused"


class TestPlaceProof:
    @pytest.mark.parametrize("read_back", [True, False])
    def test_a_place_that_has_everything(self, world: World, read_back: bool) -> None:
        proof = prove_place(world.storage, world.metadata, read_back=read_back)
        assert (proof, proof.holds) == (PlaceProof(6, 2, 6, 0, ()), True)

    @pytest.mark.parametrize("read_back", [True, False])
    def test_what_lacks_or_has_another_length_is_wrong(self, world: World, read_back: bool) -> None:
        first, second, third = segments(world)
        lose(world, first, "log", "indexes")
        shorten(world, second)
        lose(world, third, "rsm-manifest")
        proof = prove_place(world.storage, world.metadata, read_back=read_back)
        assert proof == PlaceProof(
            6,
            2,
            6,
            3,
            (
                f"{first.remote_log_segment_id}: indexes, log not there",
                f"{second.remote_log_segment_id}: the log has 999 bytes, expected 1000",
                f"{third.remote_log_segment_id}: rsm-manifest not there",
            ),
        )
        assert not proof.holds

    def test_another_checksum_is_wrong_where_the_log_is_read_back(self, world: World) -> None:
        row, *_ = rows(world)
        change(path(world, row.metadata, "log"), lambda content: bytes([content[0] ^ 1]) + content[1:])
        (wrong,) = prove_place(world.storage, world.metadata).missing
        assert wrong.endswith(f"the log is there with another CRC-32C than {row.log_crc32c:08x}")

    def test_what_failed_its_verification_or_is_not_finished_proves_nothing(self, world: World) -> None:
        first, *_ = segments(world)
        world.metadata.record_verdict(first.remote_log_segment_id, Verdict.FAILED)
        lose(world, first)
        assert prove_place(world.storage, world.metadata) == PlaceProof(5, 2, 5, 0, ())

    def test_ten_wrong_segments_are_named_and_all_are_counted(self, world: World) -> None:
        world.source.add("web", segments=11)
        world.plan("more")
        assert len(world.batch("more", "more/0").copied) == 11
        for one in segments(world, "web"):
            lose(world, one, "log")
        proof = prove_place(world.storage, world.metadata)
        assert (proof.segments, proof.partitions, proof.wrong, len(proof.missing)) == (17, 3, 11, 10)


@pytest.mark.parametrize(
    ("rows_of_partition", "total", "chosen"),
    [
        (3, 3, [0, 1, 2]),
        (200, 200, list(range(200))),
        (1, 10_000, [0]),
        (2, 10_000, [0, 1]),
        (5, 10_000, [0, 4]),
        (101, 20_200, [0, 100]),
        (102, 6_800, [0, 50, 101]),
    ],
)
def test_of_many_segments_the_first_the_last_and_some_between_are_checked(
    rows_of_partition: int, total: int, chosen: list[int]
) -> None:
    found: Any = stored_copies._some(range(rows_of_partition), total)  # type: ignore[arg-type]
    assert found == chosen


def test_of_one_more_than_are_all_checked_one_is_left_out() -> None:
    number = stored_copies.ALL_OF + 1
    found: Any = stored_copies._some(range(number), number)  # type: ignore[arg-type]
    assert (len(set(found)), min(found), max(found)) == (200, 0, 200)


def test_a_manifest_explains_another_length_only_of_a_log_that_it_transforms(world: World) -> None:
    """The logs here lie in the store as they are."""
    first, *_ = segments(world)
    manifest = path(world, first, "rsm-manifest").read_bytes()
    assert not explains_length(manifest, 1000, 1000)
    assert not explains_length(None, 1000, 999)
    assert not explains_length(b"{", 1000, 999)
