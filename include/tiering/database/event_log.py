"""The event log: what was decided, what was found, and what was done about it, by whom and when.

**An event** is a row of the table `events`: the database's time, a kind, a subject (what it is about), a detail (free
text) and an author. A store that changes something writes the event in the transaction of the change, so there is
neither without the other. Events are only appended, never changed or deleted. They never contain payloads or secrets.

**Kinds** are the members of `EventKind`, with the subject of each; a new kind is a new member.

**Writers** call `record_event`. They are the SQL stores (`sql_*.py`, `store.py`) of `segments`, `runs`, `configs` and
the use cases, and `store_identity`. The author is a person, as given by the command line, Airflow or its log, or a name
of the part of the platform that decided by itself.

**Readers** are people: no command lists events, so they select from the table. The platform itself asks two questions
only. When was the newest event (`newest_event_ms`)? A clock that is behind it must not delete anything. And has this
database ever read cluster metadata (`SeenClusterMetadata` in `store_identity`)?
"""

from enum import StrEnum
from typing import Final

from sqlalchemy import Connection, func, insert, select

from include.tiering.database.schema import events
from include.tiering.database.transactions import stored_text
from include.tiering.model.segments import TopicIdPartition, Uuid


class EventKind(StrEnum):
    """What an event is about. The values are stored, so they stay as they are."""

    # The subject is a topic (`topic_subject`).
    OWNER = "owner"
    TOPIC_DELETION = "topic-deletion"
    HANDOVER = "handover"
    # A partition, `orders-0 (topic id)`.
    ADOPTION = "adoption"
    DIVERGENCE = "divergence"
    GIVEN_UP_SEGMENT = "given-up-segment"
    LEADER_EPOCHS = "leader-epochs"
    LOG_START = "log-start"
    LOST_OFFSETS = "lost-offsets"
    SKIPPED_OFFSETS = "skipped-offsets"
    SUPERSEDED = "superseded"
    # A partition, or the metadata topic or one of its partitions, `__remote_log_metadata-7`.
    INGEST = "ingest"
    # A partition; the id of the store at the beginning, the id of the cluster at the end.
    REBUILD = "rebuild"
    # A run (`run_subject`). `BRAKE` is the check of the deletion limits, `ANSWER` a person's answer in Airflow.
    BRAKE = "brake"
    APPROVAL = "approval"
    WITHDRAWAL = "withdrawal"
    ANSWER = "answer"
    # The name of a topic, or `ALL_TOPICS`.
    PAUSE = "pause"
    RESUME = "resume"
    # The name of a pool.
    POOL_SIZE = "pool size"
    # The id of the cluster.
    STORE_MOVED = "store-moved"
    STORE_TAKEN_OVER = "store-taken-over"
    CLUSTER_METADATA_READ = "topic facts"
    # `finding 12`.
    FINDING_ACCEPTED = "audit finding accepted"
    # `missing segments`.
    LOSSES_CONFIRMED = "losses confirmed"


def topic_subject(name: str, topic_id: Uuid | str) -> str:
    """Return ``orders (topic id)``: a topic that was created again has another id."""
    return f"{name} ({topic_id})"


def run_subject(run_id: str) -> str:
    """Return ``run ID``."""
    return f"run {run_id}"


# A partition is stored as `orders-0 (topic id)`.
Subject = TopicIdPartition | str
_ADD: Final = insert(events)


def record_event(
    connection: Connection, cluster_id: str, kind: EventKind, subject: Subject, detail: str, author: str, now_ms: int
) -> None:
    """Append an event in the caller's transaction.

    Args:
        connection: of a write transaction, that of the change.
        cluster_id: of the cluster whose store changes.
        kind: what the event is about.
        subject: what it is about, in the form that `EventKind` names; a partition as it is.
        detail: what was decided or found; may be empty. Control characters are escaped, and a long text is cut; the
            same holds for `subject` and `author`.
        author: who decided: a person, or a part of the platform.
        now_ms: the database's time, in UTC milliseconds.
    """
    if isinstance(subject, TopicIdPartition):
        subject = topic_subject(str(subject), subject.topic_id)
    values = {
        "cluster_id": cluster_id,
        "occurred_at_ms": now_ms,
        "kind": kind,
        "subject": stored_text(subject),
        "detail": stored_text(detail),
        "author": stored_text(author),
    }
    connection.execute(_ADD, values)


def newest_event_ms(connection: Connection, cluster_id: str, after_ms: int) -> int | None:
    """Return the time of the newest event after `after_ms` (exclusive), in UTC milliseconds; None without one."""
    is_after = events.c.occurred_at_ms > after_ms
    query = select(func.max(events.c.occurred_at_ms)).where(events.c.cluster_id == cluster_id, is_after)
    newest: int | None = connection.execute(query).scalar_one()
    return newest
