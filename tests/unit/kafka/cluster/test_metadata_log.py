"""Cluster metadata from metadata logs on disk: real ones, growing ones, torn, cut and damaged ones."""

import logging
import struct
from pathlib import Path

import pytest

from include.tiering.errors import ClusterMetadataError, CorruptFileError
from include.tiering.kafka.cluster import metadata_log
from include.tiering.kafka.cluster.cluster_metadata import UnknownClusterMetadata
from include.tiering.kafka.cluster.metadata_log import MetadataLog
from include.tiering.model.segments import Uuid
from tests.doubles.broker_data import broker_data, expected
from tests.doubles.log_dirs import CLUSTER_ID, ORDERS, BrokerLogDir
from tests.doubles.tiered_topic import (
    config_record,
    metadata_batch,
    partition_change,
    partition_record,
    remove_topic,
    snapshot,
    topic_record,
)

OTHER = Uuid(b"another-topic-id")
CREATED = [topic_record("orders", ORDERS), partition_record(ORDERS)]


def _log(log_dir: BrokerLogDir, base_offset: int = 0) -> Path:
    return log_dir.path / "__cluster_metadata-0" / f"{base_offset:020d}.log"


def _checkpoint(log_dir: BrokerLogDir, offset: int, data: bytes) -> None:
    _log(log_dir).parent.mkdir(exist_ok=True)
    (_log(log_dir).parent / f"{offset:020d}-0000000001.checkpoint").write_bytes(data)


@pytest.fixture
def log_dir(tmp_path: Path) -> BrokerLogDir:
    made = BrokerLogDir(tmp_path / "data")
    made.append_metadata(*CREATED)
    return made


@pytest.mark.parametrize("part", ["running/broker-1", "running/broker-2"])
def test_real_logs_say_what_the_admin_api_said(part: str) -> None:
    cluster_metadata = MetadataLog([broker_data("public") / part])
    oracle = expected("public")["facts"]
    assert cluster_metadata.cluster_id() == oracle["cluster_id"]
    for name, wanted in oracle["topics"].items():
        topic = cluster_metadata.topic_named(name)
        assert topic is not None
        assert topic == cluster_metadata.topic(Uuid.parse(wanted["topic_id"]))
        assert {
            key: wanted["configs"][key] for key in topic.configs if key in wanted["configs"]
        }.items() <= topic.configs.items()
        assert topic.is_compacted == ("compact" in wanted["configs"]["cleanup.policy"])
        for number, partition in topic.partitions.items():
            found = wanted["partitions"][str(number)]
            assert (partition.leader, list(partition.replicas), list(partition.isr)) == (
                found["leader"],
                found["replicas"],
                found["isr"],
            )


def test_a_deleted_topic_of_a_real_log_is_known_as_removed() -> None:
    root = broker_data("tiered") / "data-running"
    cluster_metadata = MetadataLog([root])
    known = set(expected("tiered")["facts"]["topics"])
    assert cluster_metadata.topic_named("tier-del") is None
    assert "tier-del" not in known
    assert all(cluster_metadata.topic_named(name) is not None for name in known)


def test_the_replica_with_the_highest_end_speaks() -> None:
    stopped = broker_data("public") / "stopped"
    cluster_metadata = MetadataLog([stopped / "broker-2", stopped / "broker-1"])
    payments = cluster_metadata.topic_named("payments.v1-eu")
    assert payments is not None
    assert cluster_metadata.log_end_offset == 467
    assert payments.partitions[0].leader == -1


def test_refresh_reads_on_where_it_stopped(log_dir: BrokerLogDir) -> None:
    cluster_metadata = MetadataLog([log_dir.path])
    cluster_metadata.refresh()
    first_batch = _log(log_dir).stat().st_size
    log_dir.append_metadata(config_record("orders", "remote.storage.enable", "true"), topic_record("other", OTHER))
    # What was read before is not read again: damage there goes unnoticed as long as the last batch is the same.
    before = cluster_metadata.topic(ORDERS)
    cluster_metadata.refresh()
    after = cluster_metadata.topic(ORDERS)
    assert before is not None
    assert after is not None
    assert (before.is_remote_storage_enabled, after.is_remote_storage_enabled) == (False, True)
    assert cluster_metadata.topic_named("other") is not None
    assert cluster_metadata.log_end_offset == 4
    data = bytearray(_log(log_dir).read_bytes())
    data[first_batch - 1] ^= 1
    _log(log_dir).write_bytes(data)
    cluster_metadata.refresh()
    assert cluster_metadata.log_end_offset == 4


