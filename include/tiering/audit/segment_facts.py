"""What the metadata says, as an audit needs it: every segment in every state, its topic, and who works where."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.ownership import TopicOwner
from include.tiering.segments.contract import KeyRange

PartitionText = tuple[str, int]
"""Topic id as Kafka prints it, partition."""


class SegmentFact(NamedTuple):
    """One segment in any state, tombstones included. Ids as Kafka prints them, `state` as on Kafka's wire, offsets
    inclusive. `changed_at_ms` is when it entered that state, by the database's clock; `arrival` grows with the order in
    which attempts began. Of FINISHED segments with the same offsets under the same leader epochs the last to arrive
    answers lookups. `leader_epochs` is as `epochs_text` writes it."""

    segment_id: str
    topic_id: str
    partition: int
    state: int
    start_offset: int
    end_offset: int
    size_bytes: int
    changed_at_ms: int
    arrival: int
    leader_epochs: str


def epochs_text(leader_epochs: LeaderEpochs) -> str:
    """``epoch:start`` pairs with commas between them, ascending: one plain column of a job's rows."""
    return ",".join(f"{epoch}:{start_offset}" for epoch, start_offset in leader_epochs)


def epochs_of_text(text: str) -> LeaderEpochs:
    """The inverse of `epochs_text`."""
    pairs = (pair.split(":") for pair in text.split(",") if pair)
    return LeaderEpochs.of((int(epoch), int(start_offset)) for epoch, start_offset in pairs)


@dataclass(frozen=True, slots=True)
class AuditedTopic:
    """A topic that the metadata knows."""

    name: str
    owner: TopicOwner

    @property
    def is_ours(self) -> bool:
        """Whether nobody but the platform writes its segments: only then is an unknown segment id an orphan's."""
        return self.owner in (TopicOwner.PLATFORM, TopicOwner.NONE)


class SegmentFacts(Protocol):
    """The metadata of one cluster, read only.

    Every method may raise `MetadataUnavailableError`.
    """

    def now_ms(self) -> int:
        """The database's clock."""
        ...

    def topics(self) -> Mapping[str, AuditedTopic]:
        """By topic id."""
        ...

    def worked_on(self) -> frozenset[PartitionText]:
        """Partitions of which somebody holds a live lease, in whatever role."""
        ...

    def split(self, ranges: int) -> Sequence[KeyRange]:
        """At most `ranges` ranges that hold every segment of now once."""
        ...

    def export(self, key_range: KeyRange) -> Iterator[Sequence[SegmentFact]]:
        """Segments of the range, in pages. Each page is a transaction of its own."""
        ...
