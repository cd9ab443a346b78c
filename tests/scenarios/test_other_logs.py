"""What every command says where a log directory shows another log, an old one, or damage that no copy needs."""

import os
from pathlib import Path

import pytest

from tests.doubles.log_dirs import CLEANED, HIGH_WATERMARKS, RECOVERY_POINTS
from tests.doubles.tiered_topic import config_record
from tests.doubles.two_histories import TwoBrokers as Cluster

pytestmark = pytest.mark.integration

ABOVE_END = "high watermark above the log's end: the checkpoint belongs to another log, or the log's end is missing"
OLDER = "checkpoint older than the log: it belongs to another log of this name"
BEGUN = 1_800_000_000.0


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


def wrote(cluster: Cluster, broker: int, name: str, offset: int, at: float) -> None:
    cluster.dirs[broker].checkpoint(name, {"orders-0": offset})
    os.utime(cluster.dirs[broker].path / name, (BEGUN + at, BEGUN + at))


def begun_again(cluster: Cluster, high_watermark: int, *, age: float) -> None:
    """`orders` is another topic since `BEGUN`; the high watermark is of the older one."""
    cluster.partitions[1].written_at(BEGUN, BEGUN + 1, BEGUN + 2, BEGUN + 3)
    wrote(cluster, 1, RECOVERY_POINTS, 25, 3)
    wrote(cluster, 1, HIGH_WATERMARKS, high_watermark, age)
    wrote(cluster, 2, HIGH_WATERMARKS, 0, 3)


@pytest.mark.parametrize(("high_watermark", "age", "reason"), [(3_000, -3, ABOVE_END), (20, -3, OLDER)])
def test_every_command_says_why_a_topic_that_was_made_again_waits(
    cluster: Cluster, high_watermark: int, age: float, reason: str
) -> None:
    begun_again(cluster, high_watermark, age=age)
    code, scanned = cluster.run("scan")
    (leader,) = [one for one in scanned["partitions"] if one["chosen"]]
    assert (code, len(scanned["errors"])) == (1, 1)
    assert {segment["reason_message"] for segment in leader["segments"]} == {reason}
    code, planned = cluster.run("plan")
    assert (code, planned["partitions"]) == (1, [])
    assert [(one["next_offset"], one["detail"]) for one in planned["held_back"]] == [(0, reason)]
    code, copied = cluster.run("copy")
    assert (code, copied["copied"], len(copied["errors"])) == (1, [], 1)
    assert [one["detail"] for one in copied["held_back"]] == [reason]
    code, ready = cluster.run("ready", "--topic", "orders")
    assert (code, [one["detail"] for one in ready["partitions"]]) == (3, [reason])
    code, doctor = cluster.run("doctor", "orders")
    assert code == 1
    assert [(one["tiers"], reason in one["finding"]) for one in doctor["partitions"]] == [(False, True)]
    wrote(cluster, 1, HIGH_WATERMARKS, 10, 5)
    code, copied = cluster.run("copy")
    assert (code, [(one["start_offset"], one["end_offset"]) for one in copied["copied"]]) == (0, [(0, 9)])


def test_an_old_directory_of_the_leader_is_held_back(cluster: Cluster) -> None:
    log_dir = cluster.dirs[2]
    (log_dir.path / "orders-0").rename(cluster.directory / "before")
    log_dir.all_current({"orders-0": log_dir.partition().filled(0, 10, 20, 30, 40)})
    code, copied = cluster.run("copy")
    assert (code, copied["copied"]) == (1, [])
    assert "its log ends at 25, but broker 2, a follower" in copied["errors"][0]["message"]
    assert cluster.run("doctor", "orders")[0] == 1
    assert cluster.run("ready", "--topic", "orders")[0] == 3


def test_a_follower_that_its_broker_gave_up_does_not_fail_the_copy(cluster: Cluster) -> None:
    wrote(cluster, 2, HIGH_WATERMARKS, 3_000, 0)
    for command in ("scan", "plan", "copy"):
        code, said = cluster.run(command)
        assert (code, said["errors"]) == (0, [])
        assert [note["message"] for note in said["notes"]] == [
            "the log ends at offset 25, but the broker's checkpoints have 3000"
        ]
    assert len(said["copied"]) == 2
    assert cluster.run("copy")[0] == 0
    assert cluster.run("doctor", "orders")[0] == 0


def emptied(cluster: Cluster) -> None:
    for partition in cluster.partitions.values():
        for kind in ("log", "index", "timeindex"):
            partition.file(10, kind).write_bytes(b"")


def test_empty_segments_of_a_compacted_topic_are_no_finding(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, {"cleanup.policy": "compact"})
    emptied(cluster)
    for command in ("scan", "plan", "copy"):
        code, said = cluster.run(command)
        assert (code, said["errors"]) == (0, [])


def test_an_empty_segment_of_a_topic_that_was_compacted_waits_and_is_not_called_corrupt(cluster: Cluster) -> None:
    emptied(cluster)
    for log_dir in cluster.dirs.values():
        log_dir.checkpoint(CLEANED, {"orders-0": 20})
    wrote(cluster, 2, HIGH_WATERMARKS, 25, 0)
    scanned = cluster.run("scan")[1]
    (leader,) = [one for one in scanned["partitions"] if one["chosen"]]
    assert [segment["reason"] for segment in leader["segments"]] == ["compacted"] * 3
    for log_dir in cluster.dirs.values():
        log_dir.append_metadata(config_record("orders", "cleanup.policy", "delete"))
    scanned = cluster.run("scan")[1]
    (leader,) = [one for one in scanned["partitions"] if one["chosen"]]
    assert [segment["reason"] for segment in leader["segments"]] == [None, "compacted-segment", "active"]
    code, copied = cluster.run("copy")
    assert (code, [one["start_offset"] for one in copied["copied"]], copied["errors"]) == (1, [0], [])
    assert [(one["reason"], one["detail"]) for one in copied["held_back"]] == [("compacted", "offsets 10..19")]
    code, doctor = cluster.run("doctor", "orders")
    assert (code, [one["advice"] for one in doctor["partitions"]]) == (
        1,
        ["if the archive may continue without these offsets: ./tiering skip orders --partition 0 --reason TEXT"],
    )


def test_swapped_broker_ids_are_nothing_to_wait_for(cluster: Cluster) -> None:
    first, second = cluster.dirs[1].path, cluster.dirs[2].path
    cluster.log_dirs = [(1, second), (2, first)]
    code, ready = cluster.run("ready")
    (check,) = [one for one in ready["checks"] if not one["ok"]]
    assert (code, check["name"], check["waitable"]) == (1, "log dirs", False)
    assert "belongs to broker 2, the settings say broker 1: correct log_dirs" in check["message"]


def test_a_directory_that_is_named_twice_through_a_link_is_nothing_to_wait_for(cluster: Cluster) -> None:
    link = cluster.directory / "link"
    link.symlink_to(cluster.dirs[1].path)
    cluster.log_dirs.append((1, link))
    assert cluster.run("copy")[0] == 1
    code, ready = cluster.run("ready")
    (check,) = [one for one in ready["checks"] if not one["ok"]]
    assert (code, check["name"], check["waitable"]) == (1, "log dirs", False)
    assert f"{link} and {cluster.dirs[1].path} both are directory" in check["message"]
