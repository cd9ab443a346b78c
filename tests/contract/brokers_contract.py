"""What every `Brokers` does, in memory and over a network. Subclasses give the fixture `world`."""

from collections.abc import Callable
from typing import Protocol

import pytest

from include.tiering.errors import BrokersRefusedError, UnknownTopicError
from include.tiering.kafka.cluster.contract import Brokers, ConfigSource
from include.tiering.model.segments import TopicIdPartition, Uuid
from tests.doubles.kafka_lab.cluster import wait_until

COPY_QUOTA = "remote.log.manager.copy.max.bytes.per.second"
UNKNOWN_TOPIC_ID = Uuid(b"nobody-has-thi-1")


class BrokersWorld(Protocol):
    """A cluster with one broker, of id 1."""

    brokers: Brokers
    cluster_id: str

    def new_name(self) -> str:
        """Of a topic that is not there."""
        ...

    def create_topic(self, name: str, partitions: int = 1) -> Uuid: ...

    def delete_topic(self, name: str) -> None: ...

    def append(self, topic: str, records: int) -> None:
        """To partition 0, acknowledged."""
        ...

    def begin(self, topic: str) -> Callable[[], None]:
        """A transaction with one record in partition 0; what it returns aborts it."""
        ...


class BrokersContract:
    """Topics are new in each test; what is set on the broker is taken back."""

    def test_the_cluster_and_its_brokers_are_described(self, world: BrokersWorld) -> None:
        described = world.brokers.describe()
        assert described.cluster_id == world.brokers.cluster_id() == world.cluster_id
        (broker,) = described.brokers
        assert (broker.broker_id, broker.host != "", broker.port > 0) == (1, True, True)
        assert broker.supported_features["metadata.version"] >= described.finalized_features["metadata.version"] > 0

    def test_a_topic_is_known_by_name_and_by_id(self, world: BrokersWorld) -> None:
        name, absent = world.new_name(), world.new_name()
        topic_id = world.create_topic(name, 2)
        found = world.brokers.topics([name, absent])
        assert found.keys() == {name}
        topic_metadata = found[name]
        assert (topic_metadata.topic, topic_metadata.topic_id, sorted(topic_metadata.partitions)) == (
            name,
            topic_id,
            [0, 1],
        )
        assert (
            topic_metadata.partitions[1].leader,
            topic_metadata.partitions[1].replicas,
            topic_metadata.partitions[1].isr,
        ) == (1, (1,), (1,))
        assert topic_metadata.configs["cleanup.policy"] == "delete"
        assert world.brokers.topic(topic_id) == topic_metadata
        assert world.brokers.topics()[name] == topic_metadata
        assert world.brokers.topic(UNKNOWN_TOPIC_ID) is None
        assert world.brokers.topics([]) == {}
        assert name in world.brokers.topic_names()
        assert set(world.brokers.topic_leaders()[name]) == {1}
        assert absent not in world.brokers.topic_names()

    def test_sizes_of_logs_are_those_of_their_leaders(self, world: BrokersWorld) -> None:
        name = world.new_name()
        topic_id = world.create_topic(name, 2)
        partitions = [TopicIdPartition(topic_id, number, name) for number in (0, 1)]
        assert world.brokers.log_sizes(dict.fromkeys(partitions, 1)) == dict.fromkeys(partitions, 0)
        world.append(name, 3)
        sizes = world.brokers.log_sizes(dict.fromkeys(partitions, 1))
        assert sizes[partitions[0]] > sizes[partitions[1]] == 0

    def test_brokers_tell_how_much_of_their_disks_is_free(self, world: BrokersWorld) -> None:
        found = world.brokers.free_bytes(1)
        assert found is not None
        assert found > 1 << 20

    def test_offsets_grow_with_what_is_appended(self, world: BrokersWorld) -> None:
        name = world.new_name()
        partition = TopicIdPartition(world.create_topic(name), 0, name)
        empty = world.brokers.partition_offsets([partition]).of(partition)
        assert (empty.earliest, empty.last_stable_offset, empty.high_watermark, empty.latest_tiered) == (0, 0, 0, None)
        assert (empty.leader, empty.earliest_local) == (1, 0)
        world.append(name, 3)
        found = world.brokers.partition_offsets([partition]).of(partition)
        assert (found.high_watermark, found.earliest_epoch) == (3, found.leader_epoch)

    def test_one_partition_that_is_refused_hides_no_other(self, world: BrokersWorld) -> None:
        name, absent = world.new_name(), world.new_name()
        topic_id = world.create_topic(name)
        good = TopicIdPartition(topic_id, 0, name)
        bad = [
            TopicIdPartition(UNKNOWN_TOPIC_ID, 0, name),
            TopicIdPartition(topic_id, 7, name),
            TopicIdPartition(UNKNOWN_TOPIC_ID, 0, absent),
        ]
        answer = world.brokers.partition_offsets([good, *bad])
        assert answer.of(good).high_watermark == 0
        assert answer.offsets.keys() == {good}
        for partition in bad:
            with pytest.raises(UnknownTopicError):
                answer.of(partition)
        assert world.brokers.partition_offsets([]).offsets == {}

    def test_a_topic_that_was_created_again_is_another(self, world: BrokersWorld) -> None:
        name = world.new_name()
        old = TopicIdPartition(world.create_topic(name), 0, name)
        world.delete_topic(name)
        new = TopicIdPartition(world.create_topic(name), 0, name)
        # Right after its election a leader may still say that it does not lead.
        wait_until(lambda: new in world.brokers.partition_offsets([new]).offsets, "the new topic is led")
        answer = world.brokers.partition_offsets([old, new])
        assert answer.of(new).high_watermark == 0
        assert isinstance(answer.refused[old], UnknownTopicError)
        assert world.brokers.topic(old.topic_id) is None
        with pytest.raises(UnknownTopicError):
            world.brokers.open_transactions(old)

    def test_an_open_transaction_holds_the_stable_offset_and_is_named(self, world: BrokersWorld) -> None:
        name = world.new_name()
        partition = TopicIdPartition(world.create_topic(name), 0, name)
        world.append(name, 3)
        assert world.brokers.open_transactions(partition) == []
        abort = world.begin(name)
        world.append(name, 2)
        offsets = world.brokers.partition_offsets([partition]).of(partition)
        assert (offsets.last_stable_offset, offsets.high_watermark) == (3, 6)
        (open_one,) = world.brokers.open_transactions(partition)
        assert (open_one.start_offset, open_one.producer_id >= 0) == (3, True)
        assert open_one.transactional_id is not None
        assert open_one.since_ms > 0
        abort()
        wait_until(lambda: world.brokers.open_transactions(partition) == [], "the transaction has ended")
        wait_until(
            lambda: world.brokers.partition_offsets([partition]).of(partition).last_stable_offset == 7,
            "all is stable up to behind the marker",
        )

    def test_topic_configs_say_who_set_them_and_change_whole(self, world: BrokersWorld) -> None:
        name = world.new_name()
        world.create_topic(name)
        brokers = world.brokers
        assert brokers.topic_configs(name)["max.message.bytes"].source is ConfigSource.DEFAULT
        brokers.alter_topic_configs(name, {"max.message.bytes": "5000", "retention.bytes": "70000"})
        wait_until(lambda: brokers.topic_configs(name)["retention.bytes"].value == "70000", "the change is seen")
        assert brokers.topic_configs(name)["max.message.bytes"].source is ConfigSource.TOPIC
        brokers.alter_topic_configs(name, {"max.message.bytes": None})
        wait_until(
            lambda: brokers.topic_configs(name)["max.message.bytes"].source is ConfigSource.DEFAULT,
            "the removal is seen",
        )
        assert brokers.topic_configs(name)["retention.bytes"].value == "70000"
        brokers.alter_topic_configs(name, {"max.message.bytes": None})

    def test_a_dry_run_and_a_refused_change_change_nothing(self, world: BrokersWorld) -> None:
        name = world.new_name()
        world.create_topic(name)
        before = world.brokers.topic_configs(name)
        world.brokers.alter_topic_configs(name, {"retention.bytes": "70000"}, dry_run=True)
        for changes in ({"retention.bytes": "70000", "no.such.config": "1"}, {"retention.bytes": "many"}):
            with pytest.raises(BrokersRefusedError):
                world.brokers.alter_topic_configs(name, changes)
        assert world.brokers.topic_configs(name) == before

    def test_configs_of_what_is_not_there(self, world: BrokersWorld) -> None:
        absent = world.new_name()
        with pytest.raises(UnknownTopicError):
            world.brokers.topic_configs(absent)
        with pytest.raises(UnknownTopicError):
            world.brokers.alter_topic_configs(absent, {"retention.bytes": "70000"})
        with pytest.raises(BrokersRefusedError, match="there is no broker 77"):
            world.brokers.broker_configs(77)
        with pytest.raises(BrokersRefusedError, match="there is no broker 77"):
            world.brokers.alter_broker_configs(77, {COPY_QUOTA: "70000"})

    def test_a_brokers_own_value_wins_over_the_default_of_all(self, world: BrokersWorld) -> None:
        brokers = world.brokers

        def is_now(value: str, source: ConfigSource) -> bool:
            found = brokers.broker_configs(1)[COPY_QUOTA]
            return (found.value, found.source) == (value, source)

        unlimited = str(2**63 - 1)
        assert is_now(unlimited, ConfigSource.DEFAULT)
        brokers.alter_broker_configs(None, {COPY_QUOTA: "70000"})
        wait_until(lambda: is_now("70000", ConfigSource.ALL_BROKERS), "the default is seen")
        brokers.alter_broker_configs(1, {COPY_QUOTA: "80000"})
        wait_until(lambda: is_now("80000", ConfigSource.BROKER), "the broker's own is seen")
        brokers.alter_broker_configs(None, {COPY_QUOTA: None})
        brokers.alter_broker_configs(1, {COPY_QUOTA: None})
        wait_until(lambda: is_now(unlimited, ConfigSource.DEFAULT), "both are taken back")

    def test_what_brokers_do_not_take(self, world: BrokersWorld) -> None:
        before = world.brokers.broker_configs(1)
        assert before["remote.log.storage.system.enable"].read_only
        for changes in ({COPY_QUOTA: "fast"}, {COPY_QUOTA: "70000", "remote.log.storage.system.enable": "false"}):
            with pytest.raises(BrokersRefusedError):
                world.brokers.alter_broker_configs(1, changes)
        world.brokers.alter_broker_configs(1, {COPY_QUOTA: "70000"}, dry_run=True)
        assert world.brokers.broker_configs(1)[COPY_QUOTA] == before[COPY_QUOTA]
