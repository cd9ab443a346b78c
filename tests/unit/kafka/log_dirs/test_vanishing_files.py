"""Brokers roll, delete and rename while we read: an outcome, never a crash."""

import errno
import os
import shutil
import threading
from collections.abc import Callable
from os import DirEntry
from pathlib import Path

import pytest

from include.tiering import errors
from include.tiering.errors import CorruptFileError, SourceError, SourceUnreadableError, SourceVanishedError
from include.tiering.kafka.cluster.metadata_log import MetadataLog
from include.tiering.kafka.log_dirs.dirs import LogDirLocation, identify, list_partition
from include.tiering.kafka.log_dirs.files import BrokerDirectory, DirectoryState, PartitionDirectoryName
from include.tiering.kafka.log_dirs.found_replica import FoundReplica, UnreadReplica
from include.tiering.kafka.log_dirs.replica_reader import DirReader
from include.tiering.kafka.log_dirs.source import LogDirSource
from tests.doubles.disturbed_directory import DisturbedDirectory
from tests.doubles.log_dirs import BrokerLogDir, PartitionDirectory

NAME = PartitionDirectoryName("orders", 0, DirectoryState.LIVE)


class Setup:
    def __init__(self, root: Path) -> None:
        self.dir = BrokerLogDir(root / "data")
        self.dir.create_topic()
        self.partition = self.dir.partition()
        self.dir.all_current({"orders-0": self.partition.filled(0, 10, 20, 30)})
        self.errors: list[SourceError] = []

    def read(self, *, deep: bool = False, **disturbance: Callable[[str], None]) -> FoundReplica:
        identity = identify(LogDirLocation(1, self.dir.path))
        with DisturbedDirectory(str(self.dir.path), **disturbance) as root:
            return DirReader.of(root, identity, self.errors.append).replica("orders-0", NAME, deep=deep)


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(tmp_path)


def once(action: Callable[[], None]) -> Callable[[str], None]:
    done: list[str] = []

    def act(name: str) -> None:
        if not done:
            done.append(name)
            action()

    return act


def delete_oldest(partition: PartitionDirectory) -> None:
    """As retention does: the `.log` first, then its indexes."""
    oldest = min(partition.path.glob("*.log"))
    for kind in ("log", "index", "timeindex"):
        oldest.with_suffix(f".{kind}").unlink()


@pytest.mark.parametrize("deep", [False, True])
def test_a_segment_deleted_behind_the_listing(setup: Setup, deep: bool) -> None:
    found = setup.read(deep=deep, after_listing=once(lambda: delete_oldest(setup.partition)))
    assert [segment.base_offset for segment in found.segments] == [10, 20, 30]
    assert not any(segment.is_corrupt for segment in found.segments)
    assert setup.errors == []


def test_a_segment_deleted_between_its_files(setup: Setup) -> None:
    """A deep look has the `.log` open already when the index is gone."""

    def before_opening(name: str) -> None:
        if name == f"{0:020d}.index" and setup.partition.file(0, "log").exists():
            delete_oldest(setup.partition)

    found = setup.read(deep=True, before_opening=before_opening)
    assert [segment.base_offset for segment in found.segments] == [10, 20, 30]
    assert setup.errors == []


def test_an_index_that_is_gone_for_good_is_damage(setup: Setup) -> None:
    for deep in (False, True):
        setup.partition.file(10, "timeindex").unlink(missing_ok=True)
        found = setup.read(deep=deep)
        assert [segment.is_corrupt for segment in found.segments] == [False, True, False, False]
    assert [type(error) for error in setup.errors] == [CorruptFileError] * 2


def test_a_roll_behind_the_listing_is_seen_next_time(setup: Setup) -> None:
    def roll() -> None:
        setup.partition.segment(35, [])
        setup.partition.snapshot(35)

    found = setup.read(after_listing=once(roll))
    assert [segment.base_offset for segment in found.segments] == [0, 10, 20, 30]
    assert setup.errors == []


class Hiding(BrokerDirectory):
    """Listings leave out one name: it was created just after they had passed its place."""

    hidden = f"{30:020d}.log"

    def entries(self) -> list[DirEntry[str]]:
        return [entry for entry in super().entries() if entry.name != self.hidden]


def test_a_listing_that_missed_the_log_of_a_roll(setup: Setup) -> None:
    with Hiding(os.open(setup.partition.path, os.O_RDONLY), str(setup.partition.path)) as directory:
        listing = list_partition(directory, setup.errors.append)
        assert [log.base_offset for log in listing.logs] == [0, 10, 20]
        assert (listing.lost, setup.errors) == (frozenset(), [])
        setup.partition.file(30, "log").unlink()
        assert list_partition(directory, setup.errors.append).lost == {30}


