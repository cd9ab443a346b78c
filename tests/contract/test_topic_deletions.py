"""What every implementation of `TopicDeletions` remembers, over each database."""

import pytest
from sqlalchemy import Engine, select

from include.tiering.database.schema import events
from include.tiering.model.ownership import TopicOwner
from include.tiering.segments.sql_topics import SqlTopicDeletions, SqlTopicRegistry
from include.tiering.segments.topics import TopicDeletion, TopicDeletions
from tests.doubles.databases import AdjustableNow
from tests.doubles.segments import CLUSTER_ID, uuid

ORDERS, AGAIN = uuid(1), uuid(2)
EVIDENCE = "RemoveTopicRecord, below offset 7"


@pytest.fixture
def deletions(engine: Engine, now: AdjustableNow) -> TopicDeletions:
    return SqlTopicDeletions(engine, CLUSTER_ID, now_ms=now)


def details(engine: Engine) -> list[tuple[str, str, str, str]]:
    with engine.connect() as connection:
        query = select(events.c.kind, events.c.subject, events.c.detail, events.c.author).order_by(events.c.event_id)
        return [tuple(row) for row in connection.execute(query)]


def test_nothing_is_deleted_before_somebody_said_so(deletions, engine):
    SqlTopicRegistry(engine, CLUSTER_ID).set_owner(
        ORDERS, "orders", TopicOwner.PLATFORM, expected=TopicOwner.NONE, author="me"
    )
    assert deletions.all() == {}


def test_the_first_record_stays_with_its_time_and_evidence(deletions, now, engine):
    first = deletions.record(ORDERS, "orders", evidence=EVIDENCE, author="expiration")
    assert first == TopicDeletion("orders", now.now_ms, EVIDENCE)
    now.advance(5)
    assert deletions.record(ORDERS, "orders", evidence="something else", author="expiration") == first
    assert deletions.all() == {ORDERS: first}
    assert details(engine) == [("topic-deletion", f"orders ({ORDERS})", f"recorded: {EVIDENCE}", "expiration")]


def test_a_topic_of_the_same_name_is_another_one(deletions):
    deletions.record(ORDERS, "orders", evidence=EVIDENCE, author="expiration")
    assert AGAIN not in deletions.all()
    deletions.withdraw(AGAIN, evidence="it is there", author="expiration")
    assert ORDERS in deletions.all()


def test_what_was_withdrawn_may_be_recorded_anew_and_counts_from_then(deletions, now, engine):
    deletions.record(ORDERS, "orders", evidence=EVIDENCE, author="expiration")
    for _ in range(2):
        deletions.withdraw(ORDERS, evidence="it is there", author="expiration")
    assert deletions.all() == {}
    now.advance(1_000)
    assert deletions.record(ORDERS, "orders", evidence="again", author="expiration").seen_at_ms == now.now_ms
    assert [detail for _, _, detail, _ in details(engine)] == [
        f"recorded: {EVIDENCE}",
        "withdrawn: it is there",
        "recorded: again",
    ]


def test_the_owner_is_not_touched(deletions, engine):
    registry = SqlTopicRegistry(engine, CLUSTER_ID)
    registry.set_owner(ORDERS, "orders", TopicOwner.PLATFORM, expected=TopicOwner.NONE, author="me")
    deletions.record(ORDERS, "orders", evidence=EVIDENCE, author="expiration")
    assert registry.owner(ORDERS) is TopicOwner.PLATFORM


def test_each_cluster_has_its_own(deletions, engine):
    deletions.record(ORDERS, "orders", evidence=EVIDENCE, author="expiration")
    assert SqlTopicDeletions(engine, "another").all() == {}
