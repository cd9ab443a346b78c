"""Whatever was copied, replaced, given up and deleted: rebuilt rows are the original's, but for what is listed here."""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine

from include.tiering.database.schema import (
    PARTITION_TOTAL,
    partitions,
    segment_epochs,
    segments,
    size_counters,
    skipped_offsets,
    topics,
)
from include.tiering.model.histories import OffsetRange, without
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.ownership import Fence, TopicOwner
from include.tiering.model.segments import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    TopicIdPartition,
    Verdict,
)
from include.tiering.quotas.contract import UnlimitedBytes
from include.tiering.recovery.rebuild import Rebuild, plan_rebuild
from include.tiering.recovery.sql_recovery import SqlMetadataRecovery
from include.tiering.remote_storage.contract import RemoteStorage
from include.tiering.segments.sql import SqlRemoteLogMetadata
from include.tiering.segments.sql_topics import SqlTopicRegistry
from tests.doubles.manual_clock import ManualClock
from tests.doubles.segments import CLUSTER_ID, DELETE_FINISHED, DELETE_STARTED, FINISHED, STARTED, fence_of, uuid
from tests.doubles.stored_log import StoredLog, new_database, rows_of, some_segment, some_uuid

NOT_IN_MANIFESTS: Final = frozenset(
    {
        "topics.owner",
        "topics.deletion_seen_at_ms",
        "topics.deletion_evidence",
        "partitions.log_start_offset",
        "partitions.stopped_reason",
        "skipped_offsets.reason",
        "skipped_offsets.author",
        "skipped_offsets.recorded_at_ms",
        "segments.segment_key",
        "segments.event_timestamp_ms",
        "segments.verdict",
        "segments.verdict_detail",
        "segments.verdict_at_ms",
        "segments.deep_passed_at_ms",
        "segments.source_fingerprint",
        "segments.run_id",
        "segments.fencing_token",
        "segments.started_at_ms",
        "segments.finished_at_ms",
        "segments.lost_because",
        "segments.given_up_at_ms",
        "segment_epochs.segment_key",
    }
)
"""Columns of tables that a rebuild fills. All other tables it leaves empty, but for the store's row and the events."""

_COMPARED: Final = (topics, partitions, segments, segment_epochs, size_counters, skipped_offsets)