def test_a_directory_that_moves_away(setup: Setup) -> None:
    moved = setup.partition.path.with_name(f"orders-0.{'f' * 32}-delete")
    # Held open, it can be read to the end.

    def move() -> None:
        setup.partition.path.rename(moved)

    found = setup.read(after_listing=once(move))
    assert len(found.segments) == 4
    with pytest.raises(SourceVanishedError, match="orders-0: no such file"):
        setup.read()


def test_of_replicas_that_vanish_behind_the_listing_only_a_live_one_is_reported(setup: Setup) -> None:
    """A replica on its way out may go at any time."""
    leaving = setup.dir.partition(f"orders-1.{'d' * 32}-delete")
    leaving.filled(0, 10)

    def delete(name: str) -> None:
        if name == setup.dir.path.name:
            shutil.rmtree(setup.partition.path)
            shutil.rmtree(leaving.path)

    with DisturbedDirectory(str(setup.dir.path), after_listing=delete) as root:
        reader = DirReader.of(root, identify(LogDirLocation(1, setup.dir.path)), setup.errors.append)
        found = list(reader.replicas(None, deep=False))
    assert [(type(one), one.name.partition, one.error.error) for one in found] == [
        (UnreadReplica, 0, "SourceVanishedError")
    ]


def test_a_leaving_replica_that_is_damaged_is_reported(setup: Setup) -> None:
    leaving = setup.dir.partition(f"orders-1.{'d' * 32}-delete")
    leaving.filled(0, 10)
    (leaving.path / "partition.metadata").write_text("version: 0\ntopic_id: none")
    with DisturbedDirectory(str(setup.dir.path)) as root:
        reader = DirReader.of(root, identify(LogDirLocation(1, setup.dir.path)), setup.errors.append)
        found = list(reader.replicas(None, deep=False))
    assert [(type(one), one.name.partition) for one in found if isinstance(one, UnreadReplica)] == [(UnreadReplica, 1)]


def test_a_partition_that_never_stands_still_is_given_up(setup: Setup) -> None:
    def delete(_name: str) -> None:
        delete_oldest(setup.partition)

    with pytest.raises(SourceVanishedError):
        setup.read(after_listing=delete)


def test_a_file_that_shrinks_while_it_is_checked(setup: Setup) -> None:
    def shrink(name: str) -> None:
        if name == f"{10:020d}.index":
            with setup.partition.file(10, "log").open("r+b") as log:
                log.truncate(50)

    found = setup.read(deep=True, before_opening=shrink)
    assert [segment.is_corrupt for segment in found.segments] == [False, True, False, False]
    assert [type(error) for error in setup.errors] == [errors.SourceChangedError]


@pytest.mark.parametrize("name", [f"{10:020d}.index", f"{10:020d}.log", f"{20:020d}.snapshot"])
def test_a_file_that_the_host_refuses_to_read_says_nothing_about_the_records(setup: Setup, name: str) -> None:
    """Such as a file without rights for this user, or a disk that answers with an error."""

    def refuse(opened: str) -> None:
        if opened == name:
            raise SourceUnreadableError(opened, os.strerror(errno.EACCES).lower())

    found = setup.read(deep=True, before_opening=refuse)
    assert [segment.is_unreadable for segment in found.segments] == [False, True, False, False]
    assert not any(segment.is_corrupt for segment in found.segments)
    assert [type(error) for error in setup.errors] == [SourceUnreadableError]


def test_an_active_segment_that_the_host_refuses_to_read_is_not_corrupt(setup: Setup) -> None:
    def refuse(opened: str) -> None:
        if opened == f"{30:020d}.log":
            raise SourceUnreadableError(opened, os.strerror(errno.EIO).lower())

    active = setup.read(before_opening=refuse).segments[-1]
    assert (active.is_unreadable, active.is_corrupt) == (True, False)


def test_scans_beside_a_broker_that_never_rests(setup: Setup) -> None:
    """Deletes, recreations and renames in another thread: every outcome has a type and a path."""
    saved = setup.dir.path.parent / "saved"
    shutil.copytree(setup.partition.path, saved)
    stop = threading.Event()

    def live() -> None:
        while not stop.is_set():
            for _ in range(3):
                delete_oldest(setup.partition)
            aside = setup.partition.path.with_name(f"orders-0.{'e' * 32}-delete")
            setup.partition.path.rename(aside)
            shutil.copytree(saved, setup.partition.path)
            shutil.rmtree(aside)

    broker = threading.Thread(target=live)
    source = LogDirSource([LogDirLocation(1, setup.dir.path)], MetadataLog([setup.dir.path]))
    broker.start()
    try:
        reports = [source.scan(deep=number % 2 == 1) for number in range(40)]
    finally:
        stop.set()
        broker.join()
    for report in reports:
        for error in report.errors:
            assert issubclass(getattr(errors, error.error), errors.SourceError)
            assert "orders-0" in error.path
        for replica in report.replicas:
            assert replica.topic_id_partition.topic == "orders"
