"""What every decision of an audit knows beside the objects and the segments."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from include.tiering.audit.finding import AuditFinding
from include.tiering.audit.segment_facts import AuditedTopic, PartitionText
from include.tiering.errors import RemoteMetadataError
from include.tiering.remote_storage.layouts.contract import SegmentLayout

DEFAULT_MIN_AGE_MS: Final = 24 * 3_600_000

ManifestReader = Callable[[str], bytes | None]
"""The manifest object under a key. None: manifests cannot be read now. Raises RemoteResourceNotFoundError if it is
gone, another RemoteStorageError if it cannot be one or the store does not answer."""


def no_manifest(key: str) -> bytes | None:
    """A `ManifestReader` of whoever cannot read any."""
    return None


@dataclass(frozen=True, slots=True)
class AuditMoment:
    """Of when the listing is, by the database's clock (an inventory's: its own), and what counts as too new.

    `settled_ms`: a change is surely in the listing if it was made so long before `listed_at_ms`. `min_age_ms` is the
    age guard. `delete_hold_ms`: a delete that began may wait so long on purpose before anything goes.
    """

    listed_at_ms: int
    settled_ms: int = 0
    min_age_ms: int = DEFAULT_MIN_AGE_MS
    delete_hold_ms: int = 0

    def was_settled(self, changed_at_ms: int) -> bool:
        """Whether all that led to this change was done before the listing began."""
        return changed_at_ms < self.listed_at_ms - self.settled_ms

    def is_young(self, at_ms: int) -> bool:
        """Younger than the age guard."""
        return at_ms > self.listed_at_ms - self.min_age_ms

    def is_past_hold(self, delete_started_at_ms: int) -> bool:
        return delete_started_at_ms <= self.listed_at_ms - max(self.min_age_ms, self.delete_hold_ms)


@dataclass(frozen=True, slots=True)
class AuditContext:
    """`worked_on`: partitions with a live lease, asked for after the segments were read. `unread`: those that brokers
    tier and of which not all was read that brokers wrote. `brokers_read_ms`: of partitions of which all was read, when
    the brokers were asked how much that is."""

    moment: AuditMoment
    layout: SegmentLayout
    topics: Mapping[str, AuditedTopic]
    worked_on: frozenset[PartitionText]
    read_manifest: ManifestReader = no_manifest
    unread: frozenset[PartitionText] = frozenset()
    brokers_read_ms: Mapping[PartitionText, int] = field(default_factory=dict)

    def topic(self, topic_id: str) -> AuditedTopic:
        """Of a segment of the metadata.

        Raises:
            RemoteMetadataError: the metadata has the segment and not its topic.
        """
        found = self.topics.get(topic_id)
        if found is None:
            raise RemoteMetadataError(f"topic id {topic_id} has segments and no topic: the database is damaged")
        return found


class PassedOver(StrEnum):
    """Why objects were not judged. They are counted, so that nobody takes silence for health."""

    YOUNG = "young"
    """Younger than the age guard: a copy that is under way, or a database that is behind."""

    CHANGING = "changing"
    """The segment changed since the listing began, or an object vanished: the next audit sees it settled."""

    OF_BROKERS = "of-brokers"
    """Unknown segment ids of a topic that is handed over, or its brokers': they write objects that no metadata here
    knows, unless all that they wrote about them must have been read."""

    UNREAD = "unread"
    """Of a partition that brokers tier, and of which not all was read that they wrote: ./tiering ingest."""


@dataclass(frozen=True, slots=True)
class AuditOutcome:
    """Findings, and how many objects were passed over."""

    findings: tuple[AuditFinding, ...] = ()
    passed_over: Mapping[PassedOver, int] = field(default_factory=Counter)


NOTHING_FOUND: Final = AuditOutcome()
