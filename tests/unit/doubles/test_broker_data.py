"""The bundled log directories arrive whole, and a test may write into its copy only."""

import filecmp
import stat
from pathlib import Path

from tests.doubles.broker_data import broker_data, copy_of, expected


def test_every_file_of_the_oracle_is_there_with_its_size() -> None:
    partitions = expected("public")["snapshots"]["stopped"]["broker-1"]["partitions"]
    directory = broker_data("public") / "stopped" / "broker-1"
    assert partitions
    for name, partition_metadata in partitions.items():
        found = {path.name: path.stat().st_size for path in (directory / name).iterdir()}
        assert found == partition_metadata["files"], name


def test_the_unpacked_tree_may_not_be_written() -> None:
    writable = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH
    for path in broker_data("crash").rglob("*"):
        assert not path.stat().st_mode & writable, path


def test_a_copy_is_equal_and_sparse_and_writable(tmp_path: Path) -> None:
    original = broker_data("crash") / "killed"
    copy = copy_of("crash", tmp_path, part="killed")
    for path in original.rglob("*.*"):
        twin = copy / path.relative_to(original)
        assert filecmp.cmp(path, twin, shallow=False), path
        assert twin.stat().st_mtime_ns == path.stat().st_mtime_ns
        assert twin.stat().st_blocks <= path.stat().st_blocks + 16
        assert twin.stat().st_mode & stat.S_IWUSR
