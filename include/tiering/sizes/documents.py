"""The JSON documents of sizes and log dirs; docs/json.md shows them."""

from typing import NotRequired, TypedDict

from include.tiering.kafka.log_dirs.contract import ScanErrorDocument
from include.tiering.presentation import PartitionLabels


class EpochSizeDocument(TypedDict):
    """Bytes and segments of a leader epoch; a segment that spans epochs counts whole in each of them."""

    epoch: int
    bytes: int
    segments: int


class PartitionSizeDocument(PartitionLabels):
    """Bytes that are served, and `stored_bytes` that are stored and paid for."""

    bytes: int
    stored_bytes: int
    segments: int
    leader_epochs: list[EpochSizeDocument]


class TopicSizeDocument(TypedDict):
    """Sums over the partitions of a topic."""

    topic: str
    topic_id: str
    partitions: int
    segments: int
    bytes: int
    stored_bytes: int


class LagDocument(PartitionLabels):
    """Segments that wait, and for how long the oldest has waited."""

    bytes: int
    segments: int
    seconds: float


class CostDocument(TypedDict):
    """Estimated costs: amounts as text, because they are exact decimals; null without a price."""

    currency: str
    storage_per_month: str | None
    writing: str | None
    reading: str | None
    deleting: str | None


class UnreadDocument(PartitionLabels):
    """A partition that brokers tier, and that is left out of the sizes for this reason."""

    reason: str


class VerdictDocument(TypedDict):
    """Segments and bytes with one verdict."""

    verdict: str
    segments: int
    bytes: int


class DuplicateDocument(PartitionLabels):
    """Bytes that are both local and remote."""

    local_bytes: int


class OutOfSightDocument(PartitionLabels):
    """A partition whose copy lag is unknown, because its leader's replica cannot be read."""

    detail: str


class SizesDocument(TypedDict):
    """The remote log size.

    Some members are there only in a case: `topics` with `--by topic`; `unread` if brokers' records were not all read;
    `safe_bytes` and `verdicts` if the report is about all topics; `copy_lag`, `duplicates`, `out_of_sight` and `errors`
    if the brokers' logs were read.
    """

    partitions: list[PartitionSizeDocument]
    delete_lag: list[LagDocument]
    cost: CostDocument | None
    topics: NotRequired[list[TopicSizeDocument]]
    unread: NotRequired[list[UnreadDocument]]
    safe_bytes: NotRequired[int]
    verdicts: NotRequired[list[VerdictDocument]]
    copy_lag: NotRequired[list[LagDocument]]
    duplicates: NotRequired[list[DuplicateDocument]]
    out_of_sight: NotRequired[list[OutOfSightDocument]]
    errors: NotRequired[list[ScanErrorDocument]]


class DescribedReplicaDocument(TypedDict):
    """A replica, with the members of `kafka-log-dirs.sh` and the remote tier of the whole partition."""

    partition: str
    size: int
    offsetLag: int
    isFuture: bool
    topicId: str
    remoteSize: int
    remoteSegments: int


class DescribedLogDirDocument(TypedDict):
    """A log directory; `error` is null if it can be read."""

    logDir: str
    error: str | None
    partitions: list[DescribedReplicaDocument]


class DescribedBrokerDocument(TypedDict):
    """A broker and its log directories."""

    broker: int
    logDirs: list[DescribedLogDirDocument]


class DescribedRemoteDocument(TypedDict):
    """A partition in remote storage."""

    partition: str
    topicId: str
    size: int
    segments: int


class LogDirsDocument(TypedDict):
    """Local and remote bytes, in the form of `kafka-log-dirs.sh --describe`."""

    version: int
    brokers: list[DescribedBrokerDocument]
    remote: list[DescribedRemoteDocument]
