"""`./tiering init`: what a cluster and a store have and allow, and the settings file that is made of this.

Nothing of the cluster is changed. In the store a probe object is written and deleted, unless the store belongs to
another deployment.
"""

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypedDict

from include.tiering.errors import BrokersError, BrokersForbiddenError, RemoteStorageError, printable
from include.tiering.kafka.cluster.contract import Brokers, TopicMetadata, release_of
from include.tiering.kafka.fetch_api.contract import Leader, LeaderLogs
from include.tiering.kafka.log_dirs.contract import matches
from include.tiering.kafka.log_dirs.rules import is_replicated, topic_refusal
from include.tiering.model.segments import TopicIdPartition
from include.tiering.presentation import Presentation, Table, count
from include.tiering.remote_storage.contract import RemoteStorage
from include.tiering.settings import TieringSettings
from include.tiering.units import format_bytes

_MOST_LISTED: Final = 50
_CONNECTION: Final = (
    "security_protocol",
    "sasl_mechanism",
    "sasl_username",
    "ssl_ca_location",
    "ssl_certificate_location",
    "ssl_key_location",
)
_SECRETS: Final = {
    "sasl_password": "TIERING_CLUSTER__SASL_PASSWORD",
    "ssl_key_password": "TIERING_CLUSTER__SSL_KEY_PASSWORD",
}
_OF_STORE: Final = ("endpoint_url", "region", "layout", "key_prefix")


@dataclass(frozen=True, slots=True)
class SurveyedTopic:
    """A topic: `size_bytes` of its leaders' logs (None if unknown), and why it may not be copied (None if it may)."""

    topic: str
    partitions: int
    size_bytes: int | None
    refusal: str | None
    replicated: bool

    @property
    def words(self) -> str:
        """The topic's numbers, for a person."""
        size = "" if self.size_bytes is None else f", {format_bytes(self.size_bytes)}"
        waits = "" if self.replicated else ", not replicated: each segment settles before it is copied"
        return f"{count(self.partitions, 'partition')}{size}{waits}"


@dataclass(frozen=True, slots=True)
class Survey:
    """What was found. `missing` are rights and other obstacles, each a sentence; `store` says whose the store is."""

    cluster_id: str
    brokers: tuple[tuple[int, str, str], ...]
    topics: tuple[SurveyedTopic, ...]
    store: str
    missing: tuple[str, ...]

    def included(self, patterns: Collection[str]) -> list[SurveyedTopic]:
        """Return the topics that the patterns name and that may be copied."""
        return [topic for topic in self.topics if topic.refusal is None and matches(topic.topic, patterns)]


def survey(settings: TieringSettings, brokers: Brokers, leaders: LeaderLogs, storage: RemoteStorage) -> Survey:
    """Return what is found now.

    Args:
        settings: `topics.include` names the topics whose beginning is read.
        brokers: the cluster's brokers.
        leaders: reads the logs of the cluster's leaders.
        storage: the store, opened without a check of its marker.

    Raises:
        BrokersError: the brokers cannot be reached, or refuse the login.
    """
    missing: list[str] = []
    described = brokers.describe()
    found = list(_topics(brokers, missing))
    for name in settings.topics.include:
        if not set("*?[") & set(name) and name not in {topic.topic for topic in found} and not missing:
            missing.append(f"there is no topic {name}, or this user lacks the ACL that allows Describe on it")
    sizes = _sizes(brokers, found, missing)
    _try_reads(brokers, leaders, [topic for topic in found if matches(topic.topic, settings.topics.include)], missing)
    return Survey(
        described.cluster_id,
        tuple((broker.broker_id, f"{broker.host}:{broker.port}", release_of(broker)) for broker in described.brokers),
        tuple(_surveyed(topic, sizes) for topic in found),
        _try_store(storage, described.cluster_id, missing),
        tuple(missing),
    )


def _topics(brokers: Brokers, missing: list[str]) -> Iterator[TopicMetadata]:
    try:
        yield from sorted(brokers.topics().values(), key=lambda topic: topic.topic)
    except BrokersForbiddenError:
        for name in sorted(brokers.topic_names()):
            try:
                yield from brokers.topics([name]).values()
            except BrokersForbiddenError as error:
                missing.append(f"{error}: allow DescribeConfigs on topic {name}")


def _try_reads(brokers: Brokers, leaders: LeaderLogs, topics: Sequence[TopicMetadata], missing: list[str]) -> None:
    """Read the beginning of one partition of each topic that may be copied."""
    firsts = [
        TopicIdPartition(topic.topic_id, min(topic.partitions), topic.topic)
        for topic in topics
        if _refusal(topic) is None and topic.partitions
    ]
    answer = brokers.partition_offsets(firsts)
    missing += [f"{partition}: {error}" for partition, error in answer.refused.items()]
    for partition, offsets in answer.offsets.items():
        leader = Leader(offsets.leader, offsets.leader_epoch)
        try:
            with leaders.read(partition, leader, max(offsets.earliest, offsets.earliest_local or 0), 1):
                pass
        except BrokersError as error:
            missing.append(str(error))


def _try_store(storage: RemoteStorage, cluster_id: str, missing: list[str]) -> str:
    """Return whose the store is. If it has no marker, write a probe object in it and delete the probe."""
    try:
        marker = storage.read_marker()
        if marker is not None:
            if marker.cluster_id != cluster_id:
                missing.append(f"the store belongs to {marker}: choose another URL, or another prefix in it")
            return f"belongs to {marker}"
        storage.check_writable()
    except RemoteStorageError as error:
        missing.append(str(error))
        return "cannot be used"
    return "is writable, and belongs to no deployment yet"


