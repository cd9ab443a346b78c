"""Writers of the file store in processes of their own: raced, and killed on the way."""

import subprocess
import sys
from pathlib import Path

import pytest

from include.tiering.remote_storage.layouts.aiven import AivenLayout
from include.tiering.remote_storage.location import open_storage
from include.tiering.units import MIB
from tests.doubles.storage_backdoor import DirectoryBackdoor
from tests.doubles.stored_log import some_bytes, some_segment

SIZE_BYTES = 20 * MIB


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


def writer(root: Path, pause_after_bytes: int = -1) -> subprocess.Popen[str]:
    """Ready to begin; begins when it is told."""
    module = [sys.executable, "-m", "tests.doubles.storage_writer"]
    process = subprocess.Popen(
        [*module, root.as_uri(), "-", str(SIZE_BYTES), str(pause_after_bytes)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def begin(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def kill_when_paused(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    begin(process)
    assert process.stdout.readline() == "paused\n"
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()


def test_two_writers_of_one_attempt_make_one_set_of_objects(root: Path) -> None:
    writers = [writer(root) for _ in range(2)]
    for process in writers:
        begin(process)
    outcomes = sorted(process.communicate(timeout=600)[0].strip() for process in writers)
    assert outcomes == ["RemoteObjectExistsError", "copied"]

    metadata, data = some_segment(SIZE_BYTES)
    found = open_storage(root.as_uri()).stat_log_segment(metadata)
    planned = AivenLayout().objects(metadata, data)
    assert [(stored.key, stored.crc32c) for stored in found] == [(each.key, each.crc32c) for each in planned]
    backdoor = DirectoryBackdoor(root)
    assert backdoor.raw_keys() == {stored.key for stored in found}
    assert backdoor.raw_read(found[0].key) == some_bytes(SIZE_BYTES, "a")


@pytest.mark.parametrize(
    ("pause_after_bytes", "complete_objects"),
    [(0, 0), (8 * MIB, 0), (SIZE_BYTES, 1), (SIZE_BYTES + 50, 2)],
    ids=["nothing written", "inside the log", "inside the indexes", "inside the manifest"],
)
def test_what_a_killed_writer_leaves_is_removed_by_the_delete_of_its_attempt(
    root: Path, pause_after_bytes: int, complete_objects: int
) -> None:
    kill_when_paused(writer(root, pause_after_bytes))
    backdoor = DirectoryBackdoor(root)
    metadata, _ = some_segment(SIZE_BYTES)
    storage = open_storage(root.as_uri())

    assert len(storage.stat_log_segment(metadata)) == complete_objects
    assert len(backdoor.raw_keys()) == complete_objects + 1, "one temporary file"
    assert len(list(storage.list_objects())) == complete_objects
    assert storage.delete_log_segments([metadata]) == ()
    assert backdoor.raw_keys() == set()
