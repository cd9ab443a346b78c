"""The image of the cluster metadata, and its records."""

from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, KafkaError, Message, TopicPartition

from include.tiering.errors import BrokersRefusedError, BrokersUnavailableError, ClusterMetadataError
from include.tiering.formats.cluster_metadata import (
    ConfigRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from include.tiering.kafka.cluster import kafka_records
from include.tiering.kafka.cluster.contract import PartitionMetadata
from include.tiering.kafka.cluster.kafka_records import KafkaServedRecords
from include.tiering.kafka.cluster.metadata_image import ClusterImage
from include.tiering.model.segments import SeenRecord, Uuid
from tests.doubles.manual_clock import ManualClock
from tests.doubles.segments import partition_of
from tests.doubles.tiny_deployment import MockCluster

# What a sequence of metadata records adds up to.

ORDERS = Uuid(bytes(range(16)))
AGAIN = Uuid(bytes(range(16, 32)))
DIRECTORY = Uuid(bytes(range(32, 48)))
CREATED = (TopicRecord("orders", ORDERS), PartitionRecord(0, ORDERS, (1, 2), (1, 2), 1, 5, (DIRECTORY, DIRECTORY)))


def _image(*records: MetadataRecord) -> ClusterImage:
    image = ClusterImage()
    for record in records:
        image.apply(record)
    return image


def _partition(*changes: MetadataRecord) -> PartitionMetadata:
    topic = _image(*CREATED, *changes).topic(ORDERS)
    assert topic is not None
    return topic.partitions[0]


def _configs(*records: MetadataRecord) -> dict[str, str]:
    topic = _image(*CREATED, *records).topic(ORDERS)
    assert topic is not None
    return dict(topic.configs)


def test_a_topic_is_found_by_id_and_name() -> None:
    image = _image(*CREATED)
    assert image.topic(ORDERS) == image.topic_named("orders")
    assert image.topic(AGAIN) is None
    assert image.topic_named("other") is None
    assert _partition() == PartitionMetadata(0, 1, 5, (1, 2), (1, 2), (DIRECTORY, DIRECTORY))


def test_a_change_sets_only_what_it_carries() -> None:
    assert _partition(PartitionChangeRecord(0, ORDERS, isr=(2,))) == PartitionMetadata(
        0, 1, 5, (1, 2), (2,), (DIRECTORY,) * 2
    )


def test_a_leader_raises_the_epoch_even_if_it_is_the_same() -> None:
    changed = _partition(PartitionChangeRecord(0, ORDERS, leader=1), PartitionChangeRecord(0, ORDERS, leader=-1))
    assert (changed.leader, changed.leader_epoch) == (-1, 7)


def test_new_replicas_make_old_directories_meaningless() -> None:
    assert _partition(PartitionChangeRecord(0, ORDERS, replicas=(3,))).directories == ()
    moved = PartitionChangeRecord(0, ORDERS, replicas=(3,), directories=(DIRECTORY,))
    assert _partition(moved).directories == (DIRECTORY,)


def test_removal_is_remembered_and_takes_the_configs_along() -> None:
    image = _image(*CREATED, ConfigRecord(2, "orders", "cleanup.policy", "compact"), RemoveTopicRecord(ORDERS))
    assert image.is_removed(ORDERS)
    assert image.topic(ORDERS) is None
    image.apply(TopicRecord("orders", AGAIN))
    again = image.topic_named("orders")
    assert again is not None
    assert again.topic_id == AGAIN
    assert again.configs == {}
    assert not image.is_removed(AGAIN)


def test_removing_the_first_of_two_with_one_name_leaves_the_second() -> None:
    image = _image(*CREATED, TopicRecord("orders", AGAIN), RemoveTopicRecord(ORDERS))
    again = image.topic_named("orders")
    assert again is not None
    assert again.topic_id == AGAIN


@pytest.mark.parametrize(
    "record",
    [PartitionRecord(0, AGAIN, (1,), (1,), 1, 0), PartitionChangeRecord(0, AGAIN), PartitionChangeRecord(7, ORDERS)],
)
def test_contradictions_are_refused(record: MetadataRecord) -> None:
    with pytest.raises(ClusterMetadataError):
        _image(*CREATED, record)


def test_topic_configs_win_over_broker_defaults() -> None:
    default = ConfigRecord(4, "", "log.retention.ms", "100")
    assert _configs(default) == {"retention.ms": "100"}
    own = ConfigRecord(2, "orders", "retention.ms", "7")
    assert _configs(default, own) == {"retention.ms": "7"}
    assert _configs(default, own, ConfigRecord(2, "orders", "retention.ms", None)) == {"retention.ms": "100"}


def test_other_broker_configs_are_not_even_kept() -> None:
    image = _image(
        *CREATED, ConfigRecord(4, "", "ssl.keystore.password", "hunter2"), ConfigRecord(8, "x", "k", "hunter2")
    )
    assert _configs(ConfigRecord(4, "", "ssl.keystore.password", "hunter2")) == {}
    assert "hunter2" not in str(vars(image))


@pytest.mark.parametrize(
    ("key", "for_all", "of_broker_2", "expected"),
    [
        ("log.cleanup.policy", "delete", "compact", {"cleanup.policy": "compact"}),
        ("log.cleanup.policy", "compact", "delete", {"cleanup.policy": "compact"}),
        ("min.insync.replicas", "2", "1", {"min.insync.replicas": "1"}),
        ("min.insync.replicas", "1", "2", {"min.insync.replicas": "1"}),
        ("log.retention.ms", "5", "6", {"retention.ms": "5"}),
    ],
)
def test_where_brokers_differ_the_more_careful_value_holds(
    key: str, for_all: str, of_broker_2: str, expected: dict[str, str]
) -> None:
    assert _configs(ConfigRecord(4, "", key, for_all), ConfigRecord(4, "2", key, of_broker_2)) == expected


def test_a_broker_without_a_replica_does_not_matter() -> None:
    assert _configs(ConfigRecord(4, "9", "log.cleanup.policy", "compact")) == {}


# Records of a range of offsets as brokers serve them: before librdkafka's mock of a cluster, and with what a
# consumer may say instead of a record.

PARTITION = partition_of("orders", 2)


@pytest.fixture(scope="module")
def cluster() -> MockCluster:
    cluster = MockCluster()
    cluster.create_topic("orders")
    cluster.append("orders", 2, b"a", b"b", None, b"d", b"e", key=b"k")
    return cluster


@pytest.fixture
def served(cluster: MockCluster) -> KafkaServedRecords:
    return KafkaServedRecords(cluster.config)


def of_mock(offset: int, value: bytes | None) -> SeenRecord:
    headers = ((b"number", b"%d" % (offset + 1)), (b"nothing", None))
    return SeenRecord(offset, False, 1_000 * (offset + 1), b"k", value, headers)


ALL = [of_mock(offset, value) for offset, value in enumerate([b"a", b"b", None, b"d", b"e"])]


@pytest.mark.parametrize(("start", "end"), [(0, 4), (1, 3), (2, 2), (0, 0), (4, 4)])
def test_both_ends_of_a_range_are_in_it(served: KafkaServedRecords, start: int, end: int) -> None:
    assert list(served.read(PARTITION, start, end)) == ALL[start : end + 1]


def test_offsets_that_are_not_served_are_refused(served: KafkaServedRecords) -> None:
    with pytest.raises(BrokersRefusedError, match=r"orders-2: .*out of range"):
        list(served.read(PARTITION, 99, 100))


class ScriptedConsumer:
    """Answers each poll with the next list of messages; none are left: nothing comes any more."""

    answers: list[list[Message]]
    position_offset = 0
    closed = False

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        (self.assigned,) = [(one.topic, one.partition, one.offset) for one in partitions]

    def consume(self, most: int, timeout: float) -> list[Message]:
        clock.advance(timeout)
        return type(self).answers.pop(0) if type(self).answers else []

    def position(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        return [TopicPartition("orders", 2, type(self).position_offset)]

    def close(self) -> None:
        type(self).closed = True


clock = ManualClock()


def record(offset: int, value: bytes | None = b"v", kind: int = TIMESTAMP_CREATE_TIME, **rest: Any) -> Message:
    return Message(topic="orders", partition=2, offset=offset, value=value, timestamp=(kind, 5), **rest)


def failed(code: int, offset: int | None = None) -> Message:
    where: dict[str, Any] = {} if offset is None else {"offset": offset}
    return Message(topic="orders", partition=2, error=KafkaError(code, "the client's words"), **where)


def end_at(offset: int) -> Message:
    return failed(KafkaError._PARTITION_EOF, offset)


def read(monkeypatch: pytest.MonkeyPatch, *answers: list[Message], end: int = 3, position: int = 0) -> list[int]:
    """Offsets of the records, from 0 up to `end`."""

    class Consumer(ScriptedConsumer):
        position_offset = position

    Consumer.answers = list(answers)
    monkeypatch.setattr(kafka_records, "Consumer", Consumer)
    try:
        records = KafkaServedRecords({}, timeout_ms=2_000, clock=clock).read(PARTITION, 0, end)
        return [one.offset for one in records]
    finally:
        assert Consumer.closed


def test_what_passes_by_itself_is_waited_out(monkeypatch: pytest.MonkeyPatch) -> None:
    passing = [failed(code) for code in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT)]
    assert read(monkeypatch, [record(0), *passing, record(1)], passing, [], [record(2), record(3)]) == [0, 1, 2, 3]


def test_it_ends_with_the_range_and_not_with_the_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(monkeypatch, [record(0), record(3), record(4)]) == [0, 3]
    assert read(monkeypatch, [record(0), end_at(1)], [record(1), record(2), end_at(3)], [record(3)]) == [0, 1, 2, 3]
    assert read(monkeypatch, [record(0), end_at(1)], [record(1), record(2), end_at(4)], [record(3)]) == [0, 1, 2]


def test_a_record_behind_the_range_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last offsets of the range held none: they are markers, or were compacted away."""
    assert read(monkeypatch, [record(1), record(7), record(8)]) == [1]


def test_markers_at_the_end_of_the_range_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(monkeypatch, [record(0)], [], position=4) == [0]
    with pytest.raises(BrokersUnavailableError, match="no record came for 2 s"):
        read(monkeypatch, [record(0)], position=3)


def test_what_keeps_coming_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time counts from the last that came."""
    silence: list[list[Message]] = [[]] * 8
    assert read(monkeypatch, *silence, [record(0)], *silence, [record(3)]) == [0, 3]
    with pytest.raises(BrokersUnavailableError, match="orders-2: no record came for 2 s"):
        read(monkeypatch, [record(0)], *silence, [failed(KafkaError._TRANSPORT)], *silence, [record(3)])


@pytest.mark.parametrize("code", [1, 29, KafkaError._AUTHENTICATION, KafkaError._BAD_MSG])
def test_what_does_not_pass_is_refused(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    with pytest.raises(BrokersRefusedError, match="orders-2: the client's words"):
        read(monkeypatch, [record(0), failed(code)], [record(1)])


def test_what_is_unreadable_behind_the_range_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(monkeypatch, [record(0), failed(KafkaError._BAD_MSG, 4), record(1)]) == [0]
    with pytest.raises(BrokersRefusedError):
        read(monkeypatch, [record(0), failed(KafkaError._BAD_MSG, 3), record(1)])


def test_who_dated_a_record_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Consumer(ScriptedConsumer):
        pass

    Consumer.answers = [[record(0, kind=TIMESTAMP_LOG_APPEND_TIME), record(1, None, headers=[("a", None)], key=b"k")]]
    monkeypatch.setattr(kafka_records, "Consumer", Consumer)
    found = list(KafkaServedRecords({}, clock=clock).read(PARTITION, 0, 1))
    assert found == [SeenRecord(0, True, 5, None, b"v", ()), SeenRecord(1, False, 5, b"k", None, ((b"a", None),))]