def _refusal(topic: TopicMetadata) -> str | None:
    refusal = topic_refusal(topic.topic, topic, removed=False, named=True, cleaned=False)
    return None if refusal is None else str(refusal)


def _sizes(brokers: Brokers, topics: Sequence[TopicMetadata], missing: list[str]) -> dict[str, int]:
    leaders = {
        TopicIdPartition(topic.topic_id, number, topic.topic): partition.leader
        for topic in topics
        for number, partition in topic.partitions.items()
        if partition.leader >= 0
    }
    sizes: dict[str, int] = {}
    try:
        for partition, size_bytes in brokers.log_sizes(leaders).items():
            sizes[partition.topic] = sizes.get(partition.topic, 0) + size_bytes
    except BrokersForbiddenError as error:
        missing.append(f"{error}: sizes of logs need Describe on the cluster; copies do not")
    return sizes


def _surveyed(topic: TopicMetadata, sizes: dict[str, int]) -> SurveyedTopic:
    replicated = all(is_replicated(topic, partition) for partition in topic.partitions.values())
    return SurveyedTopic(topic.topic, len(topic.partitions), sizes.get(topic.topic), _refusal(topic), replicated)


def settings_text(settings: TieringSettings, found: Survey) -> str:
    """Return the TOML of a deployment that reads from leaders; secrets are named, not written."""
    remote, cluster, patterns = settings.remote_storage, settings.cluster, settings.topics.include
    brokers = ", ".join(f"{broker_id} ({release})" for broker_id, _, release in found.brokers)
    lines = [
        f"# Cluster {found.cluster_id}, brokers {brokers}. Every setting: docs/settings.md",
        "",
        "# Topics to copy: names or patterns. Found were:",
        *(f"#   {topic.topic}: {topic.words}" for topic in found.included(["*"])[:_MOST_LISTED]),
        *([f"#   and {more} more"] if (more := len(found.included(["*"])) - _MOST_LISTED) > 0 else []),
        f"topics.include = {_toml(list(patterns))}",
        "",
        f"# {found.store}",
        f"remote_storage.url = {_toml(remote.required_url())}",
        *(f"remote_storage.{name} = {_toml(str(getattr(remote, name)))}" for name in _set(remote, _OF_STORE)),
        "",
        "# Set TIERING_METADATA__URL, if it holds a password. Unset: SQLite on this host, below ~/.local/state",
        '# metadata.url = "postgresql+psycopg://..."',
        "",
        "# Without log_dirs, segments are read from the leaders: docs/leaders.md",
        "[cluster]",
        f"bootstrap_servers = {_toml(str(cluster.bootstrap_servers))}",
        *(f"{name} = {_toml(str(getattr(cluster, name)))}" for name in _set(cluster, _CONNECTION)),
        *(f"# {name}: set {variable}" for name, variable in _SECRETS.items() if getattr(cluster, name) is not None),
        "",
        "[leaders]",
        "# max_bytes_per_second = 104857600   # of one broker, for each process",
        '# spool_directory = "/var/tmp"        # a disk of each worker, not memory',
    ]
    return "\n".join(lines) + "\n"


def _set(section: object, names: Sequence[str]) -> list[str]:
    """Return the names whose values are not the defaults."""
    defaults = type(section)()
    return [name for name in names if getattr(section, name, None) != getattr(defaults, name, None)]


def _toml(value: str | list[str]) -> str:
    return json.dumps(value)


class SurveyedTopicDocument(TypedDict):
    """A topic of the cluster; `refusal` is why it is not copied, `size_bytes` null if unknown."""

    topic: str
    partitions: int
    size_bytes: int | None
    refusal: str | None


class SurveyDocument(TypedDict):
    """What `init` found, and the file that it wrote. `missing` are rights that are missing, and other obstacles."""

    config: str
    cluster_id: str
    brokers: list[dict[str, str | int]]
    topics: list[SurveyedTopicDocument]
    store: str
    missing: list[str]
    next: str


def present_survey(found: Survey, config: Path, settings: TieringSettings) -> Presentation:
    """Present what was found and what to run next; `ok` if nothing is missing."""
    following = f"export TIERING_CONFIG={config} && ./tiering migrate && ./tiering ready"
    if not settings.topics.include:
        following = f"name topics in topics.include of {config}, then: {following}"
    document: SurveyDocument = {
        "config": str(config),
        "cluster_id": found.cluster_id,
        "brokers": [{"broker_id": i, "address": address, "release": release} for i, address, release in found.brokers],
        "topics": [
            {"topic": t.topic, "partitions": t.partitions, "size_bytes": t.size_bytes, "refusal": t.refusal}
            for t in found.topics
        ],
        "store": found.store,
        "missing": list(found.missing),
        "next": following,
    }
    return Presentation(
        lambda: document,
        lambda: _tables(found, settings),
        f"{printable(str(config))} is written. The store {found.store}. Next: {following}",
        ok=not found.missing,
    )


def _tables(found: Survey, settings: TieringSettings) -> tuple[Table, ...]:
    brokers = Table("brokers", ("broker>", "address", "release"), tuple((str(i), *rest) for i, *rest in found.brokers))
    rows = tuple(
        (
            topic.topic,
            str(topic.partitions),
            "" if topic.size_bytes is None else format_bytes(topic.size_bytes),
            topic.refusal or ("yes" if matches(topic.topic, settings.topics.include) else "not in topics.include"),
        )
        for topic in found.topics
    )
    topics = Table("topics", ("topic", "partitions>", "bytes>", "copied"), rows)
    missing = tuple((sentence,) for sentence in found.missing)
    return (brokers, topics, *((Table("missing", ("what",), missing),) if missing else ()))
