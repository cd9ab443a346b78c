"""The owner of a topic follows from what is asked for and from what the broker does."""

from dataclasses import replace

import pytest

from include.tiering.errors import ClusterMetadataError
from include.tiering.kafka.cluster.contract import TopicMetadata
from include.tiering.kafka.log_dirs.contract import IneligibleReason, ScanReport
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.segments import Uuid
from include.tiering.segments.topics import SeenOwners, owner_seen, register_owners
from tests.doubles.memory_source import MemorySource
from tests.doubles.partial import Partial

NONE, PLATFORM, HANDING_OVER, BROKER = TopicOwner


def replica(*, broker_tiers: bool = False, eligible: bool = True, chosen: bool = True):
    source = MemorySource()
    made = source.replicas[source.add("orders")]
    reason = None if eligible else IneligibleReason.COMPACTED
    segments = tuple(replace(segment, reason=reason) for segment in made.segments)
    return replace(made, owner_is_broker=broker_tiers, segments=segments, chosen=chosen)


@pytest.mark.parametrize(
    ("before", "broker_tiers", "after"),
    [
        (NONE, False, PLATFORM),
        (NONE, True, BROKER),
        (PLATFORM, False, PLATFORM),
        (PLATFORM, True, BROKER),
        (HANDING_OVER, False, HANDING_OVER),
        (HANDING_OVER, True, HANDING_OVER),
        (BROKER, False, BROKER),
        (BROKER, True, BROKER),
    ],
)
def test_owner_seen(before, broker_tiers, after):
    assert owner_seen(replica(broker_tiers=broker_tiers), before) is after


def test_a_topic_that_may_never_be_copied_gets_no_owner():
    assert owner_seen(replica(eligible=False), NONE) is NONE


class Registry(Partial):
    def __init__(self) -> None:
        self.changes: list[tuple[str, TopicOwner, TopicOwner]] = []

    def owner(self, topic_id: Uuid) -> TopicOwner:
        return self.changes[-1][2] if self.changes else NONE

    def set_owner(self, topic_id: Uuid, name: str, owner: TopicOwner, *, expected: TopicOwner, author: str) -> None:
        self.changes.append((name, expected, owner))


def test_only_changes_of_chosen_replicas_are_recorded():
    registry = Registry()
    register_owners(ScanReport("c", (replica(chosen=False), replica(), replica()), ()), registry)
    assert registry.changes == [("orders", NONE, PLATFORM)]


class ClusterMetadataDouble:
    """Topic 1 is tiered by brokers. `answers` False: the metadata log cannot be read."""

    def __init__(self, cluster_id: str = "c", *, answers: bool = True) -> None:
        self._cluster_id = cluster_id
        self._answers = answers

    def refresh(self) -> None:
        if not self._answers:
            raise ClusterMetadataError("no snapshot")

    def cluster_id(self) -> str:
        return self._cluster_id

    def topic(self, topic_id: Uuid) -> TopicMetadata | None:
        return TopicMetadata("orders", topic_id, {"remote.storage.enable": "true"}, {}) if topic_id == TIERED else None


class Recorded:
    def __init__(self, owner: TopicOwner) -> None:
        self._owner = owner

    def owner(self, _topic_id: Uuid) -> TopicOwner:
        return self._owner


TIERED, OTHER = Uuid(b"1" * 16), Uuid(b"2" * 16)


@pytest.mark.parametrize(
    ("recorded", "topic_id", "cluster_metadata", "seen"),
    [
        (PLATFORM, TIERED, ClusterMetadataDouble(), BROKER),
        (NONE, TIERED, ClusterMetadataDouble(), BROKER),
        (HANDING_OVER, TIERED, ClusterMetadataDouble(), HANDING_OVER),
        (PLATFORM, OTHER, ClusterMetadataDouble(), PLATFORM),
        (PLATFORM, TIERED, ClusterMetadataDouble("another"), PLATFORM),
        (PLATFORM, TIERED, ClusterMetadataDouble(answers=False), PLATFORM),
    ],
)
def test_what_brokers_tier_is_theirs_before_a_plan_has_recorded_it(recorded, topic_id, cluster_metadata, seen):
    assert SeenOwners(Recorded(recorded), cluster_metadata, "c").owner(topic_id) is seen
