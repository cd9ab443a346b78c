"""A topic whose cleanup.policy was `compact` for a while: what the commands say of what the log cleaner left, and how
the archive goes on behind it."""

from pathlib import Path
from typing import Any

import pytest

from tests.doubles.log_dirs import CLEANED, ORDERS
from tests.doubles.record_batches import record_batch
from tests.doubles.tiered_topic import partition_change, partition_record, topic_record
from tests.doubles.two_histories import TwoBrokers

pytestmark = pytest.mark.integration

COMPACTED = "compacted"
SKIP = ("skip", "orders", "--partition", "0", "--reason", "agreed with the owner")


@pytest.fixture
def cluster(tmp_path: Path) -> TwoBrokers:
    """`orders` has segments of ten offsets, two batches each, from 0 to 49; the active one begins at 50."""
    made = TwoBrokers(tmp_path)
    for log_dir, partition in zip(made.dirs.values(), made.partitions.values(), strict=True):
        log_dir.all_current({"orders-0": partition.filled(0, 10, 20, 30, 40, 50)})
    return made


def compacted(cluster: TwoBrokers, *bases: int) -> None:
    """The cleaner takes the first batch of these segments, and all of those that are given as negative numbers. After
    that the policy is `delete` again."""
    cluster.configured("orders", "cleanup.policy", "compact")
    for log_dir, partition in zip(cluster.dirs.values(), cluster.partitions.values(), strict=True):
        for base in map(abs, bases):
            left = (
                [] if -base in bases else [record_batch(base + 5, count=5, timestamp_ms=1_700_000_000_000 + base + 5)]
            )
            partition.segment(base, left, next_base=base + 10)
        log_dir.checkpoint(CLEANED, {"orders-0": 50})
    cluster.configured("orders", "cleanup.policy", "delete")


def leader_of(said: dict[str, Any]) -> dict[str, Any]:
    (found,) = [one for one in said["partitions"] if one["chosen"]]
    return found


def starts(said: dict[str, Any]) -> list[int]:
    return [one["start_offset"] for one in said["copied"]]


def waits(said: dict[str, Any]) -> list[tuple[int, str, str]]:
    return [(one["next_offset"], one["reason"], one["detail"]) for one in said["held_back"]]


def test_what_was_compacted_before_it_was_copied_is_said_by_every_command_and_can_be_decided(
    cluster: TwoBrokers,
) -> None:
    assert cluster.run("copy", "--limit-bytes", "1")[0] == 0
    compacted(cluster, 10, -20)
    expected = [(10, COMPACTED, "offsets 10..29; see ./tiering skip")]
    for command in ("plan", "copy"):
        code, said = cluster.run(command)
        assert (code, waits(said), said["errors"], said.get("failed", [])) == (1, expected, [], [])
    code, ready = cluster.run("ready", "--topic", "orders")
    assert (code, [one["ready"] for one in ready["partitions"]]) == (1, [False])
    code, doctor = cluster.run("doctor", "orders")
    (line,) = doctor["partitions"]
    assert (code, line["cause"], "offsets 10..29" in line["finding"]) == (1, "held-back", True)
    assert "./tiering skip orders --partition 0 --reason TEXT" in line["advice"]
    code, scanned = cluster.run("scan", "--deep")
    assert (code, scanned["errors"]) == (0, [])
    reasons = [segment["reason"] for segment in leader_of(scanned)["segments"]]
    assert reasons == [None, "compacted-segment", "compacted-segment", None, None, "active"]

    code, refused = cluster.run(*SKIP)
    assert (code, refused["recorded"]) == (1, [])
    code, done = cluster.run(*SKIP, "--approve")
    assert (code, done["first_offset"], done["last_offset"], done["offsets"]) == (0, 10, 29, 20)
    assert [one["reason"] for one in done["recorded"]] == ["compacted away before it was copied: agreed with the owner"]
    code, copied = cluster.run("copy")
    assert (code, starts(copied), copied["held_back"]) == (0, [30, 40], [])
    arguments: tuple[str, ...]
    for arguments in (("plan",), ("ready", "--topic", "orders"), ("doctor", "orders"), ("verify", "--depth", "deep")):
        assert cluster.run(*arguments)[0] == 0, arguments
    assert "compacted away before it was copied: agreed with the owner" in cluster.text(
        "fetch", "orders", "0", "--offset", "12", "--output", str(cluster.directory / "read")
    )
    code, audited = cluster.run("audit")
    assert (code, audited["findings"]) == (0, [])
    assert [one["segments"] for one in cluster.run("sizes")[1]["copy_lag"]] == [0]
    code, said = cluster.run("plan")
    assert (code, said["partitions"], said["held_back"]) == (0, [], [])