def test_a_tail_that_was_cut_off_and_rewritten_is_forgotten(log_dir: BrokerLogDir) -> None:
    """An uncommitted record may be replaced by another leader's at the same offset."""
    kept = _log(log_dir).read_bytes()
    cluster_metadata = MetadataLog([log_dir.path])
    log_dir.append_metadata(remove_topic(ORDERS))
    cluster_metadata.refresh()
    assert cluster_metadata.is_removed(ORDERS)
    _log(log_dir).write_bytes(kept + metadata_batch(2, [partition_change(ORDERS, leader=2)]))
    cluster_metadata.refresh()
    assert not cluster_metadata.is_removed(ORDERS)
    topic = cluster_metadata.topic(ORDERS)
    assert topic is not None
    assert topic.partitions[0].leader == 2


@pytest.mark.parametrize(
    "tail",
    [
        bytes(500),
        bytes(10),
        metadata_batch(2, [remove_topic(ORDERS)])[:-1],
        metadata_batch(2, [remove_topic(ORDERS)])[:30],
        metadata_batch(2, [remove_topic(ORDERS)])[:-1] + b"x",
        metadata_batch(2, [remove_topic(ORDERS)])[:-1] + b"x" + bytes(300),
    ],
    ids=["zeros", "few zeros", "cut batch", "cut header", "wrong crc", "wrong crc, zeros"],
)
def test_a_torn_tail_is_the_end(log_dir: BrokerLogDir, tail: bytes) -> None:
    with _log(log_dir).open("ab") as log:
        log.write(tail)
    cluster_metadata = MetadataLog([log_dir.path])
    assert cluster_metadata.log_end_offset == 2
    assert cluster_metadata.topic(ORDERS) is not None


def test_damage_before_the_end_is_no_torn_tail(log_dir: BrokerLogDir) -> None:
    """Metadata that stops too early could miss that a topic was deleted or is tiered by its broker."""
    position = _log(log_dir).stat().st_size
    log_dir.append_metadata(config_record("orders", "cleanup.policy", "compact"))
    log_dir.append_metadata(topic_record("other", OTHER))
    data = bytearray(_log(log_dir).read_bytes())
    data[position + 65] ^= 1
    _log(log_dir).write_bytes(data)
    with pytest.raises(ClusterMetadataError, match="CRC-32C") as raised:
        MetadataLog([log_dir.path]).refresh()
    assert isinstance(raised.value.__cause__, CorruptFileError)
    assert raised.value.__cause__.position == position


@pytest.mark.parametrize("magic", [0, 1])
def test_an_older_message_format_is_damage_here(log_dir: BrokerLogDir, magic: int) -> None:
    """KRaft has never written it; one byte that flipped looks like it."""
    position = _log(log_dir).stat().st_size
    log_dir.append_metadata(config_record("orders", "cleanup.policy", "compact"))
    log_dir.append_metadata(topic_record("other", OTHER))
    data = bytearray(_log(log_dir).read_bytes())
    data[position + 16] = magic
    _log(log_dir).write_bytes(data)
    with pytest.raises(ClusterMetadataError) as raised:
        MetadataLog([log_dir.path]).refresh()
    assert isinstance(raised.value.__cause__, CorruptFileError)
    assert raised.value.__cause__.position == position


def test_a_damaged_length_is_betrayed_by_the_index(log_dir: BrokerLogDir) -> None:
    position = _log(log_dir).stat().st_size
    log_dir.append_metadata(topic_record("other", OTHER))
    data = bytearray(_log(log_dir).read_bytes())
    data[position + 9] = 0x7F
    _log(log_dir).write_bytes(data)
    assert MetadataLog([log_dir.path]).log_end_offset == 2
    _log(log_dir).with_suffix(".index").write_bytes(struct.pack(">ii", 2, position) + bytes(80))
    with pytest.raises(ClusterMetadataError, match="ends at offset 2, but its index has 2"):
        MetadataLog([log_dir.path]).refresh()


def test_a_snapshot_stands_for_the_records_below_it(log_dir: BrokerLogDir) -> None:
    _log(log_dir).unlink()
    _checkpoint(log_dir, 10, snapshot([*CREATED, config_record("orders", "retention.ms", "5")]))
    _log(log_dir, 8).write_bytes(
        metadata_batch(8, [topic_record("below", OTHER)] * 2) + metadata_batch(10, [partition_change(ORDERS, leader=3)])
    )
    cluster_metadata = MetadataLog([log_dir.path])
    topic = cluster_metadata.topic_named("orders")
    assert topic is not None
    assert dict(topic.configs) == {"retention.ms": "5"}
    assert topic.partitions[0].leader == 3
    assert cluster_metadata.topic_named("below") is None
    assert cluster_metadata.log_end_offset == 11


