"""200 damaged log directories: every item has a typed error with file and position, and nothing else suffers."""

import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from include.tiering import errors
from include.tiering.kafka.cluster.metadata_log import MetadataLog
from include.tiering.kafka.log_dirs.contract import Replica, ScanReport
from include.tiering.kafka.log_dirs.dirs import LogDirLocation
from include.tiering.kafka.log_dirs.source import LogDirSource
from tests.doubles.broker_data import broker_data, copy_of
from tests.doubles.damage import damage

pytestmark = pytest.mark.chaos

PART = "running/broker-2"
SEEDS = range(200)


@pytest.fixture
def log_dir(tmp_path: Path) -> Iterator[Path]:
    yield copy_of("public", tmp_path, part=PART)
    shutil.rmtree(tmp_path)


def _scan(log_dir: Path, *, deep: bool) -> ScanReport:
    return LogDirSource([LogDirLocation(2, log_dir)], MetadataLog([log_dir])).scan(deep=deep)


@cache
def _undamaged(deep: bool) -> dict[str, Replica]:
    report = _scan(broker_data("public") / PART, deep=deep)
    assert report.errors == ()
    return _by_partition(report)


def _by_partition(report: ScanReport) -> dict[str, Replica]:
    return {str(replica.topic_id_partition): replica for replica in report.replicas}


@pytest.mark.parametrize("seed", SEEDS)
def test_damage_is_named_and_contained(log_dir: Path, seed: int) -> None:
    done = damage(log_dir, seed)
    for deep in (False, True):
        report = _scan(log_dir, deep=deep)
        _require_typed_and_printable(report, log_dir)
        found, sound = _by_partition(report), _undamaged(deep)
        if done.partition is not None:
            for name in sound.keys() - {done.partition}:
                assert found[name] == sound[name], f"{done.what} changed {name}"
            _require_named(report, found.get(done.partition), sound[done.partition], done.what, deep=deep)
        if deep:
            for name, replica in found.items():
                _require_eligible_segments_sound(replica, sound[name], log_dir / name, done.what)


def _require_typed_and_printable(report: ScanReport, log_dir: Path) -> None:
    for error in (*report.errors, *report.notes):
        assert issubclass(getattr(errors, error.error), errors.TieringError)
        assert error.position is None or error.position >= 0
        assert error.path.isprintable()
        assert error.message.isprintable()
        assert error.path.startswith(str(log_dir))


def _require_named(report: ScanReport, found: Replica | None, sound: Replica, what: str, *, deep: bool) -> None:
    """The damage has an error with the partition's path (a note, where no copy reads the partition), or a reason, or it
    means nothing: then nothing changed.

    A cheap look does not read the batches of rolled segments; all that it may then miss is found by the deep one.
    """
    partition = str(sound.topic_id_partition)
    if any(f"/{partition}" in error.path for error in (*report.errors, *report.notes)):
        return
    if found is None:
        pytest.fail(f"{what}: the replica is gone without a word")
    eligible = [segment.base_offset for segment in found.segments if segment.eligible]
    was_eligible = [segment.base_offset for segment in sound.segments if segment.eligible]
    assert set(eligible) <= set(was_eligible), what
    if deep and eligible == was_eligible and found.log_end_offset == sound.log_end_offset:
        assert [s.batch_count for s in found.segments] == [s.batch_count for s in sound.segments], what


def _require_eligible_segments_sound(replica: Replica, sound: Replica, directory: Path, what: str) -> None:
    """What may be copied has the bytes that the broker wrote."""
    original = broker_data("public") / PART / directory.name
    for segment in replica.segments:
        if segment.eligible:
            before = sound.segment_at(segment.base_offset)
            assert before is not None, what
            assert (segment.end_offset, segment.size_bytes) == (before.end_offset, before.size_bytes), what
            for name in (f"{segment.base_offset:020d}.log", f"{segment.end_offset + 1:020d}.snapshot"):
                assert (directory / name).read_bytes() == (original / name).read_bytes(), f"{what}: {name}"
