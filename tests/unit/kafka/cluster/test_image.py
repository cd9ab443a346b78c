"""What a sequence of metadata records adds up to."""

import pytest

from include.tiering.errors import ClusterMetadataError
from include.tiering.formats.cluster_metadata import (
    ConfigRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from include.tiering.kafka.cluster.contract import PartitionMetadata
from include.tiering.kafka.cluster.metadata_image import ClusterImage
from include.tiering.model.segments import Uuid

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