@dataclass
class Original:
    """One partition as it is copied, by the calls that a copy makes."""

    storage: RemoteStorage
    metadata: SqlRemoteLogMetadata
    partition: TopicIdPartition
    fence: Fence
    history: list[tuple[int, int]] = field(default_factory=list)
    finished: list[RemoteLogSegmentMetadata] = field(default_factory=list)
    superseded: list[RemoteLogSegmentMetadata] = field(default_factory=list)
    attempts: int = 0

    @property
    def next_offset(self) -> int:
        return self.finished[-1].end_offset + 1 if self.finished else 0

    def attempt(self, start: int, end: int) -> RemoteLogSegmentMetadata:
        self.attempts += 1
        epochs = LeaderEpochs.of(self.history)
        metadata, data = some_segment(100 + self.attempts, seed=f"{self.partition}-{self.attempts}")
        metadata = replace(
            metadata,
            remote_log_segment_id=RemoteLogSegmentId(self.partition, metadata.remote_log_segment_id.id),
            start_offset=start,
            end_offset=end,
            event_timestamp_ms=metadata.event_timestamp_ms + self.attempts,
            segment_leader_epochs=epochs.range(start, end + 1),
            txn_index_empty=True,
        )
        lines = [f"{epoch} {first}" for epoch, first in epochs.range(-1, end + 1)]
        carried = "\n".join(["0", str(len(lines)), *lines, ""]).encode()
        self.metadata.add_segment(metadata, fence=self.fence, log_crc32c=data.log_crc32c)
        self.storage.copy_log_segment(
            metadata, replace(data, leader_epoch=carried), limiter=UnlimitedBytes(), on_sent=lambda _: None
        )
        return metadata

    def finish(self, one: RemoteLogSegmentMetadata, supersedes: RemoteLogSegmentMetadata | None = None) -> None:
        old = None if supersedes is None else supersedes.remote_log_segment_id
        self.metadata.update_segment(_update(one, FINISHED), expected=STARTED, fence=self.fence, supersedes=old)

    def copy(self, length: int, *, back: int = 0) -> None:
        start = max(0, self.next_offset - back)
        one = self.attempt(start, self.next_offset + length - 1)
        self.finish(one)
        self.finished.append(one)
        committed = LeaderEpochs.of(self.history).range(-1, self.next_offset)
        self.metadata.merge_leader_epochs(self.partition, committed, 0)

    def skip(self, offsets: int) -> None:
        """The next segment begins behind a hole."""
        if self.finished:
            hole = OffsetRange(self.next_offset, self.next_offset + offsets - 1)
            self.metadata.skip_offsets(self.partition, hole, reason="lost", author="me")
            one = self.attempt(hole.last + 1, hole.last + 5)
            self.finish(one)
            self.finished.append(one)

    def supersede(self) -> None:
        """The last one fails, and a new copy takes its place. Its objects stay for a while."""
        if self.finished:
            old = self.finished.pop()
            self.metadata.record_verdict(old.remote_log_segment_id, Verdict.FAILED, detail="Q102")
            new = self.attempt(old.start_offset, old.end_offset)
            self.finish(new, old)
            self.finished.append(new)
            self.superseded.append(old)

    def give_up(self, *, cleaned: bool) -> None:
        """An attempt at the next offsets that is never finished."""
        one = self.attempt(self.next_offset, self.next_offset + 9)
        if cleaned:
            self.metadata.update_segment(_update(one, DELETE_STARTED), expected=STARTED, fence=self.fence)
            self.storage.delete_log_segments([one])
            self.metadata.update_segment(_update(one, DELETE_FINISHED), expected=DELETE_STARTED, fence=self.fence)

    def expire(self, root: Path, *, all_the_way: bool) -> None:
        """The first one goes, or its manifest alone is gone yet. A log that keeps nothing would leave nothing.

        What failed before it is long gone by then. If it were not, it would be what is left of these offsets.
        """
        if len(self.finished) > 1:
            one = self.finished.pop(0)
            self.storage.delete_log_segments([old for old in self.superseded if old.end_offset <= one.end_offset])
            self.metadata.raise_log_start(self.partition, one.end_offset + 1, reason="time", author="me")
            self.metadata.update_segment(_update(one, DELETE_STARTED), expected=FINISHED, fence=self.fence)
            if all_the_way:
                self.storage.delete_log_segments([one])
                self.metadata.update_segment(_update(one, DELETE_FINISHED), expected=DELETE_STARTED, fence=self.fence)
            else:
                (manifest,) = root.rglob(f"*{one.remote_log_segment_id.id}.rsm-manifest")
                manifest.unlink()

    def change_leader(self, epochs: int) -> None:
        last_epoch = self.history[-1][0] if self.history else -1
        self.history.append((last_epoch + epochs, self.next_offset))


def _update(one: RemoteLogSegmentMetadata, state: Any) -> RemoteLogSegmentMetadataUpdate:
    return RemoteLogSegmentMetadataUpdate(one.remote_log_segment_id, state, 1_800_000_000_000, one.broker_id)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("copy"), st.integers(1, 20), st.just(0)),
        st.tuples(st.just("copy"), st.integers(1, 20), st.just(0)),
        st.tuples(st.just("elect"), st.integers(1, 3), st.integers(0, 15)),
        st.tuples(st.just("skip"), st.integers(1, 9), st.just(0)),
        st.tuples(st.just("supersede"), st.just(0), st.just(0)),
        st.tuples(st.just("give up"), st.just(0), st.just(0)),
        st.tuples(st.just("expire"), st.booleans(), st.just(0)),
    ),
    max_size=8,
)


def act(original: Original, root: Path, step: tuple[str, Any, int]) -> None:
    verb, number, back = step
    match verb:
        case "copy":
            original.copy(number)
        case "elect":
            original.change_leader(number)
            original.copy(3, back=back)
        case "skip":
            original.skip(number)
        case "supersede":
            original.supersede()
        case "give up":
            original.give_up(cleaned=True)
        case "expire":
            original.expire(root, all_the_way=number)


