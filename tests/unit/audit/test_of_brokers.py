"""Objects in topics that brokers tier, of which their records do not tell: when that is believed, and when not."""

from dataclasses import replace

import pytest

from include.tiering.audit.compare import AuditResult, classify, gather
from include.tiering.audit.finding import AuditContext, AuditedTopic, AuditMoment, PassedOver
from include.tiering.model.ownership import TopicOwner
from include.tiering.remote_storage.layouts.aiven import AivenLayout
from tests.doubles.audit_worlds import FINISHED, HOUR_MS, LISTED_AT_MS, OLD_MS, TOMBSTONE, Attempt, World

BROKERS = "brokers'"
DAY_MS = 24 * HOUR_MS


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


def audit(world: World, left: Attempt, read_ms: int | None = LISTED_AT_MS, *, unread: bool = False) -> AuditResult:
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
    result = audit(world, left)
    assert {(one.kind.value, one.key, str(one.segment_id)) for one in result.findings} == {
        ("foreign-object", left.key(kind), left.segment_id) for kind in ("log", "indexes", "rsm-manifest")
    }
    assert {one.message.partition(":")[0] for one in result.findings} == {"brokers tell of no such segment"}
    assert not result.passed_over


def test_so_is_what_brokers_left_of_what_they_deleted(world: World, left: Attempt) -> None:
    world.know(left, TOMBSTONE)
    assert {one.message.partition(":")[0] for one in audit(world, left).findings} == {
        "brokers say that they deleted its segment"
    }


@pytest.mark.parametrize("read_ms", [None, OLD_MS, OLD_MS + DAY_MS - 1], ids=["never", "as old", "within a day of it"])
def test_its_record_may_be_on_its_way(world: World, left: Attempt, read_ms: int | None) -> None:
    result = audit(world, left, read_ms)
    assert (result.findings, result.passed_over) == ((), {PassedOver.OF_BROKERS: 3})


def test_a_day_behind_it_is_enough(world: World, left: Attempt) -> None:
    assert len(audit(world, left, OLD_MS + DAY_MS).findings) == 3


def test_what_was_deleted_lately_may_be_on_its_way_out(world: World, left: Attempt) -> None:
    world.know(left, TOMBSTONE, LISTED_AT_MS - HOUR_MS)
    assert audit(world, left).passed_over == {PassedOver.OF_BROKERS: 3}


def test_what_was_not_read_yet_may_tell_of_it(world: World, left: Attempt) -> None:
    assert audit(world, left, unread=True).passed_over[PassedOver.OF_BROKERS] == 3


def test_during_a_hand_over_two_write(world: World, left: Attempt) -> None:
    topics = dict(world.topics)
    topics[left.topic_id] = AuditedTopic(BROKERS, TopicOwner.HANDING_OVER)
    assert audit(replace(world, topics=topics), left).passed_over == {PassedOver.OF_BROKERS: 3}
