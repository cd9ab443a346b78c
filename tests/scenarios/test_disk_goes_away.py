"""The disk of a directory store goes away while segments are copied: what is FINISHED lies on it all the same."""

import os
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from include.tiering.app import App, open_app
from include.tiering.copying.copy_batch import BatchResult
from include.tiering.copying.copy_segment import CopyStep
from include.tiering.model.segments import RemoteLogSegmentState, TopicIdPartition
from include.tiering.quotas.contract import Scope
from include.tiering.remote_storage.contract import ObjectKind
from tests.doubles.archive import Archive, settings_of
from tests.doubles.quotas import SameLimiter

pytestmark = pytest.mark.integration

RUN = "interrupted"
SECOND_OF_PARTITION_0 = 96


class RenamedDisk:
    """Stands for a disk that is not mounted: its directory has another name, and an empty one is in its place."""

    def __init__(self, store: Path) -> None:
        self.store, self.disk = store, store.with_name("disk")

    def goes(self) -> None:
        self.store.rename(self.disk)
        self.store.mkdir()

    def comes_back(self) -> None:
        self.store.rename(self.store.with_name("under-the-mount-point"))
        self.disk.rename(self.store)


class RemovedDisk(RenamedDisk):
    """Nothing is in its place: what a stick leaves that is pulled out."""

    def goes(self) -> None:
        self.store.rename(self.disk)

    def comes_back(self) -> None:
        self.disk.rename(self.store)


class MountedDisk(RenamedDisk):
    """A real mount, lazily unmounted, as files of it are open."""

    def __init__(self, store: Path) -> None:
        super().__init__(store)
        store.rename(self.disk)
        store.mkdir()
        self.comes_back()

    def goes(self) -> None:
        subprocess.run(["umount", "-l", str(self.store)], check=True)

    def comes_back(self) -> None:
        mounted = subprocess.run(["mount", "--bind", str(self.disk), str(self.store)], capture_output=True, check=False)
        if mounted.returncode:
            pytest.skip("a bind mount needs root: run as root to unmount a real one")


class ReplacedMarker(RenamedDisk):
    """The disk stays, and its marker is something else: a pipe would hold a reader up for ever."""

    def __init__(self, store: Path, replace: Callable[[Path], object]) -> None:
        super().__init__(store)
        self.marker, self.kept = store / "_tiering-store.json", store.with_name("marker")
        self.replace = replace

    def goes(self) -> None:
        self.marker.rename(self.kept)
        self.replace(self.marker)

    def comes_back(self) -> None:
        self.marker.rmdir() if self.marker.is_dir() else self.marker.unlink()
        self.kept.rename(self.marker)


def link_to_itself_elsewhere(marker: Path) -> None:
    marker.symlink_to(marker.parent.with_name("marker"))


@dataclass
class Deployment:
    archive: Archive
    disk: RenamedDisk

    @contextmanager
    def open(self, at: tuple[CopyStep, int] | None = None, take: int | None = None) -> Iterator[App]:
        """The disk goes away when step `at` is reached, or when the limiter is asked for bytes the `take`th time."""

        moments = {at}

        def observe(step: CopyStep, partition: TopicIdPartition, base_offset: int) -> None:
            if partition.partition == 0 and (step, base_offset) in moments:
                moments.clear()
                self.disk.goes()

        with open_app(settings_of(self.archive.config), observe=observe) as app:
            if take is not None:
                app.adapters.quotas = SameLimiter(GoingAway(take, self.disk.goes))
            yield app

    def copied(self, at: tuple[CopyStep, int] | None = None, take: int | None = None) -> BatchResult:
        with self.open(at, take) as app:
            app.copying.plan(RUN)
            return app.copying.run_batch(RUN, f"{RUN}/0")

    def require_nothing_dangles(self) -> int:
        """Every FINISHED segment has its objects in the store, and passes; how many there are."""
        finished = [one for segments in self.archive.remote().values() for one in segments]
        with self.archive.open() as app:
            for segment in finished:
                kinds = {stored.kind for stored in app.adapters.storage.stat_log_segment(segment)}
                assert kinds >= {ObjectKind.LOG, ObjectKind.MANIFEST, ObjectKind.INDEXES}, segment.start_offset
            audited = app.audit.run("audit-1")
            assert [one for one in audited.findings if one.kind == "dangling-reference"] == []
        return len(finished)


