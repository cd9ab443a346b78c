"""Bytes that are local alone count for `retention.bytes`. What a damaged local file says of its size must not make
anything go that is remote."""

import os
from pathlib import Path

import pytest

from include.tiering.units import MIB
from tests.doubles.archive import EVERYTHING, Archive

pytestmark = pytest.mark.integration

FAR = 2**40
RETENTION_BYTES = 100_000_000


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """All but the last rolled segment of `orders-0` is remote: that one is local alone."""
    archive = Archive.of(tmp_path)
    archive.copy()
    with archive.open() as app:
        (partition,) = (one for one in app.adapters.stores.metadata.partitions() if one.partition == 0)
        last = app.adapters.stores.metadata.list_segments(partition)[-1].metadata
        assert last.start_offset == 808
    return archive


def rolled_behind_the_archive(archive: Archive) -> list[Path]:
    """The active segment of `orders-0` rolls: it is a rolled one that is not remote yet. Its `.log` of each broker."""
    logs = []
    for directory in (archive.partition_dir(broker, 0) for broker in (1, 2)):
        if not directory.exists():
            continue
        logs.append(max(directory.glob("*.log")))
        for kind in ("index", "timeindex"):
            active = logs[-1].with_suffix(f".{kind}")
            active.write_bytes(trim(active.read_bytes(), 8 if kind == "index" else 12))
        for kind in ("log", "index", "timeindex"):
            (directory / f"{10_000:020d}.{kind}").write_bytes(b"")
    return logs


def trim(index: bytes, entry_bytes: int) -> bytes:
    """Without the zeros that brokers preallocate."""
    entries = [index[at : at + entry_bytes] for at in range(0, len(index), entry_bytes)]
    return b"".join(one for one in entries if any(one))


def sizes(archive: Archive) -> list[int]:
    return [one.segment_size_bytes for p, found in archive.remote().items() if p.partition == 0 for one in found]


def test_a_file_that_was_extended_counts_as_nothing(archive) -> None:
    for log in rolled_behind_the_archive(archive):
        os.truncate(log, FAR)
    archive.set(retention_bytes=RETENTION_BYTES)
    run, _ = archive.expire()
    assert run.items == []
    assert archive.left() == EVERYTHING
    sentences = [one.sentence for one in run.unknowns if one.topic_id_partition.partition == 0]
    assert any("which count as 0" in one for one in sentences), sentences


def test_an_extension_that_the_disk_has(archive) -> None:
    """No hole: 16 MiB of bytes that are no batch follow."""
    for log in rolled_behind_the_archive(archive):
        with log.open("ab") as end:
            end.write(b"\xa5" * 16 * MIB)
    archive.set(retention_bytes=8 * MIB)
    run, _ = archive.expire()
    assert run.items == []
    sentences = [one.sentence for one in run.unknowns if one.topic_id_partition.partition == 0]
    assert any("its batches end at byte" in one for one in sentences), sentences


def test_a_segment_that_is_whole_counts(archive) -> None:
    """Retention that all but the oldest segment fit: only with the local bytes is the excess as large as that one."""
    local_bytes = rolled_behind_the_archive(archive)[0].stat().st_size
    _, *others = sizes(archive)
    archive.set(retention_bytes=sum(others) + local_bytes)
    run, _ = archive.expire()
    in_question = [one for one in run.items if one.planned.segment_id.topic_id_partition.partition == 0]
    assert [one.planned.start_offset for one in in_question] == [0]
    assert [one.sentence for one in run.unknowns if "count as 0" in one.sentence] == []
