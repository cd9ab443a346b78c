"""The event log: what it lists, the topic of each event, and those that were recorded before topics had a column."""

import pytest
from alembic import command
from sqlalchemy import Engine, insert, select, text

from include.tiering.database.event_log import EventKind, EventLog, Subject, record_event, run_subject, topic_subject
from include.tiering.database.migrations import migration_config, upgrade
from include.tiering.database.schema import events
from include.tiering.model.segments import TopicIdPartition, Uuid
from tests.doubles.databases import SHARED, each_database

CLUSTER_ID = "cluster-1"
TOPIC_ID = Uuid.parse("AAECAwQFRgeICQoLDA0ODw")
MINUTE_MS = 60_000
NAMES = ("orders", "orders-0", "payments.v1-eu", "_7", "a-5-12", "x" * 249)
OF_TOPIC = (EventKind.OWNER, EventKind.TOPIC_DELETION, EventKind.HANDOVER)
BY_NAME = (EventKind.PAUSE, EventKind.RESUME, EventKind.DRILL)
OF_PARTITION = (
    *(EventKind.ADOPTION, EventKind.DIVERGENCE, EventKind.GIVEN_UP_SEGMENT, EventKind.LEADER_EPOCHS),
    *(EventKind.LOG_START, EventKind.LOST_OFFSETS, EventKind.SKIPPED_OFFSETS, EventKind.SUPERSEDED),
    *(EventKind.INGEST, EventKind.REBUILD),
)
OF_NO_TOPIC = {
    EventKind.INGEST: "__remote_log_metadata-7",
    EventKind.REBUILD: CLUSTER_ID,
    EventKind.BRAKE: run_subject("expire-1"),
    EventKind.APPROVAL: run_subject("expire-1"),
    EventKind.WITHDRAWAL: run_subject("audit-remove-1"),
    EventKind.ANSWER: run_subject(str(TOPIC_ID)),
    EventKind.PAUSE: "*",
    EventKind.RESUME: "*",
    EventKind.POOL_SIZE: "remote_log_copier",
    EventKind.STORE_MOVED: CLUSTER_ID,
    EventKind.STORE_TAKEN_OVER: CLUSTER_ID,
    EventKind.CLUSTER_METADATA_READ: CLUSTER_ID,
    EventKind.FINDING_ACCEPTED: "finding 12",
    EventKind.LOSSES_CONFIRMED: "missing segments",
}
SUBJECTS: list[tuple[EventKind, Subject, str | None]] = [
    *((kind, topic_subject(name, TOPIC_ID), name) for kind in OF_TOPIC for name in NAMES),
    *((kind, name, name) for kind in BY_NAME for name in NAMES),
    *((kind, TopicIdPartition(TOPIC_ID, 10, name), name) for kind in OF_PARTITION for name in NAMES),
    *((kind, subject, None) for kind, subject in OF_NO_TOPIC.items()),
]

database_kind = each_database(SHARED)


@pytest.fixture
def log(engine: Engine) -> EventLog:
    return EventLog(engine, CLUSTER_ID, now_ms=lambda _: 10 * MINUTE_MS)


def _record(engine: Engine, *, cluster_id: str = CLUSTER_ID, every_ms: int = MINUTE_MS) -> None:
    with engine.begin() as connection:
        for number, (kind, subject, _) in enumerate(SUBJECTS):
            record_event(connection, cluster_id, kind, subject, str(number), "otto", number * every_ms)


def test_each_kind_has_its_subject_here() -> None:
    assert {kind for kind, _, _ in SUBJECTS} == set(EventKind)


def test_the_topic_of_a_subject(engine: Engine) -> None:
    _record(engine)
    with engine.connect() as connection:
        found = connection.execute(select(events.c.topic).order_by(events.c.event_id)).scalars().all()
    assert found == [topic for _, _, topic in SUBJECTS]


