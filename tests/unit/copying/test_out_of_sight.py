"""Which partitions of the cluster no readable directory leads, asked of brokers and of a metadata log."""

from pathlib import Path
from typing import Any

import pytest

from include.tiering.copying.plan import errors_about, partitions_out_of_sight
from include.tiering.errors import BrokersUnavailableError
from include.tiering.kafka.cluster.cluster_metadata import AdminClusterMetadata, UnknownClusterMetadata
from include.tiering.kafka.cluster.contract import ClusterMetadata
from include.tiering.kafka.cluster.metadata_log import MetadataLog
from include.tiering.kafka.log_dirs.contract import ScanError, ScanReport
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.segments import TopicIdPartition, Uuid
from tests.doubles.log_dirs import BrokerLogDir
from tests.doubles.metadata_records import config_record, partition_record, topic_record
from tests.doubles.model_brokers import ModelBrokers

CONFIGS = {
    "orders": {},
    "orders-eu": {"cleanup.policy": "delete"},
    "table": {"cleanup.policy": "compact"},
    "theirs": {"remote.storage.enable": "true"},
    "__consumer_offsets": {},
}
NOTHING_FOUND = ScanReport("c", (), ())


class Owned:
    """A registry in which every topic has the same owner."""

    def __init__(self, owner: TopicOwner = TopicOwner.PLATFORM) -> None:
        self._owner = owner

    def owner(self, _topic_id: Uuid) -> TopicOwner:
        return self._owner


def by_brokers(_directory: Path) -> ClusterMetadata:
    brokers = ModelBrokers()
    for name, configs in CONFIGS.items():
        brokers.create_topic(name, configs=configs)
    return AdminClusterMetadata(brokers, UnknownClusterMetadata())


def by_metadata_log(directory: Path) -> ClusterMetadata:
    log_dir = BrokerLogDir(directory / "broker-1")
    for number, (name, configs) in enumerate(CONFIGS.items()):
        topic_id = Uuid(bytes([number + 1]) * 16)
        log_dir.append_metadata(topic_record(name, topic_id), partition_record(topic_id))
        log_dir.append_metadata(*(config_record(name, key, value) for key, value in configs.items()))
    return MetadataLog([log_dir.path])


@pytest.mark.parametrize("metadata_log_of", [by_brokers, by_metadata_log])
@pytest.mark.parametrize(
    ("topics", "found"),
    [
        (("*",), ["orders-0", "orders-eu-0"]),
        (("orders",), ["orders-0"]),
        (("orders-*", "no-such-topic"), ["orders-eu-0"]),
        (("no-such-topic",), []),
        ((), []),
    ],
)
def test_what_the_cluster_has_of_the_topics_that_are_asked_for(
    tmp_path: Path, metadata_log_of: Any, topics: tuple[str, ...], found: list[str]
) -> None:
    registry: Any = Owned()
    cluster_metadata = metadata_log_of(tmp_path)
    cluster_metadata.refresh()
    missing = partitions_out_of_sight(NOTHING_FOUND, topics, cluster_metadata, registry)
    assert [str(one) for one in missing] == found
    assert set(missing.values()) <= {"broker 1 leads it; no log directory in log_dirs holds it"}


@pytest.mark.parametrize(
    ("owner", "found"), [(TopicOwner.NONE, 1), (TopicOwner.HANDING_OVER, 0), (TopicOwner.BROKER, 0)]
)
def test_what_others_copy_is_not_missed(tmp_path: Path, owner: TopicOwner, found: int) -> None:
    registry: Any = Owned(owner)
    assert len(partitions_out_of_sight(NOTHING_FOUND, ("orders",), by_brokers(tmp_path), registry)) == found


def test_a_topic_that_this_user_may_not_ask_about_hides_no_other() -> None:
    brokers = ModelBrokers()
    brokers.create_topic("orders")
    brokers.create_topic("secret")
    brokers.forbidden_topics.add("secret")
    registry: Any = Owned()
    cluster_metadata = AdminClusterMetadata(brokers, UnknownClusterMetadata())
    missing = partitions_out_of_sight(NOTHING_FOUND, ("orders", "secret"), cluster_metadata, registry)
    assert [str(one) for one in missing] == ["orders-0"]


def test_brokers_that_do_not_answer_are_not_taken_for_brokers_without_topics() -> None:
    brokers = ModelBrokers()
    brokers.create_topic("orders")
    cluster_metadata = AdminClusterMetadata(brokers, UnknownClusterMetadata())
    cluster_metadata.refresh()
    brokers.fail("topic_names", BrokersUnavailableError("no broker answers"))
    registry: Any = Owned()
    with pytest.raises(BrokersUnavailableError):
        partitions_out_of_sight(NOTHING_FOUND, ("*",), cluster_metadata, registry)


def test_errors_of_its_own_directories_come_first_and_those_of_others_never() -> None:
    orders = TopicIdPartition(Uuid(b"1" * 16), 0, "orders")
    of_all = ScanError("/broker-3", None, "SourceUnreadableError", "permission denied")
    own = ScanError("/broker-1/orders-0/0.log", 0, "CorruptFileError", "damaged", "orders-0")
    others = [
        ScanError("/broker-1/orders-1/0.log", 0, "CorruptFileError", "damaged", "orders-1"),
        ScanError("/broker-1/evil", None, "HostileNameError", "no broker writes a file of this name", ""),
    ]
    assert errors_about(orders, [of_all, *others, own]) == [own, of_all]
    assert errors_about(orders, others) == []
