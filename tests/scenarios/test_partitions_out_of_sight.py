"""What the commands say of partitions that nobody shows, that a person has to decide about, and that are deleted."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from include.tiering.model.segments import Uuid
from tests.doubles.log_dirs import ORDERS
from tests.doubles.tiered_topic import partition_change, partition_record, remove_topic, topic_record
from tests.doubles.two_histories import TwoBrokers

pytestmark = pytest.mark.integration

AUDIT = Uuid(b"audit-topic-id-0")
NO_LEADER = "no-leader-replica"
UNDECIDED = "undecided"
DELETED = "deleted"


@pytest.fixture
def cluster(tmp_path: Path) -> TwoBrokers:
    return TwoBrokers(tmp_path)


def append(cluster: TwoBrokers, *values: bytes) -> None:
    """The metadata log goes on, in every directory that has one."""
    for log_dir in cluster.dirs.values():
        log_dir.append_metadata(*values)


def waiting(items: list[dict[str, Any]]) -> list[tuple[str, int, str]]:
    return [(one["topic"], one["partition"], one["reason"]) for one in items]


def elsewhere(cluster: TwoBrokers) -> None:
    """`audit` is on broker 3 alone, of which no directory is named."""
    cluster.include = ["orders", "au*"]
    append(cluster, topic_record("audit", AUDIT), partition_record(AUDIT, replicas=(3,), leader=3))


def test_a_topic_that_lies_on_brokers_that_log_dirs_does_not_name_is_said_to_wait(cluster: TwoBrokers) -> None:
    elsewhere(cluster)
    code, planned = cluster.run("plan")
    assert (code, waiting(planned["held_back"])) == (1, [("audit", 0, NO_LEADER)])
    assert planned["held_back"][0]["detail"] == "broker 3 leads it; no log directory in log_dirs holds it"
    code, copied = cluster.run("copy")
    assert (code, len(copied["copied"]), waiting(copied["held_back"])) == (1, 2, [("audit", 0, NO_LEADER)])
    code, ready = cluster.run("ready", "--topic", "audit")
    assert (code, waiting(ready["partitions"])) == (3, [("audit", 0, NO_LEADER)])
    code, doctor = cluster.run("doctor", "audit")
    (line,) = doctor["partitions"]
    assert (code, line["partition"], "broker 3 leads it" in line["finding"]) == (1, 0, True)
    code, sizes = cluster.run("sizes")
    assert [(one["topic"], one["partition"]) for one in sizes["out_of_sight"]] == [("audit", 0)]


def test_a_partition_whose_leader_is_not_named_is_said_to_wait(cluster: TwoBrokers) -> None:
    assert cluster.run("copy")[0] == 0
    append(cluster, partition_change(ORDERS, replicas=(3, 1, 2), leader=3))
    for command in ("plan", "copy"):
        code, said = cluster.run(command)
        assert (code, waiting(said["held_back"])) == (1, [("orders", 0, NO_LEADER)])
        assert said["held_back"][0]["next_offset"] == 20
        assert said["held_back"][0]["detail"] == "broker 3 leads it; only followers of it are found, on broker 1, 2"


def test_topics_that_nobody_asked_for_or_that_are_never_tiered_wait_for_nothing(cluster: TwoBrokers) -> None:
    cluster.include = ["*"]
    ids = {name: Uuid(name.encode()[-16:].ljust(16, b"-")) for name in ("__consumer_offsets", "table", "theirs")}
    for name, topic_id in ids.items():
        append(cluster, topic_record(name, topic_id), partition_record(topic_id, replicas=(3,), leader=3))
    cluster.configured("table", "cleanup.policy", "compact,delete")
    cluster.configured("theirs", "remote.storage.enable", "true")
    code, planned = cluster.run("plan")
    assert (code, planned["held_back"]) == (0, [])
    elsewhere(cluster)
    assert cluster.run("plan", "--topic", "orders")[0] == 0
    assert cluster.run("plan", "--topic", "audit")[0] == 1


def test_a_partition_that_is_named_again_goes_on(cluster: TwoBrokers) -> None:
    everything = cluster.log_dirs
    cluster.log_dirs = everything[1:]
    code, planned = cluster.run("plan")
    assert (code, waiting(planned["held_back"])) == (1, [("orders", 0, NO_LEADER)])
    cluster.log_dirs = everything
    code, copied = cluster.run("copy")
    assert (code, len(copied["copied"]), copied["held_back"]) == (0, 2, [])


def test_what_a_person_must_decide_is_not_ready(cluster: TwoBrokers) -> None:
    assert cluster.run("copy", "--limit-bytes", "1")[0] == 0
    for partition in cluster.partitions.values():
        partition.remove_segment(0)
        partition.remove_segment(10)
    code, ready = cluster.run("ready", "--topic", "orders")
    (one,) = ready["partitions"]
    assert (code, one["ready"], one["reason"], one["waitable"]) == (1, False, UNDECIDED, False)
    assert one["detail"].startswith("from offset 10: offsets are gone from the source")
    assert cluster.run("doctor", "orders")[0] == 1
    assert cluster.run("skip", "orders", "--partition", "0", "--reason", "agreed", "--approve")[0] == 0
    code, ready = cluster.run("ready", "--topic", "orders")
    assert (code, [one["ready"] for one in ready["partitions"]]) == (0, [True])


def test_a_source_that_is_damaged_is_not_ready(cluster: TwoBrokers) -> None:
    assert cluster.run("copy", "--limit-bytes", "1")[0] == 0
    cluster.partitions[1].file(10, "snapshot").touch()
    cluster.partitions[1].file(20, "snapshot").unlink()
    assert cluster.run("plan")[0] == 1
    code, ready = cluster.run("ready", "--topic", "orders")
    assert (code, [one["reason"] for one in ready["partitions"]]) == (1, [UNDECIDED])


def made_again(cluster: TwoBrokers, new: Uuid | None) -> None:
    """The topic is archived, deleted and, with a new id, created again and archived again."""
    assert cluster.run("copy")[0] == 0
    append(cluster, remove_topic(ORDERS))
    for log_dir in cluster.dirs.values():
        shutil.rmtree(log_dir.path / "orders-0")
        log_dir.all_current({})
        if new is not None:
            log_dir.append_metadata(topic_record("orders", new), partition_record(new, replicas=(1, 2)))
            log_dir.all_current({"orders-0": log_dir.partition("orders-0", new).filled(0, 10)})
    assert cluster.run("copy")[0] == 0


def test_a_topic_that_was_made_again_keeps_nothing_waiting(cluster: TwoBrokers) -> None:
    new = Uuid(b"orders-again-id0")
    made_again(cluster, new)
    code, ready = cluster.run("ready", "--topic", "orders")
    assert code == 0
    by_id = {one["topic_id"]: one for one in ready["partitions"]}
    assert (by_id[str(new)]["ready"], by_id[str(ORDERS)]["ready"]) == (True, False)
    assert by_id[str(ORDERS)]["reason"] == DELETED
    assert by_id[str(ORDERS)]["detail"].startswith("seen 20")
    assert by_id[str(ORDERS)]["detail"].endswith("; its archive stays")
    code, doctor = cluster.run("doctor", "orders")
    assert (code, doctor["tiers"]) == (0, True)
    lines = {one["topic_id"]: one for one in doctor["partitions"]}
    assert (lines[str(ORDERS)]["cause"], lines[str(ORDERS)]["advice"]) == ("deleted", "")
    assert lines[str(new)]["cause"] == "up-to-date"
    for command in (("ready", "--topic", "orders"), ("doctor", "orders")):
        text = cluster.text(*command)
        assert str(ORDERS) in text
        assert "1 of 1 partition ready" in text or "all partitions are tiered" in text


def test_a_topic_that_is_gone_is_no_finding(cluster: TwoBrokers) -> None:
    made_again(cluster, None)
    code, ready = cluster.run("ready", "--topic", "orders")
    assert (code, [one["reason"] for one in ready["partitions"]]) == (0, [DELETED])
    code, doctor = cluster.run("doctor", "orders")
    assert (code, [one["cause"] for one in doctor["partitions"]]) == (0, ["deleted"])
    assert cluster.run("plan")[0] == 0


def test_the_broken_file_of_another_partition_is_nobodys_reason(cluster: TwoBrokers) -> None:
    cluster.include = ["*"]
    append(cluster, topic_record("audit", AUDIT), partition_record(AUDIT, replicas=(1, 2)))
    for log_dir in cluster.dirs.values():
        directory = log_dir.partition("audit-0", AUDIT)
        directory.filled(0, 10)
        directory.file(0, "timeindex").write_bytes(b"damaged")
    append(cluster, partition_change(ORDERS, replicas=(3, 1), leader=3))
    ready = cluster.run("ready")[1]
    (orders,) = [one for one in ready["partitions"] if one["topic"] == "orders"]
    assert orders["detail"] == "broker 3 leads it; only followers of it are found, on broker 1, 2"
    cluster.dirs[2].path.joinpath("meta.properties").write_text("damaged")
    (orders,) = [one for one in cluster.run("ready")[1]["partitions"] if one["topic"] == "orders"]
    assert "meta.properties" in orders["detail"]