def test_a_copy_that_meets_a_compacted_segment_says_so_and_the_next_plan_knows_it(cluster: TwoBrokers) -> None:
    compacted(cluster, 20)
    code, copied = cluster.run("copy")
    assert (code, starts(copied)) == (1, [0, 10])
    (failed,) = copied["failed"]
    assert (failed["base_offset"], failed["error"]) == (20, "CompactedSegmentError")
    assert failed["message"] == (
        "offset 20 is in no batch, but the segment must hold 20..29: it was compacted away before it was copied;"
        " see ./tiering skip"
    )
    code, planned = cluster.run("plan")
    assert (code, planned["partitions"]) == (1, [])
    assert waits(planned) == [(20, COMPACTED, "offsets 20..29; see ./tiering skip")]
    assert cluster.run("doctor", "orders")[0] == 1
    assert cluster.run(*SKIP, "--approve")[0] == 0
    assert starts(cluster.run("copy")[1]) == [30, 40]


def test_the_first_copy_of_a_topic_begins_behind_what_was_compacted_by_decision(cluster: TwoBrokers) -> None:
    compacted(cluster, 0, -10)
    code, copied = cluster.run("copy")
    assert (code, starts(copied), waits(copied)) == (1, [], [(0, COMPACTED, "offsets 0..19; see ./tiering skip")])
    assert cluster.run(*SKIP, "--approve")[0] == 0
    code, copied = cluster.run("copy")
    assert (code, starts(copied), copied["held_back"]) == (0, [20, 30, 40], [])
    assert cluster.run("verify", "--depth", "deep")[0] == 0
    assert cluster.run("audit")[1]["findings"] == []
    assert cluster.run("ready", "--topic", "orders")[0] == 0


def test_a_segment_that_is_half_copied_is_given_up_behind_what_was_copied(cluster: TwoBrokers) -> None:
    """The leader rolled elsewhere: 0..9 are copied, the next segment is 5..19."""
    assert cluster.run("copy", "--limit-bytes", "1")[0] == 0
    for partition in cluster.partitions.values():
        for base in (0, 10):
            partition.remove_segment(base)
        partition.segment(0, [record_batch(0, count=5, timestamp_ms=1_700_000_000_000)], next_base=5)
        partition.segment(5, [record_batch(5, count=5), record_batch(15, count=5)], next_base=20)
    compacted(cluster)
    assert waits(cluster.run("plan")[1]) == [(10, COMPACTED, "offsets 10..19; see ./tiering skip")]
    code, done = cluster.run(*SKIP, "--approve")
    assert (code, done["first_offset"], done["last_offset"]) == (0, 10, 19)
    assert starts(cluster.run("copy")[1]) == [20, 30, 40]


def test_a_replica_that_is_whole_after_all_is_copied_whatever_was_decided(cluster: TwoBrokers) -> None:
    assert cluster.run("copy", "--limit-bytes", "1")[0] == 0
    whole = {path.name: path.read_bytes() for path in cluster.partitions[2].path.iterdir()}
    compacted(cluster, 10)
    assert cluster.run(*SKIP, "--approve")[0] == 0
    for name, content in whole.items():
        (cluster.partitions[2].path / name).write_bytes(content)
    for log_dir in cluster.dirs.values():
        log_dir.append_metadata(partition_change(ORDERS, leader=2))
    assert starts(cluster.run("copy")[1]) == [10, 20, 30, 40]