@dataclass
class GoingAway:
    """A limiter that grants 4 KiB at a time, and runs `action` when it is asked the `nth` time."""

    nth: int
    action: Callable[[], None]
    waited_seconds: float = 0.0
    waits_for: Scope | None = None

    def take(self, wanted_bytes: int) -> int:
        self.nth -= wanted_bytes > 0
        if self.nth == 0:
            self.nth = -1
            self.action()
        return min(wanted_bytes, 4096)


@pytest.fixture(params=[RenamedDisk, RemovedDisk, MountedDisk])
def deployment(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Deployment]:
    archive = Archive.of(tmp_path)
    yield Deployment(archive, request.param(tmp_path / "store"))
    subprocess.run(["umount", "-l", str(tmp_path / "store")], capture_output=True, check=False)


MOMENTS = [
    (CopyStep.STARTED, 0),
    *((step, SECOND_OF_PARTITION_0) for step in (CopyStep.STARTED, CopyStep.SENT, CopyStep.RECHECKED)),
]


@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: f"{moment[0]}-{moment[1]}")
def test_it_goes_away_at_a_step(deployment: Deployment, moment: tuple[CopyStep, int]) -> None:
    require_whole_after(deployment, deployment.copied(at=moment))


@pytest.mark.parametrize("take", [4, 9, 20])
def test_it_goes_away_while_bytes_are_sent(deployment: Deployment, take: int) -> None:
    require_whole_after(deployment, deployment.copied(take=take))


@pytest.mark.parametrize(
    "replace", [os.mkfifo, link_to_itself_elsewhere, Path.mkdir, lambda marker: marker.write_bytes(b"\0{]" * 99)]
)
@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: f"{moment[0]}-{moment[1]}")
def test_its_marker_becomes_something_else(
    tmp_path: Path, moment: tuple[CopyStep, int], replace: Callable[[Path], object]
) -> None:
    archive = Archive.of(tmp_path)
    deployment = Deployment(archive, ReplacedMarker(tmp_path / "store", replace))
    require_whole_after(deployment, deployment.copied(at=moment), because="_tiering-store.json")


def require_whole_after(deployment: Deployment, result: BatchResult, *, because: str = "mounted") -> None:
    deployment.disk.comes_back()
    assert deployment.require_nothing_dangles() == len(result.copied)
    assert result.failed
    assert all(because in (failed.item.message or "") for failed in result.failed), result.failed
    deployment.archive.copy()
    assert deployment.require_nothing_dangles() == 10
    deployment.archive.require_served()
    deployment.archive.require_no_other_objects()


def test_an_attempt_in_a_store_that_is_not_ours_keeps_its_row_until_it_can_be_cleaned_up(
    deployment: Deployment,
) -> None:
    deployment.copied(at=(CopyStep.SENT, SECOND_OF_PARTITION_0))
    with deployment.archive.open() as app:
        states = [
            row.metadata.state
            for p in app.adapters.stores.metadata.partitions()
            for row in app.adapters.stores.metadata.list_segments(p)
        ]
    assert RemoteLogSegmentState.DELETE_SEGMENT_STARTED in states
    deployment.disk.comes_back()
    with deployment.archive.open() as app:
        before = {key for key, _ in app.adapters.storage.list_objects()}
        app.copying.plan("resumed")
        app.copying.run_batch("resumed", "resumed/0")
        after = {key for key, _ in app.adapters.storage.list_objects()}
    removed = before - after
    of_attempts = Counter(key.rpartition(".")[0] for key in removed)
    assert 3 in of_attempts.values(), "of one that was stored; of those in flight beside it less may be there"
    deployment.archive.require_no_other_objects()


def test_one_that_is_opened_once_goes_on_when_the_disk_is_back(deployment: Deployment) -> None:
    with deployment.open(at=(CopyStep.STARTED, SECOND_OF_PARTITION_0)) as app:
        app.copying.plan(RUN)
        assert app.copying.run_batch(RUN, f"{RUN}/0").failed
        deployment.disk.comes_back()
        app.copying.plan("resumed")
        assert app.copying.run_batch("resumed", "resumed/0").failed == ()
    assert deployment.require_nothing_dangles() == 10
