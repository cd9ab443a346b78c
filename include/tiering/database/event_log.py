"""The event log: what was decided, what was found, and what was done about it, by whom and when.

**An event** is a row of the table `events`: the database's time, a kind, a subject (what it is about), a detail (free
text) and an author. A store that changes something writes the event in the transaction of the change, so both are
committed or neither is. Events are only appended, never changed or deleted. They never contain payloads or secrets.

**Kinds** are the members of `EventKind`, with the subject of each; a new kind is a new member.

**The topic** of an event is that of its subject; events about runs, pools, the store or all topics have none. The
database computes it (`TOPIC_OF_EVENT` in `schema/administration.py`), so that the events of one topic are found by an
index, whichever version of the platform wrote them. A kind with another form of subject needs a migration.

**Writers** are SQL stores, which call `record_event`. The author is usually a person, as named by the command line,
Airflow or Airflow's log. If the platform decided by itself, the author is the name of the deciding part, such as
`plan`, or the id of a batch.

**Readers** are people: `./tiering events` and the page *Tiering* list them (`EventLog`). The platform itself reads
three things: the time of the newest event (`newest_event_ms`), to compare the clock with it before deletions and to
show it at a take-over; whether cluster metadata was ever read with this database (`SeenClusterMetadata` in
`store_identity`); and the last recovery drill of a topic (`EventLog.last`), to choose and to show the topic.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, func, insert, select

from include.tiering.database.schema import events
from include.tiering.database.transactions import ClusterStore, reading, stored_text, writing
from include.tiering.model.segments import TopicIdPartition, Uuid


class EventKind(StrEnum):
    """The kinds of events, each with the form of its subject. The values are stored, so they stay as they are."""

    # The subject is a topic (`topic_subject`).
    OWNER = "owner"
    TOPIC_DELETION = "topic-deletion"
    HANDOVER = "handover"
    # The subject is a partition, `orders-0 (topic id)`.
    ADOPTION = "adoption"
    DIVERGENCE = "divergence"
    GIVEN_UP_SEGMENT = "given-up-segment"
    LEADER_EPOCHS = "leader-epochs"
    LOG_START = "log-start"
    LOST_OFFSETS = "lost-offsets"
    SKIPPED_OFFSETS = "skipped-offsets"
    SUPERSEDED = "superseded"
    # The subject is a partition, or the metadata topic, or one of its partitions, `__remote_log_metadata-7`.
    INGEST = "ingest"
    # The subject is the store's id when a rebuild begins, then each partition, then the cluster's id when it ends.
    REBUILD = "rebuild"
    # The subject is a run (`run_subject`). `BRAKE` is a check of the deletion limits. `ANSWER` is an answer from
    # Airflow; if it is about the plan of a handover, its subject is `run ` and the handover's id.
    BRAKE = "brake"
    APPROVAL = "approval"
    WITHDRAWAL = "withdrawal"
    ANSWER = "answer"
    # The subject is the name of a topic, or `ALL_TOPICS`.
    PAUSE = "pause"
    RESUME = "resume"
    # The subject is the name of a pool.
    POOL_SIZE = "pool size"
    # The subject is the id of the cluster.
    STORE_MOVED = "store-moved"
    STORE_TAKEN_OVER = "store-taken-over"
    CLUSTER_METADATA_READ = "topic facts"
    # The subject is `finding ` and the finding's id, such as `finding 12`.
    FINDING_ACCEPTED = "audit finding accepted"
    # The subject is the name of a topic, the detail what came of the drill.
    DRILL = "recovery drill"
    # The subject is the text `missing segments`.
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
        connection: the connection of the write transaction that makes the change.
        cluster_id: the id of the cluster whose store changes.
        kind: the kind of the event.
        subject: what the event is about, in the form that `EventKind` names; pass a partition as it is.
        detail: what was decided or found; may be empty. In `subject`, `detail` and `author`, a long text is cut, and
            control characters are escaped.
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
    """Return the time of the newest event after `after_ms` (exclusive), in UTC milliseconds; None if there is none."""
    is_after = events.c.occurred_at_ms > after_ms
    query = select(func.max(events.c.occurred_at_ms)).where(events.c.cluster_id == cluster_id, is_after)
    newest: int | None = connection.execute(query).scalar_one()
    return newest


@dataclass(frozen=True, slots=True)
class Event:
    """An event. `kind` is a member of `EventKind` or, if another version wrote it, another text."""

    occurred_at_ms: int
    kind: str
    subject: str
    detail: str
    author: str


class EventLog(ClusterStore):
    """Reads the events of one cluster, and appends those that belong to no other change."""

    def append(self, kind: EventKind, subject: str, detail: str, *, author: str) -> None:
        """Append an event, with the database's time. Raises MetadataUnavailableError if it cannot be written."""
        with writing(self._engine) as connection:
            now_ms = self._now_ms(connection)
            record_event(connection, self._cluster_id, kind, subject, detail, author, now_ms)

    def last(self, kind: EventKind, topic: str) -> Event | None:
        """Return the newest event of this kind about this topic; None without one. Raises MetadataUnavailableError."""
        of_kind = events.c.kind == kind
        with reading(self._engine) as connection:
            found = self._newest(connection, 1, events.c.topic == topic, of_kind)
        return found[0] if found else None

    def newest(self, most: int, *, topic: str | None = None, within_ms: int | None = None) -> Sequence[Event]:
        """Return the last `most` events, the newest first.

        Args:
            most: how many at most.
            topic: the name of the topic that they are about; None for all events, also those about no topic.
            within_ms: how long ago they happened at most, in milliseconds by the database's clock; None for any time.

        Raises:
            MetadataUnavailableError: the database cannot be read.
        """
        with reading(self._engine) as connection:
            wanted = [] if topic is None else [events.c.topic == topic]
            if within_ms is not None:
                wanted.append(events.c.occurred_at_ms >= self._now_ms(connection) - within_ms)
            return self._newest(connection, most, *wanted)

    def _newest(self, connection: Connection, most: int, *wanted: ColumnElement[bool]) -> Sequence[Event]:
        query = (
            select(events)
            .where(events.c.cluster_id == self._cluster_id, *wanted)
            .order_by(events.c.occurred_at_ms.desc(), events.c.event_id.desc())
            .limit(most)
        )
        return list(map(_event, connection.execute(query).all()))


def _event(row: Row[Any]) -> Event:
    return Event(row.occurred_at_ms, row.kind, row.subject, row.detail, row.author)
