"""Reading a partition back: which copies become files."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import google_crc32c
import pytest

from include.tiering.model.histories import Divergence, Followed, OffsetRange, SeenBy, SeenDivergence
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
    Verdict,
)
from include.tiering.quotas.contract import ByteLimiter
from include.tiering.reading.fetch import FetchedSegment, fetch_partition
from include.tiering.segments.contract import PartitionRetentionState, SegmentRow
from tests.doubles.partial import Partial
from tests.doubles.quotas import NoQuotas

ORDERS = TopicIdPartition(Uuid(b"orders".ljust(16, b"\1")), 0, "orders")


def row(end_offset: int, verdict: Verdict = Verdict.PASSED) -> SegmentRow:
    """A FINISHED copy of 0..`end_offset` whose record bytes are that number of bytes."""
    content = bytes(end_offset)
    metadata = RemoteLogSegmentMetadata(
        remote_log_segment_id=RemoteLogSegmentId(ORDERS, Uuid(end_offset.to_bytes(16, "big"))),
        start_offset=0,
        end_offset=end_offset,
        max_timestamp_ms=0,
        broker_id=1,
        event_timestamp_ms=0,
        segment_size_bytes=len(content),
        segment_leader_epochs=LeaderEpochs.of([(0, 0)]),
        state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
    )
    return SegmentRow(metadata, verdict, google_crc32c.value(content))


class Remote(Partial):
    """Stands for metadata and storage of a few copies, in the order in which the metadata lists them."""

    def __init__(self, *rows: SegmentRow, log_start_offset: int = 0, divergences: tuple[Divergence, ...] = ()) -> None:
        self._rows, self._divergences = rows, divergences
        self._log_start_offset = log_start_offset

    def retention_state(self, partition: TopicIdPartition) -> PartitionRetentionState:
        return PartitionRetentionState(self._log_start_offset)

    def list_segments(self, partition: TopicIdPartition) -> tuple[SegmentRow, ...]:
        return self._rows

    def divergences(self, partition: TopicIdPartition) -> tuple[Divergence, ...]:
        return self._divergences

    def fetch_log_segment(self, metadata: RemoteLogSegmentMetadata, *, limiter: ByteLimiter) -> Iterator[bytes]:
        yield bytes(metadata.segment_size_bytes)


def fetch(tmp_path: Path, *rows: SegmentRow) -> int:
    """Size of the one file."""
    remote = Remote(*rows)
    list(fetch_partition(ORDERS, tmp_path, metadata=remote, storage=remote, quotas=NoQuotas()))
    (file,) = (tmp_path / "orders-0").iterdir()
    return file.stat().st_size


def test_a_shorter_copy_of_the_same_start_never_replaces_the_longer_one(tmp_path: Path):
    assert fetch(tmp_path, row(149), row(99)) == 149


@pytest.mark.parametrize("verdict", [Verdict.NONE, Verdict.FAILED])
def test_a_shorter_copy_stands_in_for_a_longer_one_that_is_not_served(tmp_path: Path, verdict: Verdict):
    assert fetch(tmp_path, row(149, verdict), row(99)) == 99


def test_what_lies_wholly_below_the_log_start_is_named_and_not_fetched(tmp_path: Path):
    remote = Remote(row(99), log_start_offset=100)
    (found,) = fetch_partition(ORDERS, tmp_path, metadata=remote, storage=remote, quotas=NoQuotas())
    assert (found.path, found.refused) == (None, "below the log start, 100: expiration deletes it")
    remote = Remote(row(99), log_start_offset=99)
    (found,) = fetch_partition(ORDERS, tmp_path, metadata=remote, storage=remote, quotas=NoQuotas())
    assert found.refused is None


SEEN_AT, REPLACED = "offsets 150..199", "the history that the source has replaced"
SEEN = SeenDivergence(OffsetRange(150, 199), (0,), (6,), SeenBy.PLAN)


def read_back(tmp_path: Path, *rows: SegmentRow, followed_from: int) -> list[FetchedSegment]:
    left = Divergence(1, SEEN, 0, Followed(followed_from, "agreed", "me", 0))
    remote = Remote(*rows, divergences=(left,))
    return list(fetch_partition(ORDERS, tmp_path, metadata=remote, storage=remote, quotas=NoQuotas()))


def test_of_one_start_both_histories_are_files_and_the_followed_one_has_the_brokers_name(tmp_path: Path) -> None:
    found = read_back(tmp_path, row(199), replace(row(169), history=1), followed_from=150)
    names = [(one.row.history, one.path.name if one.path else None) for one in found]
    assert names == [(1, f"{0:020d}.log"), (0, f"{0:020d}.history-0.log")]
    epochs, follows = "(epoch 0; source: epoch 6)", "followed, by me (agreed)"
    assert [one.said for one in found] == [
        (f"from offset 150 on it is the history of the source, {follows}; it has replaced {SEEN_AT} {epochs}",),
        (f"{SEEN_AT} are of {REPLACED} {epochs}; from offset 150 on the source is {follows}",),
    ]


def test_what_lies_wholly_behind_the_decision_is_left_out_by_name(tmp_path: Path) -> None:
    (found,) = read_back(tmp_path, row(199), followed_from=0)
    assert (found.path, found.by_decision) == (None, True)
    assert "read it with --offset and --epoch" in (found.refused or "")
