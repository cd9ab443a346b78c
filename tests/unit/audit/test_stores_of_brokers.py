"""Audits of stores that brokers write."""

from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from include.tiering.audit.compare import AuditResult, classify, gather
from include.tiering.audit.finding import (
    AuditContext,
    AuditedSegment,
    AuditedTopic,
    AuditFinding,
    AuditMoment,
    FindingKind,
    PassedOver,
    epochs_text,
)
from include.tiering.audit.plan_removals import plan_removals
from include.tiering.model.ownership import StoreMarker, TopicOwner
from include.tiering.remote_storage.layouts.aiven import AivenLayout
from include.tiering.remote_storage.layouts.local_tiered_storage import LocalTieredStorageLayout
from include.tiering.remote_storage.location import open_listing, open_storage
from tests.doubles.audit_worlds import FINISHED, HOUR_MS, LISTED_AT_MS, OLD_MS, TOMBSTONE, Attempt, World
from tests.doubles.kafkas_remote_store import ABANDONED, kafkas_segments, kafkas_store

# An audit of what a real broker left in Kafka's LocalTieredStorage, and of a layout without manifests.

LAYOUT: Final = "local_tiered_storage"
DAY_MS: Final = 86_400_000


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = kafkas_store(tmp_path)
    open_storage(root.as_uri(), layout=LAYOUT).create_marker(StoreMarker("dHr1-H6xSjCRtrVEoH1thQ", "store-1", 1))
    return root


def segments() -> list[AuditedSegment]:
    return [
        AuditedSegment(
            segment_id=str(one.remote_log_segment_id.id),
            topic_id=str(one.topic_id_partition.topic_id),
            partition=one.topic_id_partition.partition,
            state=int(one.state),
            start_offset=one.start_offset,
            end_offset=one.end_offset,
            size_bytes=one.segment_size_bytes,
            changed_at_ms=one.event_timestamp_ms,
            arrival=arrival,
            leader_epochs=epochs_text(one.segment_leader_epochs),
        )
        for arrival, one in enumerate(kafkas_segments())
    ]


def audit(
    root: Path, known: list[AuditedSegment], owner: TopicOwner = TopicOwner.BROKER, **moment: int
) -> tuple[AuditFinding, ...]:
    listed_at_ms = 10 * DAY_MS + max(segment.changed_at_ms for segment in segments())
    names = {str(one.topic_id_partition.topic_id): one.topic_id_partition.topic for one in kafkas_segments()}
    topics = {topic_id: AuditedTopic(name, owner) for topic_id, name in names.items()}
    context = AuditContext(AuditMoment(listed_at_ms, **moment), LocalTieredStorageLayout(), topics, frozenset())
    listing = open_listing(root.as_uri(), layout=LAYOUT)
    (part,) = listing.parts(1)
    return classify(gather(listing.pages(part), listing.open_uploads(), context), known, context).findings


@pytest.mark.parametrize("owner", [TopicOwner.BROKER, TopicOwner.PLATFORM])
def test_one_copy_was_abandoned_and_all_else_is_in_order(root: Path, owner: TopicOwner) -> None:
    (finding,) = audit(root, segments(), owner)
    assert (finding.kind, str(finding.segment_id)) == (FindingKind.ABANDONED_COPY, ABANDONED)
    assert (finding.topic, finding.partition, finding.start_offset, finding.end_offset) == ("tier-a", 0, 463, 551)
    objects = [path.stat().st_size for path in root.rglob(f"*{ABANDONED}.*")]
    assert (finding.size_bytes, len(objects)) == (sum(objects), 5)


def test_a_young_copy_of_a_broker_is_under_way(root: Path) -> None:
    assert audit(root, segments(), min_age_ms=30 * DAY_MS) == ()


def test_what_is_wrong_in_the_directory_is_named(root: Path) -> None:
    known = [segment for segment in segments() if segment.segment_id != ABANDONED]
    for path in root.rglob(f"*{ABANDONED}.*"):
        path.unlink()
    tree = root / "kafka-tiered-storage"
    by_suffix = {suffix: sorted(tree.rglob(f"*.{suffix}")) for suffix in ("log", "snapshot", "txnindex", "index")}
    expected = set()

    def key_of(path: Path) -> str:
        return path.relative_to(root).as_posix()

    missing, optional = by_suffix["snapshot"][0], by_suffix["txnindex"][0]
    missing.unlink()
    expected.add(("dangling-reference", key_of(missing)))
    optional.unlink()
    longer = by_suffix["log"][3]
    longer.write_bytes(longer.read_bytes() + b"x")
    expected.add(("size-mismatch", key_of(longer)))
    misplaced = tree / "tier-a-9-YvCYzlSeTbGBuoBwAEsshQ" / by_suffix["index"][0].name
    misplaced.parent.mkdir()
    misplaced.write_bytes(b"12345678")
    expected.add(("wrong-layout", key_of(misplaced)))
    stranger = tree / "notes.txt"
    stranger.write_bytes(b"who was here")
    expected.add(("foreign-object", key_of(stranger)))
    assert {(one.kind.value, one.key) for one in audit(root, known)} == expected