def test_an_incomplete_or_broken_snapshot_is_passed_over(log_dir: BrokerLogDir) -> None:
    _checkpoint(log_dir, 1, snapshot([topic_record("old", OTHER)]))
    _checkpoint(log_dir, 2, snapshot([topic_record("half", OTHER)], complete=False))
    _checkpoint(log_dir, 3, snapshot([topic_record("broken", OTHER)])[:-1])
    _log(log_dir).unlink()
    _log(log_dir, 1).write_bytes(metadata_batch(1, CREATED))
    cluster_metadata = MetadataLog([log_dir.path])
    assert cluster_metadata.topic_named("old") is not None
    assert cluster_metadata.topic_named("half") is None
    assert cluster_metadata.topic_named("orders") is not None


def test_a_snapshot_alone_is_enough(log_dir: BrokerLogDir) -> None:
    _log(log_dir).unlink()
    _checkpoint(log_dir, 10, snapshot(CREATED))
    cluster_metadata = MetadataLog([log_dir.path])
    assert cluster_metadata.topic_named("orders") is not None
    assert cluster_metadata.log_end_offset == 10


def test_a_log_whose_beginning_is_missing_says_nothing(log_dir: BrokerLogDir) -> None:
    _log(log_dir).rename(_log(log_dir, 5))
    with pytest.raises(ClusterMetadataError, match="no segment or complete snapshot covers offset 0"):
        MetadataLog([log_dir.path]).refresh()


def test_a_gap_between_segments_is_damage(log_dir: BrokerLogDir) -> None:
    _log(log_dir, 2).write_bytes(metadata_batch(3, [topic_record("other", OTHER)]))
    with pytest.raises(ClusterMetadataError, match="offset 3 follows 1"):
        MetadataLog([log_dir.path]).refresh()


def test_reading_goes_on_in_the_next_segment(log_dir: BrokerLogDir) -> None:
    cluster_metadata = MetadataLog([log_dir.path])
    cluster_metadata.refresh()
    _log(log_dir, 2).write_bytes(metadata_batch(2, [topic_record("other", OTHER)]))
    cluster_metadata.refresh()
    assert cluster_metadata.topic_named("other") is not None
    # The first segment is cleaned up, after a snapshot that covers it.
    _checkpoint(log_dir, 2, snapshot(CREATED))
    _log(log_dir).unlink()
    _log(log_dir, 2).write_bytes(metadata_batch(2, [topic_record("other", OTHER), partition_record(OTHER)]))
    cluster_metadata.refresh()
    assert cluster_metadata.topic_named("orders") is not None
    assert cluster_metadata.log_end_offset == 4


def test_a_readable_directory_beside_a_broken_one_is_enough(tmp_path: Path, log_dir: BrokerLogDir) -> None:
    broken = BrokerLogDir(tmp_path / "broken", broker_id=2)
    without = BrokerLogDir(tmp_path / "without", broker_id=3)
    broken.append_metadata(remove_topic(ORDERS), b"\x02garbage")
    cluster_metadata = MetadataLog([broken.path, without.path, log_dir.path])
    assert cluster_metadata.topic(ORDERS) is not None
    assert cluster_metadata.cluster_id() == CLUSTER_ID


def test_after_a_failed_refresh_nothing_is_known_until_one_succeeds(log_dir: BrokerLogDir) -> None:
    cluster_metadata = MetadataLog([log_dir.path])
    assert cluster_metadata.topic(ORDERS) is not None
    aside = _log(log_dir).parent.rename(log_dir.path / "aside")
    with pytest.raises(ClusterMetadataError):
        cluster_metadata.refresh()
    assert cluster_metadata.topic(ORDERS) is None
    assert cluster_metadata.cluster_id() is None
    assert cluster_metadata.log_end_offset == 0
    aside.rename(_log(log_dir).parent)
    cluster_metadata.refresh()
    assert cluster_metadata.topic(ORDERS) is not None


def test_a_directory_that_cannot_be_looked_into_may_have_a_metadata_log(tmp_path: Path) -> None:
    unreadable = tmp_path / ("x" * 300)
    assert MetadataLog.is_in([unreadable])
    with pytest.raises(ClusterMetadataError, match="no readable metadata log in"):
        MetadataLog([unreadable]).refresh()


def test_no_directory_has_a_metadata_log(tmp_path: Path) -> None:
    without = BrokerLogDir(tmp_path / "data")
    assert not MetadataLog.is_in([without.path])
    with pytest.raises(ClusterMetadataError, match="no readable metadata log in"):
        MetadataLog([without.path]).refresh()
    with pytest.raises(ClusterMetadataError, match="no log directory is configured"):
        MetadataLog([]).refresh()