def test_offsets_that_are_missing_where_nothing_was_compacted_are_damage(cluster: TwoBrokers) -> None:
    for partition in cluster.partitions.values():
        partition.segment(10, [record_batch(15, count=5, timestamp_ms=1_700_000_000_015)], next_base=20)
    code, scanned = cluster.run("scan", "--deep")
    (error,) = scanned["errors"]
    assert (code, error["message"]) == (
        1,
        "offset 10 is in no batch, but the segment must hold 10..19: a file is missing, or the segment was compacted",
    )
    reasons = [segment["reason"] for segment in leader_of(scanned)["segments"]]
    assert reasons[:3] == [None, "corrupt", "after-corrupt"]
    code, copied = cluster.run("copy")
    assert (code, starts(copied), copied["failed"][0]["error"]) == (1, [0], "CorruptFileError")
    code, done = cluster.run(*SKIP, "--approve")
    assert (done["first_offset"], done["recorded"]) == (None, [])


def test_damage_in_a_topic_that_was_compacted_stays_damage(cluster: TwoBrokers) -> None:
    compacted(cluster)
    for partition in cluster.partitions.values():
        path = partition.file(10, "log")
        path.write_bytes(path.read_bytes()[:-7])
    code, copied = cluster.run("copy")
    assert (code, starts(copied), copied["failed"][0]["error"]) == (1, [0], "CorruptFileError")
    code, done = cluster.run(*SKIP, "--approve")
    assert (done["first_offset"], done["recorded"]) == (None, [])
    code, scanned = cluster.run("scan", "--deep")
    assert (code, leader_of(scanned)["segments"][1]["reason"]) == (1, "corrupt")


def test_what_is_damaged_in_topics_that_are_never_tiered_changes_no_exit_code(cluster: TwoBrokers) -> None:
    cluster.include = ["*"]
    for number, (name, configs) in enumerate({"table": "compact", "table-2": "compact,delete"}.items()):
        topic_id = type(ORDERS)(bytes([number + 7]) * 16)
        for log_dir in cluster.dirs.values():
            log_dir.append_metadata(topic_record(name, topic_id), partition_record(topic_id, replicas=(1, 2)))
            partition = log_dir.partition(f"{name}-0", topic_id)
            partition.filled(0, 10, 20)
            partition.segment(0, [], next_base=10)
            partition.file(10, "timeindex").write_bytes(b"damaged")
        cluster.configured(name, "cleanup.policy", configs)
    for command in (("plan",), ("scan",), ("scan", "--deep"), ("copy",)):
        code, said = cluster.run(*command)
        assert (code, said["errors"]) == (0, []), command
    assert len(said["copied"]) == 5
    assert cluster.run("doctor", "table")[1]["partitions"][0]["finding"] == "compacted topic"


def test_a_failed_segment_whose_source_was_compacted_since_is_lost_until_somebody_decides(cluster: TwoBrokers) -> None:
    """A new copy of it would fail each time, and the partition would stand still."""
    assert cluster.run("copy", "--limit-bytes", "800")[0] == 0
    (log,) = (cluster.directory / "store").rglob("*00010-*.log")
    log.write_bytes(b"rotten" * 20)
    assert cluster.run("verify", "--depth", "deep")[0] == 1
    compacted(cluster, 10)
    code, planned = cluster.run("plan")
    ((next_offset, reason, detail),) = waits(planned)
    assert (code, planned["partitions"], next_offset) == (1, [], 10)
    assert reason == "lost"
    assert "the source itself has a segment that cannot be copied: compacted; see ./tiering skip" in detail
    code, copied = cluster.run("copy")
    assert (code, copied["copied"], copied["failed"]) == (1, [], [])
    assert cluster.run(*SKIP, "--approve")[0] == 0
    assert starts(cluster.run("copy")[1]) == [20, 30, 40]