def test_a_complete_copy_that_no_metadata_knows_is_left_alone(root: Path) -> None:
    """Nothing proves that it is one, and nothing that it is not: a database that was set back would call it unknown."""
    (lost,) = [
        segment
        for segment in segments()
        if (segment.start_offset, segment.topic_id[:5], segment.partition) == (0, "4rc5S", 0)
    ]
    known = [
        segment
        for segment in segments()
        if segment is not lost and segment.segment_id not in (lost.segment_id, ABANDONED)
    ]
    for path in root.rglob(f"*{ABANDONED}.log"):
        path.unlink()
    findings = audit(root, known, TopicOwner.PLATFORM, min_age_ms=0)
    of_lost = [one for one in findings if str(one.segment_id) == lost.segment_id]
    assert {one.kind for one in of_lost} == {FindingKind.FOREIGN_OBJECT}
    assert all("no manifests" in one.message for one in of_lost)
    orphans = [one for one in findings if one not in of_lost]
    assert {(one.kind, str(one.segment_id)) for one in orphans} == {(FindingKind.ORPHAN, ABANDONED)}
    plan = plan_removals("run", "audit", findings, refusals=(), min_age_ms=0, now_ms=2**62)
    assert {removal.key for removal in plan.removals} == {one.key for one in orphans}


# Objects in topics that brokers tier, of which their records do not tell: when that is believed, and when not.

BROKERS = "brokers'"
ONE_DAY_MS = 24 * HOUR_MS


@pytest.fixture
def world() -> World:
    return World.empty()


@pytest.fixture
def left(world: World) -> Attempt:
    """A whole copy of three days ago that nobody knows, beside one that brokers do."""
    known, unknown = world.attempt(topic=BROKERS), world.attempt(topic=BROKERS)
    for attempt in (known, unknown):
        world.store_all(attempt)
    world.know(known, FINISHED)
    return unknown


def audit_of_brokers(
    world: World, left: Attempt, read_ms: int | None = LISTED_AT_MS, *, unread: bool = False
) -> AuditResult:
    place = (left.topic_id, left.partition)
    context = AuditContext(
        AuditMoment(LISTED_AT_MS),
        AivenLayout(),
        world.topics,
        frozenset(),
        world.read_manifest,
        frozenset({place} if unread else ()),
        {} if read_ms is None else {place: read_ms},
    )
    return classify(gather([world.objects], [], context), world.segments, context)


def test_what_is_old_and_unknown_to_all_that_was_read_is_foreign(world: World, left: Attempt) -> None:
    result = audit_of_brokers(world, left)
    assert {(one.kind.value, one.key, str(one.segment_id)) for one in result.findings} == {
        ("foreign-object", left.key(kind), left.segment_id) for kind in ("log", "indexes", "rsm-manifest")
    }
    assert {one.message.partition(":")[0] for one in result.findings} == {"brokers have no record of its segment"}
    assert not result.passed_over


def test_so_is_what_brokers_left_of_what_they_deleted(world: World, left: Attempt) -> None:
    world.know(left, TOMBSTONE)
    assert {one.message.partition(":")[0] for one in audit_of_brokers(world, left).findings} == {
        "brokers recorded its segment as deleted"
    }


@pytest.mark.parametrize(
    "read_ms", [None, OLD_MS, OLD_MS + ONE_DAY_MS - 1], ids=["never", "as old", "within a day of it"]
)
def test_its_record_may_be_on_its_way(world: World, left: Attempt, read_ms: int | None) -> None:
    result = audit_of_brokers(world, left, read_ms)
    assert (result.findings, result.passed_over) == ((), {PassedOver.OF_BROKERS: 3})


def test_a_day_behind_it_is_enough(world: World, left: Attempt) -> None:
    assert len(audit_of_brokers(world, left, OLD_MS + ONE_DAY_MS).findings) == 3


def test_what_was_deleted_lately_may_be_on_its_way_out(world: World, left: Attempt) -> None:
    world.know(left, TOMBSTONE, LISTED_AT_MS - HOUR_MS)
    assert audit_of_brokers(world, left).passed_over == {PassedOver.OF_BROKERS: 3}


def test_what_was_not_read_yet_may_tell_of_it(world: World, left: Attempt) -> None:
    assert audit_of_brokers(world, left, unread=True).passed_over[PassedOver.OF_BROKERS] == 3


def test_during_a_hand_over_two_write(world: World, left: Attempt) -> None:
    topics = dict(world.topics)
    topics[left.topic_id] = AuditedTopic(BROKERS, TopicOwner.HANDING_OVER)
    assert audit_of_brokers(replace(world, topics=topics), left).passed_over == {PassedOver.OF_BROKERS: 3}