@settings(max_examples=max(20, settings.default.max_examples // 3))
@given(st.lists(STEPS, min_size=1, max_size=3))
def test_rebuilt_rows_are_the_originals(stories: list[list[tuple[str, Any, int]]]) -> None:
    with (
        tempfile.TemporaryDirectory(dir=_memory()) as directory,
        new_database() as before,
        new_database() as after,
    ):
        stored = StoredLog.at(Path(directory))
        for number, story in enumerate(stories):
            topic = f"topic-{number // 2}"
            partition = TopicIdPartition(some_uuid(topic), number, topic)
            SqlTopicRegistry(before, CLUSTER_ID).set_owner(
                partition.topic_id, topic, TopicOwner.PLATFORM, expected=TopicOwner.NONE, author="me"
            )
            original = Original(
                stored.storage, SqlRemoteLogMetadata(before, CLUSTER_ID), partition, fence_of(before, partition)
            )
            original.change_leader(1)
            for step in story:
                act(original, stored.root, step)
        recovery = SqlMetadataRecovery(after, CLUSTER_ID)
        plan = plan_rebuild(stored.storage, recovery.begun, CLUSTER_ID)
        task = Rebuild(stored.storage, recovery, ManualClock(), lambda step: None, "me")
        task.run(
            plan,
            replace(plan.found, store_id=str(uuid(2)), generation=plan.found.generation + 1),
            on_examined=lambda number: None,
            stop=lambda: False,
        )
        assert dict(comparable(after)) == dict(comparable(before))


def comparable(engine: Engine) -> Iterator[tuple[str, Any]]:
    """What both databases have to say: FINISHED segments, what hangs on them, and nothing that is theirs alone."""
    rows = rows_of(engine, *_COMPARED)
    finished = {row["segment_key"]: row for row in rows["segments"] if row["state"] == FINISHED}
    firsts: dict[tuple[Any, ...], int] = {}
    for row in sorted(finished.values(), key=lambda one: one["end_offset"]):
        firsts.setdefault(_partition(row), row["end_offset"])
    of_partition = {_partition(row) for row in finished.values()}
    yield "segments", _without("segments", finished.values())
    epochs = [
        {**row, "segment": finished[row["segment_key"]]["segment_id"]}
        for row in rows["segment_epochs"]
        if row["segment_key"] in finished
    ]
    yield "segment_epochs", _without("segment_epochs", epochs)
    counted = [row for row in rows["size_counters"] if row["state"] == FINISHED and row["segments"]]
    yield "size_counters", _without("size_counters", counted)
    assert {_partition(row) for row in counted if row["leader_epoch"] == PARTITION_TOTAL} == of_partition
    yield "partitions", _without("partitions", (row for row in rows["partitions"] if _partition(row) in of_partition))
    with_segments = {topic_id for topic_id, _ in of_partition}
    yield "topics", _without("topics", (row for row in rows["topics"] if row["topic_id"] in with_segments))
    # A hole is seen where segments are on both sides of it, and as far as no other one holds it after all.
    behind = [row for row in rows["skipped_offsets"] if row["first_offset"] > firsts.get(_partition(row), 2**62)]
    held: dict[tuple[Any, ...], list[OffsetRange]] = {}
    for row in finished.values():
        held.setdefault(_partition(row), []).append(OffsetRange(row["start_offset"], row["end_offset"]))
    holes = (
        {**row, "first_offset": left.first, "last_offset": left.last}
        for row in behind
        for left in without(OffsetRange(row["first_offset"], row["last_offset"]), held[_partition(row)])
    )
    yield "skipped_offsets", _without("skipped_offsets", holes)


def _partition(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["topic_id"], row["partition"]


def _without(table: str, rows: Any) -> list[str]:
    """In one order, as text, so that a difference is readable."""
    kept = ({name: value for name, value in row.items() if f"{table}.{name}" not in NOT_IN_MANIFESTS} for row in rows)
    return sorted(str(sorted(row.items(), key=lambda item: item[0])) for row in kept)


def _memory() -> Path | None:
    return next((path for path in (Path("/dev/shm"),) if path.is_dir()), None)