def test_values_are_never_logged_nor_in_errors(log_dir: BrokerLogDir, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    secret = "hunter2-and-more"
    log_dir.append_metadata(
        config_record("orders", "sasl.jaas.config", secret), config_record("", "k", secret, resource_type=4)
    )
    cluster_metadata = MetadataLog([log_dir.path])
    cluster_metadata.refresh()
    log_dir.append_metadata(config_record("orders", "k", secret) + b"left over")
    with pytest.raises(ClusterMetadataError, match="bytes after the last field") as raised:
        cluster_metadata.refresh()
    assert secret not in str(raised.value)
    assert secret not in caplog.text


def test_without_any_source_nothing_is_known() -> None:
    cluster_metadata = UnknownClusterMetadata()
    cluster_metadata.refresh()
    assert cluster_metadata.cluster_id() is None
    assert cluster_metadata.topic(ORDERS) is None
    assert cluster_metadata.topic_named("orders") is None
    assert not cluster_metadata.is_removed(ORDERS)
    assert cluster_metadata.removal_evidence(ORDERS) is None


class TestEvidenceOfARemoval:
    def test_in_the_log(self, log_dir: BrokerLogDir) -> None:
        cluster_metadata = MetadataLog([log_dir.path])
        assert cluster_metadata.removal_evidence(ORDERS) is None
        log_dir.append_metadata(remove_topic(ORDERS))
        cluster_metadata.refresh()
        evidence = cluster_metadata.removal_evidence(ORDERS)
        assert evidence is not None
        assert evidence.startswith("RemoveTopicRecord in __cluster_metadata-0 of ")
        assert evidence.endswith("below offset 3")

    @pytest.mark.parametrize("searched_bytes", [1, 7, 4 << 20])
    def test_before_a_snapshot_that_has_forgotten_it(
        self, log_dir: BrokerLogDir, monkeypatch: pytest.MonkeyPatch, searched_bytes: int
    ) -> None:
        """However much of the log is looked at at once."""
        monkeypatch.setattr(metadata_log, "_SEARCHED_BYTES", searched_bytes)
        log_dir.append_metadata(topic_record("other", OTHER))
        log_dir.append_metadata(remove_topic(ORDERS))
        _checkpoint(log_dir, 4, snapshot([topic_record("other", OTHER)]))
        _log(log_dir, 4).write_bytes(metadata_batch(4, [topic_record("later", Uuid(b"a-later-topic-id"))]))
        cluster_metadata = MetadataLog([log_dir.path])
        assert not cluster_metadata.is_removed(ORDERS)
        evidence = cluster_metadata.removal_evidence(ORDERS)
        assert evidence is not None
        assert evidence.endswith("in the batch at offset 3")

    def test_absence_is_none(self, log_dir: BrokerLogDir) -> None:
        """The snapshot does not know the topic and no record says why; nor does a damaged or missing file."""
        _checkpoint(log_dir, 2, snapshot([topic_record("other", OTHER)]))
        assert MetadataLog([log_dir.path]).removal_evidence(ORDERS) is None
        damaged = bytearray(metadata_batch(0, [remove_topic(ORDERS)]) + metadata_batch(1, [topic_record("o", OTHER)]))
        damaged[30] ^= 1
        _log(log_dir).write_bytes(damaged)
        _log(log_dir, 2).write_bytes(metadata_batch(2, [topic_record("later", Uuid(b"a-later-topic-id"))]))
        assert MetadataLog([log_dir.path]).removal_evidence(ORDERS) is None
        _log(log_dir).unlink()
        assert MetadataLog([log_dir.path]).removal_evidence(ORDERS) is None

    def test_a_record_that_is_not_committed_for_sure_waits_for_the_snapshot_to_lie_above(
        self, log_dir: BrokerLogDir
    ) -> None:
        """Cut off by the next leader, it is forgotten with the tail that held it."""
        kept = _log(log_dir).read_bytes()
        cluster_metadata = MetadataLog([log_dir.path])
        log_dir.append_metadata(remove_topic(ORDERS))
        cluster_metadata.refresh()
        assert cluster_metadata.removal_evidence(ORDERS) is not None
        _log(log_dir).write_bytes(kept + metadata_batch(2, [topic_record("other", OTHER)]))
        cluster_metadata.refresh()
        assert cluster_metadata.removal_evidence(ORDERS) is None
        assert cluster_metadata.topic(ORDERS) is not None

    def test_a_topic_that_is_there_has_none(self) -> None:
        cluster_metadata = MetadataLog([broker_data("tiered") / "data-running"])
        for name in expected("tiered")["facts"]["topics"]:
            topic = cluster_metadata.topic_named(name)
            assert topic is not None
            assert cluster_metadata.removal_evidence(topic.topic_id) is None