def test_events_of_a_topic_the_newest_first(engine: Engine, log: EventLog) -> None:
    _record(engine)
    _record(engine, cluster_id="cluster-2")
    for name in NAMES:
        wanted = [str(number) for number, (_, _, topic) in enumerate(SUBJECTS) if topic == name]
        assert [event.detail for event in log.newest(100, topic=name)] == wanted[::-1]
        assert [event.detail for event in log.newest(2, topic=name)] == wanted[:-3:-1]
    assert log.newest(100, topic="order") == log.newest(100, topic="*") == log.newest(100, topic="") == []
    assert len(log.newest(1_000)) == len(SUBJECTS)


def test_events_of_the_last_minutes(engine: Engine, log: EventLog) -> None:
    _record(engine)
    late = [str(number) for number in range(len(SUBJECTS) - 1, -1, -1)]
    assert [event.detail for event in log.newest(1_000, within_ms=10 * MINUTE_MS)] == late
    assert [event.detail for event in log.newest(1_000, within_ms=MINUTE_MS)] == late[: len(SUBJECTS) - 9]
    of_topic = [event.detail for event in log.newest(1_000, topic="orders", within_ms=MINUTE_MS)]
    assert of_topic == [number for number in late if SUBJECTS[int(number)][2] == "orders" and int(number) >= 9]


def test_the_last_event_of_a_kind_about_a_topic(engine: Engine, log: EventLog) -> None:
    assert log.last(EventKind.DRILL, "orders") is None
    log.append(EventKind.DRILL, "orders", "first", author="otto")
    log.append(EventKind.DRILL, "orders", "second", author="otto")
    log.append(EventKind.DRILL, "orders-0", "other", author="otto")
    log.append(EventKind.PAUSE, "orders", "pause", author="otto")
    found = log.last(EventKind.DRILL, "orders")
    assert found is not None
    assert found.detail == "second"


def test_what_was_recorded_before_gets_its_topic(new_engine: Engine) -> None:
    with new_engine.begin() as connection:
        config = migration_config()
        config.attributes["connection"] = connection
        command.upgrade(config, "r0109")
        for number, (kind, subject, _) in enumerate(SUBJECTS):
            stored = topic_subject(str(subject), TOPIC_ID) if isinstance(subject, TopicIdPartition) else subject
            values = {"cluster_id": CLUSTER_ID, "occurred_at_ms": number, "kind": str(kind), "subject": stored}
            old = text(
                "INSERT INTO events (cluster_id, occurred_at_ms, kind, subject, detail, author)"
                " VALUES (:cluster_id, :occurred_at_ms, :kind, :subject, '', 'otto')"
            )
            connection.execute(old, values)
    upgrade(new_engine)
    with new_engine.connect() as connection:
        found = connection.execute(select(events.c.topic).order_by(events.c.event_id)).scalars().all()
    assert found == [topic for _, _, topic in SUBJECTS]


def test_the_events_of_a_topic_are_read_by_the_index(engine: Engine, log: EventLog) -> None:
    many = [
        {"cluster_id": CLUSTER_ID, "occurred_at_ms": number, "kind": "pause", "subject": f"t{number % 500}"}
        | {"detail": "", "author": "otto"}
        for number in range(20_000)
    ]
    with engine.begin() as connection:
        connection.execute(insert(events), many)
    with engine.connect() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text("ANALYZE events"))
        explain = "EXPLAIN QUERY PLAN" if engine.dialect.name == "sqlite" else "EXPLAIN"
        query = (
            f"{explain} SELECT * FROM events WHERE cluster_id = '{CLUSTER_ID}' AND topic = 't7'"  # noqa: S608
            " ORDER BY occurred_at_ms DESC, event_id DESC LIMIT 50"
        )
        plan = "\n".join(str(row) for row in connection.exec_driver_sql(query))
    assert "ix_events_topic" in plan, plan
    assert len(log.newest(50, topic="t7")) == 40
