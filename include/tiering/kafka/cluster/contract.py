"""What is true about topics, and what the brokers themselves say and are told.

`ClusterMetadata` holds ids, configs and leaders of topics: never guessed, unknown is None.

`Brokers` says offsets, transactions and configs. Questions change nothing and may be repeated. Every call ends in
bounded time: with an answer, or with a `BrokersError` that says whether to try again. An answer is what the brokers
said at that moment, never a stored one; nothing that was not answered is filled in. What concerns one partition among
several is refused by itself, the others go on.

`ServedRecords` is what a consumer gets from the brokers of a range of a partition.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

from include.tiering.errors import BrokersError, UnknownTopicError
from include.tiering.model.segments import SeenRecord, TopicIdPartition, Uuid


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """`leader` is -1 while there is none. `directories` holds one directory id per replica, if known."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    directories: tuple[Uuid, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """`configs` holds topic configs and the dynamic broker defaults below them; a key that is
    absent has the broker's static default, which only the broker knows.
    """

    topic: str
    topic_id: Uuid
    configs: Mapping[str, str] = field(default_factory=dict)
    partitions: Mapping[int, PartitionMetadata] = field(default_factory=dict)

    @property
    def is_compacted(self) -> bool:
        policies = self.configs.get("cleanup.policy", "delete").split(",")
        return "compact" in (policy.strip() for policy in policies)

    @property
    def segment_bytes(self) -> int | None:
        """The most that a segment may have; None if that is not known."""
        configured = self.configs.get("segment.bytes", "")
        return int(configured) if configured.isascii() and configured.isdigit() else None

    @property
    def is_remote_storage_enabled(self) -> bool:
        return self.configs.get("remote.storage.enable", "false").lower() == "true"


class ClusterMetadata(Protocol):
    """One consistent view of the cluster; `refresh` replaces it by a newer one."""

    def refresh(self) -> None:
        """Read what changed since the last call. Cheap when nothing did.

        Raises:
            ClusterMetadataError: the source of the metadata is gone or cannot be read.
        """
        ...

    def cluster_id(self) -> str | None: ...

    def topic(self, topic_id: Uuid) -> TopicMetadata | None:
        """None if this id is unknown or its topic was removed."""
        ...

    def topic_named(self, name: str) -> TopicMetadata | None:
        """The topic that has this name NOW; a re-created topic is another topic."""
        ...

    def topic_names(self) -> Collection[str]:
        """Of all topics that there are now, as far as anybody may see them. A name that is absent says nothing."""
        ...

    def is_removed(self, topic_id: Uuid) -> bool:
        """True only if a removal was positively seen; absence alone says nothing."""
        ...

    def removal_evidence(self, topic_id: Uuid) -> str | None:
        """What positively shows that the topic of this id was deleted, in words; None if nothing does.

        Looks further back than `is_removed`, as far as anything is kept, and so may take a second.

        Raises:
            ClusterMetadataError: nothing can be asked.
        """
        ...


@dataclass(frozen=True, slots=True)
class BrokerNode:
    """One broker that is registered and not fenced.

    `api_versions` holds for each API key the least and greatest version it speaks, both inclusive;
    `supported_features` the greatest level of each feature that its software knows. Neither tells the patch release.
    """

    broker_id: int
    host: str
    port: int
    rack: str | None = None
    api_versions: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    supported_features: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """`brokers` ascend by id. `finalized_features` holds the levels in force, `metadata.version` among them."""

    cluster_id: str
    brokers: tuple[BrokerNode, ...]
    finalized_features: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """What the leader said of one partition, one moment after another in the order of the fields below.

    `earliest` is the log start offset (remote segments included) and `earliest_local` the first offset on its own
    disk, both inclusive. `high_watermark` and `last_stable_offset` are exclusive ends: the last stable offset is never
    above the high watermark, and was asked for first. `latest_tiered` is the highest remote offset, inclusive.

    `earliest_local` is None where the broker is too old to be asked; `latest_tiered` also where nothing is tiered.
    `leader_epoch` is -1 where unknown.
    """

    leader: int
    leader_epoch: int
    earliest: int
    earliest_local: int | None
    latest_tiered: int | None
    last_stable_offset: int
    high_watermark: int


@dataclass(frozen=True, slots=True)
class OffsetsAnswer:
    """For each partition that was asked for either its offsets or why there are none."""

    offsets: Mapping[TopicIdPartition, PartitionOffsets]
    refused: Mapping[TopicIdPartition, BrokersError] = field(default_factory=dict)

    def of(self, partition: TopicIdPartition) -> PartitionOffsets:
        """Raises the error with which this partition was refused."""
        if (error := self.refused.get(partition)) is not None:
            raise error
        return self.offsets[partition]


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """One that holds the last stable offset of a partition down.

    `start_offset`: its first offset in this partition, inclusive. `last_timestamp_ms`: of its producer's newest batch
    there, as the producer set it. `transactional_id` and `started_at_ms` (by the coordinator's clock) are None where no
    coordinator knows the transaction (it hangs) or none of them may be asked.
    """

    producer_id: int
    producer_epoch: int
    start_offset: int
    last_timestamp_ms: int
    transactional_id: str | None = None
    started_at_ms: int | None = None
    timeout_ms: int | None = None

    @property
    def since_ms(self) -> int:
        """The best that is known of when it began."""
        return self.last_timestamp_ms if self.started_at_ms is None else self.started_at_ms


class ConfigSource(StrEnum):
    """Where the value of a config comes from; the first that has one wins."""

    TOPIC = "topic"
    BROKER = "dynamic broker"
    ALL_BROKERS = "dynamic default of all brokers"
    STATIC = "static"
    DEFAULT = "default"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """A config in force. `value` is None where brokers keep it secret, or where it is null; `read_only`: only a restart
    can change it.
    """

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool = False


class Brokers(Protocol):
    """The brokers of one cluster. Any thread may ask.

    Every method raises:
        BrokersUnavailableError: no broker answers, or not in time, or the leader is just changing. Retriable.
        BrokersLoginError: TLS or SASL failed: user, password, certificate or protocol.
        BrokersForbiddenError: this user may not ask that.
        BrokersRefusedError: any other refusal, in the broker's words.
    """

    def describe(self) -> ClusterDescription:
        """The cluster and each of its brokers."""
        ...

    def cluster_id(self) -> str:
        """As one broker says, whichever answers first."""
        ...

    def topic(self, topic_id: Uuid) -> TopicMetadata | None:
        """The topic that has this id; None if there is none, which does not say that there was one."""
        ...

    def topics(self, names: Collection[str] | None = None) -> Mapping[str, TopicMetadata]:
        """Id, partitions and every config in force, by name; of `names`, or of all topics that this user may see.

        A name without a topic is absent; that says nothing about whether there was one.
        """
        ...

    def topic_names(self) -> Collection[str]:
        """Of all topics that this user may see."""
        ...

    def partition_offsets(self, partitions: Collection[TopicIdPartition]) -> OffsetsAnswer:
        """Offsets from the leader of each partition. Refused with UnknownTopicError where the topic's name belongs to
        another topic id by now, or to none.
        """
        ...

    def open_transactions(self, partition: TopicIdPartition) -> Sequence[OpenTransaction]:
        """Those that the leader knows as open, lowest start offset first.

        Raises:
            UnknownTopicError: as for `partition_offsets`.
        """
        ...

    def topic_configs(self, topic: str) -> Mapping[str, BrokerConfig]:
        """Every config in force for a topic, by name.

        Raises:
            UnknownTopicError: there is none of this name.
        """
        ...

    def broker_configs(self, broker_id: int) -> Mapping[str, BrokerConfig]:
        """Every config in force on one broker, by name, as that broker says."""
        ...

    def alter_topic_configs(self, topic: str, changes: Mapping[str, str | None], *, dry_run: bool = False) -> None:
        """Set, or with None remove, all of `changes` or nothing; what is not named stays. Repeating is harmless.

        The controller has stored it when this returns; brokers take it a moment later. `dry_run`: only have it checked.
        After BrokersUnavailableError it may have been done or not: ask, or repeat.

        Raises:
            UnknownTopicError: there is none of this name.
            BrokersRefusedError: a name or value that the brokers do not take.
        """
        ...

    def alter_broker_configs(
        self, broker_id: int | None, changes: Mapping[str, str | None], *, dry_run: bool = False
    ) -> None:
        """As `alter_topic_configs`, on one broker, or with None on the default of all brokers."""
        ...


def known_topic(brokers: Brokers, topic: str) -> TopicMetadata:
    """Raises UnknownTopicError, BrokersError."""
    found = brokers.topics([topic]).get(topic)
    if found is None:
        raise UnknownTopicError(f"the brokers know no topic {topic}")
    return found


METADATA_VERSION: Final = "metadata.version"
_FIRST_LEVELS: Final = (
    (11, "3.5"),
    (12, "3.6"),
    (15, "3.7"),
    (20, "3.8"),
    (21, "3.9"),
    (22, "4.0"),
    (26, "4.1"),
    (28, "4.2"),
    (30, "4.3"),
    (31, "4.4"),
)
_LAST_KNOWN_LEVEL: Final = 33


def release_of(broker: BrokerNode) -> str:
    """In words: `Kafka 4.3`, `newer than Kafka 4.4`, `older than Kafka 3.5` or `unknown`."""
    level = broker.supported_features.get(METADATA_VERSION)
    if level is None:
        return "unknown"
    if level > _LAST_KNOWN_LEVEL:
        return f"newer than Kafka {_FIRST_LEVELS[-1][1]}"
    older = [release for first, release in _FIRST_LEVELS if level >= first]
    return f"Kafka {older[-1]}" if older else f"older than Kafka {_FIRST_LEVELS[0][1]}"


class ServedRecords(Protocol):
    """A plain consumer, in no group. Repeating a call gives the same records."""

    def read(self, partition: TopicIdPartition, start_offset: int, end_offset: int) -> Iterator[SeenRecord]:
        """Records with offsets from `start_offset` to `end_offset`, both inclusive, ascending, of aborted transactions
        too; control records are left out. It ends when nothing below `end_offset` is left to come.

        Raises:
            BrokersUnavailableError: no answer in time. Retriable.
            BrokersRefusedError: the brokers do not serve `start_offset`, or refuse.
        """
        ...
