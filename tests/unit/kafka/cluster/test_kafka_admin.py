"""`KafkaBrokers` over answers that a test gives: no broker, no socket. What real brokers answer, tests/kafka asks."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from include.tiering.errors import (
    BrokersError,
    BrokersForbiddenError,
    BrokersRefusedError,
    BrokersUnavailableError,
    UnknownTopicError,
)
from include.tiering.formats.cluster_metadata import ResourceType
from include.tiering.kafka.cluster import kafka_admin
from include.tiering.kafka.cluster.contract import (
    BrokerConfig,
    BrokerNode,
    ClusterDescription,
    ConfigSource,
    PartitionMetadata,
    PartitionOffsets,
    TopicMetadata,
)
from include.tiering.kafka.cluster.kafka_admin import KafkaBrokers
from include.tiering.kafka.protocol.cluster_requests import (
    AlterAnswer,
    ApiVersionsAnswer,
    BrokerAddress,
    DescribeConfigs,
    DescribeLogDirs,
    FoundConfig,
    FoundConfigs,
    IncrementalAlterConfigs,
    LogDirsAnswer,
    Metadata,
    MetadataAnswer,
    MetadataResponsePartition,
    MetadataResponseTopic,
    Resource,
)
from include.tiering.kafka.protocol.partition_requests import FoundOffset, ListOffsets, OffsetSpec, TopicPartition
from include.tiering.model.segments import TopicIdPartition, Uuid
from tests.doubles.segments import uuid

UNKNOWN, FORBIDDEN = 3, 29
ORDERS_ID, OTHER_ID = uuid(1), uuid(2)
ORDERS = TopicIdPartition(ORDERS_ID, 0, "orders")
ON_WIRE = TopicPartition("orders", 0)
SOUND = {
    (OffsetSpec.EARLIEST, False): 10,
    (OffsetSpec.EARLIEST_LOCAL, False): 20,
    (OffsetSpec.LATEST_TIERED, False): 30,
    (OffsetSpec.LATEST, True): 40,
    (OffsetSpec.LATEST, False): 50,
}


def topic(
    name: str = "orders", *, error: int = 0, topic_id: Uuid = ORDERS_ID, leaders: Iterable[int] = (1,)
) -> MetadataResponseTopic:
    partitions = (
        MetadataResponsePartition(0, number, leader, 7, (1, 2), (2,)) for number, leader in enumerate(leaders)
    )
    return MetadataResponseTopic(error, name, topic_id, tuple(partitions))


class Answers:
    """In the place of `ClusterConnections`: `metadata` and other answers, and all that was asked."""

    def __init__(self) -> None:
        self.topics: list[MetadataResponseTopic] = [topic()]
        self.cluster: str | None = "cluster"
        self.configs: dict[str, FoundConfigs] = defaultdict(lambda: FoundConfigs(0, None, "?", ()))
        self.offsets: dict[tuple[OffsetSpec, bool], FoundOffset | None] = {
            asked: FoundOffset(0, offset, leader_epoch=offset // 10) for asked, offset in SOUND.items()
        }
        self.tiered = True
        self.log_dirs = LogDirsAnswer(0, [], [])
        self.altered: list[AlterAnswer] = [AlterAnswer(0, None)]
        self.away: set[int] = set()
        self.asked: list[tuple[int | None, Any]] = []
        self.closed = 0

    def metadata(self, request: Metadata) -> MetadataAnswer:
        self.asked.append((None, request))
        brokers = (BrokerAddress(2, "b", 9093, None), BrokerAddress(1, "a", 9092, "r"))
        return MetadataAnswer(brokers, self.cluster, tuple(self.topics))

    def versions(self, broker_id: int) -> ApiVersionsAnswer:
        return ApiVersionsAnswer(0, {3: (0, 12)}, {"f": broker_id}, {"f": 9} if broker_id == 1 else {})

    def supports(self, _broker_id: int, _request: object) -> bool:
        return self.tiered

    def send_to_any(self, request: Any) -> Any:
        return self._answer(None, request)

    def send(self, broker_id: int, request: Any) -> Any:
        if broker_id in self.away:
            raise BrokersUnavailableError(f"broker {broker_id} is away")
        return self._answer(broker_id, request)

    def close(self) -> None:
        self.closed += 1

    def _answer(self, broker_id: int | None, request: Any) -> Any:
        self.asked.append((broker_id, request))
        if isinstance(request, DescribeConfigs):
            return tuple(self.configs[resource.name] for resource in request.resources if resource.name in self.configs)
        if isinstance(request, IncrementalAlterConfigs):
            return tuple(self.altered)
        if isinstance(request, DescribeLogDirs):
            return self.log_dirs
        assert isinstance(request, ListOffsets)
        found = self.offsets[request.spec, request.read_committed]
        return {} if found is None else dict.fromkeys(request.leader_epochs, found)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    made = Answers()
    monkeypatch.setattr(kafka_admin, "ClusterConnections", lambda _login, _clock: made)
    return made


@pytest.fixture
def brokers(answers: Answers) -> KafkaBrokers:
    return KafkaBrokers({"bootstrap.servers": "a:9092"})


def configs(name: str, error: int = 0, **values: str | None) -> FoundConfigs:
    found = tuple(FoundConfig(key.replace("_", "."), value, False, 1) for key, value in values.items())
    return FoundConfigs(error, "their words" if error else None, name, found)


# Offsets.


def test_all_offsets_of_a_partition_come_from_its_leader(brokers: KafkaBrokers, answers: Answers) -> None:
    answer = brokers.partition_offsets([ORDERS])
    assert answer.offsets == {
        ORDERS: PartitionOffsets(
            leader=1,
            leader_epoch=7,
            earliest=10,
            earliest_local=20,
            latest_tiered=30,
            last_stable_offset=40,
            high_watermark=50,
            earliest_epoch=1,
        )
    }
    assert answer.refused == {}
    asked = [(broker, request) for broker, request in answers.asked if isinstance(request, ListOffsets)]
    assert [(broker, request.spec, request.read_committed) for broker, request in asked] == [
        (1, spec, committed) for spec, committed in SOUND
    ]
    assert all(request.leader_epochs == {ON_WIRE: 7} for _, request in asked)


def test_of_no_partition_nothing_is_asked(brokers: KafkaBrokers, answers: Answers) -> None:
    assert brokers.partition_offsets([]).offsets == {}
    assert answers.asked == []


def test_a_broker_without_tiered_storage_has_no_offsets_of_it(brokers: KafkaBrokers, answers: Answers) -> None:
    answers.tiered = False
    (found,) = brokers.partition_offsets([ORDERS]).offsets.values()
    assert (found.earliest, found.earliest_local, found.latest_tiered, found.high_watermark) == (10, None, None, 50)
    assert len([request for _, request in answers.asked if isinstance(request, ListOffsets)]) == 3


@pytest.mark.parametrize("spec", [OffsetSpec.EARLIEST_LOCAL, OffsetSpec.LATEST_TIERED])
def test_that_nothing_is_tiered_is_no_error(brokers: KafkaBrokers, answers: Answers, spec: OffsetSpec) -> None:
    answers.offsets[spec, False] = FoundOffset(0, -1)
    (found,) = brokers.partition_offsets([ORDERS]).offsets.values()
    assert (found.earliest_local is None, found.latest_tiered is None) == (
        spec is OffsetSpec.EARLIEST_LOCAL,
        spec is OffsetSpec.LATEST_TIERED,
    )


@pytest.mark.parametrize(
    ("found", "kind", "words"),
    [
        (None, BrokersRefusedError, "the response does not contain it"),
        (FoundOffset(0, -1), BrokersRefusedError, "there is none"),
        (FoundOffset(FORBIDDEN, 5), BrokersForbiddenError, ""),
    ],
)
@pytest.mark.parametrize("asked", [(OffsetSpec.EARLIEST, False), (OffsetSpec.LATEST, True), (OffsetSpec.LATEST, False)])
def test_an_offset_that_is_not_given_refuses_its_partition(
    brokers: KafkaBrokers,
    answers: Answers,
    asked: tuple[OffsetSpec, bool],
    found: FoundOffset | None,
    kind: type[BrokersError],
    words: str,
) -> None:
    answers.offsets[asked] = found
    answer = brokers.partition_offsets([ORDERS])
    assert answer.offsets == {}
    error = answer.refused[ORDERS]
    assert type(error) is kind
    assert "from broker 1" in str(error)
    assert words in str(error)
    later = list(SOUND)[list(SOUND).index(asked) + 1 :]
    specs = [(one.spec, one.read_committed) for _, one in answers.asked if isinstance(one, ListOffsets)]
    assert not set(later) & set(specs)


def test_each_partition_is_refused_for_its_own_reason(brokers: KafkaBrokers, answers: Answers) -> None:
    answers.topics = [topic(leaders=(1, -1, 2)), topic("closed", error=FORBIDDEN, topic_id=OTHER_ID)]
    answers.away = {2}
    wanted = {
        TopicIdPartition(ORDERS_ID, 0, "orders"): None,
        TopicIdPartition(ORDERS_ID, 1, "orders"): (BrokersUnavailableError, "has no leader just now"),
        TopicIdPartition(ORDERS_ID, 2, "orders"): (BrokersUnavailableError, "broker 2 is away"),
        TopicIdPartition(ORDERS_ID, 3, "orders"): (UnknownTopicError, "topic orders has no partition 3"),
        TopicIdPartition(OTHER_ID, 0, "orders"): (UnknownTopicError, "it was re-created"),
        TopicIdPartition(uuid(3), 0, "closed"): (BrokersForbiddenError, "topic closed"),
        TopicIdPartition(uuid(4), 0, "nowhere"): (UnknownTopicError, "topic nowhere"),
    }
    answer = brokers.partition_offsets(list(wanted))
    assert list(answer.offsets) == [partition for partition, why in wanted.items() if why is None]
    assert set(answer.refused) == {partition for partition, why in wanted.items() if why is not None}
    for partition, why in wanted.items():
        if why is not None:
            assert (type(answer.refused[partition]), why[1] in str(answer.refused[partition])) == (why[0], True)
    assert answers.asked[0] == (None, Metadata(names=["closed", "nowhere", "orders"]))


def test_a_leader_may_be_broker_0(brokers: KafkaBrokers, answers: Answers) -> None:
    answers.topics = [topic(leaders=(0,))]
    (found,) = brokers.partition_offsets([ORDERS]).offsets.values()
    assert found.leader == 0


# The cluster and its topics.


@pytest.mark.parametrize(
    ("error", "free", "found"),
    [(0, [900, 300], 300), (56, [300], 300), (0, [], None)],
    ids=["all", "one-offline", "old"],
)
def test_free_space_is_that_of_the_fullest_directory_that_is_online(
    brokers: KafkaBrokers, answers: Answers, error: int, free: list[int], found: int | None
) -> None:
    answers.log_dirs = LogDirsAnswer(error, [], free)
    assert brokers.free_bytes(1) == found


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [(56, BrokersUnavailableError, "the broker cannot use its disk"), (31, BrokersForbiddenError, "not authorised")],
)
def test_why_the_free_space_of_a_broker_is_not_known(
    brokers: KafkaBrokers, answers: Answers, error: int, kind: type[BrokersError], said: str
) -> None:
    answers.log_dirs = LogDirsAnswer(error, [], [])
    with pytest.raises(kind, match=said):
        brokers.free_bytes(1)


def test_a_cluster_says_its_id_its_brokers_and_their_versions(brokers: KafkaBrokers, answers: Answers) -> None:
    assert brokers.cluster_id() == "cluster"
    apis = {3: (0, 12)}
    nodes = (
        BrokerNode(1, "a", 9092, "r", api_versions=apis, supported_features={"f": 1}),
        BrokerNode(2, "b", 9093, None, api_versions=apis, supported_features={"f": 2}),
    )
    assert brokers.describe() == ClusterDescription("cluster", nodes, {"f": 9})
    answers.cluster = None
    for ask in (brokers.cluster_id, brokers.describe):
        with pytest.raises(BrokersRefusedError, match="the brokers return no cluster id"):
            ask()


def test_topics_have_their_configs_without_those_that_have_no_value(brokers: KafkaBrokers, answers: Answers) -> None:
    answers.configs["orders"] = configs("orders", retention_ms="5", secret=None)
    expected = TopicMetadata("orders", ORDERS_ID, {"retention.ms": "5"}, {0: PartitionMetadata(0, 1, 7, (1, 2), (2,))})
    assert brokers.topic(ORDERS_ID) == expected
    assert brokers.topics() == brokers.topics(["orders", "orders"]) == {"orders": expected}
    asked = [request for _, request in answers.asked if isinstance(request, Metadata)]
    assert asked == [Metadata(topic_ids=[ORDERS_ID]), Metadata(every_topic=True), Metadata(names=["orders"])]


def test_no_names_are_no_topics_and_not_all_of_them(brokers: KafkaBrokers, answers: Answers) -> None:
    assert brokers.topics([]) == {}
    assert answers.asked == []


def test_a_topic_that_is_gone_is_left_out(brokers: KafkaBrokers, answers: Answers) -> None:
    answers.topics = [topic(), topic("gone", error=UNKNOWN, topic_id=OTHER_ID), topic("deleted", topic_id=OTHER_ID)]
    answers.configs |= {"orders": configs("orders"), "deleted": configs("deleted", UNKNOWN)}
    assert list(brokers.topics()) == ["orders"]
    assert list(brokers.topic_names()) == ["orders", "deleted"]
    answers.topics = []
    assert brokers.topic(ORDERS_ID) is None


def test_a_topic_that_is_refused_is_no_missing_one(brokers: KafkaBrokers, answers: Answers) -> None:
    answers.topics = [topic("closed", error=FORBIDDEN)]
    with pytest.raises(BrokersForbiddenError, match="topic closed"):
        brokers.topics()
    answers.topics = [topic()]
    answers.configs["orders"] = configs("orders", FORBIDDEN)
    with pytest.raises(BrokersForbiddenError, match=r"configs of topic orders.*their words"):
        brokers.topics()


@pytest.mark.parametrize(("number", "requests"), [(1, [1]), (3, [3]), (4, [3, 1]), (7, [3, 3, 1])])
def test_configs_are_asked_for_so_many_topics_at_once(
    brokers: KafkaBrokers, answers: Answers, monkeypatch: pytest.MonkeyPatch, number: int, requests: list[int]
) -> None:
    monkeypatch.setattr(kafka_admin, "_TOPICS_AT_ONCE", 3)
    answers.topics = [topic(f"t{each}") for each in range(number)]
    answers.configs |= {one.name: configs(one.name) for one in answers.topics if one.name}
    assert list(brokers.topics()) == [f"t{each}" for each in range(number)]
    assert [len(one.resources) for _, one in answers.asked if isinstance(one, DescribeConfigs)] == requests


# Configs.


@pytest.mark.parametrize(
    ("ask", "broker", "resource"),
    [
        (lambda brokers: brokers.topic_configs("orders"), None, Resource(ResourceType.TOPIC, "orders")),
        (lambda brokers: brokers.broker_configs(0), 0, Resource(ResourceType.BROKER, "0")),
    ],
    ids=["of a topic", "of a broker"],
)
def test_configs_say_where_their_values_come_from(
    brokers: KafkaBrokers,
    answers: Answers,
    ask: Callable[[KafkaBrokers], Any],
    broker: int | None,
    resource: Resource,
) -> None:
    found = tuple(FoundConfig(f"c{source}", str(source), source == 2, source) for source in range(7))
    answers.configs[resource.name] = FoundConfigs(0, None, resource.name, found)
    sources = {
        1: ConfigSource.TOPIC,
        2: ConfigSource.BROKER,
        3: ConfigSource.ALL_BROKERS,
        4: ConfigSource.STATIC,
        5: ConfigSource.DEFAULT,
    }
    assert ask(brokers) == {
        f"c{source}": BrokerConfig(
            f"c{source}", str(source), sources.get(source, ConfigSource.OTHER), read_only=source == 2
        )
        for source in range(7)
    }
    assert answers.asked == [(broker, DescribeConfigs([resource]))]
    answers.configs[resource.name] = configs(resource.name, FORBIDDEN)
    with pytest.raises(BrokersForbiddenError, match=r"configs of .*their words"):
        ask(brokers)
    del answers.configs[resource.name]
    with pytest.raises(BrokersRefusedError, match=r"configs of .*the response is empty"):
        ask(brokers)


@pytest.mark.parametrize(
    ("change", "broker", "resource"),
    [
        ("alter_topic_configs", None, Resource(ResourceType.TOPIC, "orders")),
        ("alter_broker_configs", None, Resource(ResourceType.BROKER, "")),
        ("alter_broker_configs", 0, Resource(ResourceType.BROKER, "0")),
    ],
)
@pytest.mark.parametrize("dry_run", [False, True])
def test_configs_are_changed_where_they_belong(
    brokers: KafkaBrokers, answers: Answers, change: str, broker: int | None, resource: Resource, dry_run: bool
) -> None:
    whose = "orders" if resource.type is ResourceType.TOPIC else broker

    def alter() -> None:
        getattr(brokers, change)(whose, {"a": "5", "b": None}, dry_run=dry_run)

    alter()
    assert answers.asked == [(broker, IncrementalAlterConfigs(resource, {"a": "5", "b": None}, dry_run))]
    answers.altered = [AlterAnswer(0, None), AlterAnswer(FORBIDDEN, "their words")]
    with pytest.raises(BrokersForbiddenError, match=r"configs of .*their words"):
        alter()
    answers.altered = []
    with pytest.raises(BrokersRefusedError, match=r"configs of .*the response is empty"):
        alter()


def test_a_change_is_no_dry_run_unless_it_is_asked_for(brokers: KafkaBrokers, answers: Answers) -> None:
    brokers.alter_topic_configs("orders", {})
    brokers.alter_broker_configs(1, {})
    assert [request.only_validate for _, request in answers.asked] == [False, False]


def test_closing_closes_the_connections(brokers: KafkaBrokers, answers: Answers) -> None:
    brokers.close()
    assert answers.closed == 1
