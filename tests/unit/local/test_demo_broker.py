"""The demonstration over the network says that objects are equal only if they are."""

from pathlib import Path

import pytest

from local import demo_broker


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    """The log of one broker, and a store with the rolled segments of all of its partitions."""
    log_dir, store = tmp_path / "data", tmp_path / "store"
    for partition in ("orders-0", "orders-1", "payments-0"):
        topic, _, number = partition.rpartition("-")
        here, there = log_dir / partition, store / f"{topic}-someTopicId" / number
        for directory in (here, there):
            directory.mkdir(parents=True)
        for base in (0, 10):
            (here / f"{base:020}.log").write_bytes(f"{partition} {base}".encode())
        (there / f"{0:020}-someSegmentId.log").write_bytes(f"{partition} 0".encode())
    return log_dir, store


def test_the_beginning_of_every_log_is_equal(places: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert demo_broker._compare(*places)
    assert capsys.readouterr().out.count("equal to the broker's files") == 3


@pytest.mark.parametrize("stored", [b"orders-1 1", b""])
def test_other_bytes_or_none_are_not(
    places: tuple[Path, Path], stored: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    (log,) = places[1].glob("orders-*/1/*.log")
    log.write_bytes(stored)
    assert not demo_broker._compare(*places)
    assert "orders-1: 1 objects" in (shown := capsys.readouterr().out)
    assert shown.count("NOT equal") == 1
