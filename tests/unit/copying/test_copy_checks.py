"""A segment may be copied if it is the planned one, joins what is copied, or a hole that somebody recorded, and lies
behind nothing that the source has replaced. Its copy counts if the store has what was sent, and that is what was read.
"""

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace

import pytest

from include.tiering.copying.copy_checks import require_no_divergence, require_planned, require_stored
from include.tiering.errors import RemoteChecksumError, SourceChangedError
from include.tiering.kafka.log_dirs.contract import CheckedSegment, LogSegment, ReplicaId, SourceFingerprint
from include.tiering.model.histories import Divergence, OffsetRange, SeenBy, SeenDivergence, SkippedOffsets
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import TopicIdPartition, Uuid, Verdict
from include.tiering.remote_storage.contract import ObjectKind, StoredObject
from include.tiering.runs.contract import PlannedSegment
from include.tiering.segments.contract import PartitionRetentionState, SegmentRow
from tests.doubles.partial import Partial
from tests.doubles.segments import FINISHED, segment_of
from tests.doubles.stored_log import some_segment

REPLICA_ID = ReplicaId(TopicIdPartition(Uuid(b"1" * 16), 3, "orders"), 1, "dir")
SEGMENT = LogSegment(200, 299, 1_000, 0, LeaderEpochs.of([(0, 0)]), active=False, reason=None)
PLANNED = PlannedSegment(200, 299, 1_000)


def joins(highest: int | None, *holes: tuple[int, int]) -> None:
    decisions = [SkippedOffsets(OffsetRange(*hole), "lost", "me", 0) for hole in holes]
    require_planned(REPLICA_ID, SEGMENT, PLANNED, highest, lambda: decisions)


def no_decisions() -> Sequence[SkippedOffsets]:
    raise AssertionError("asked although there is no gap")


@pytest.mark.parametrize("highest", [None, 199, 250])
def test_where_there_is_no_gap_nobody_asks_for_decisions(highest: int | None) -> None:
    require_planned(REPLICA_ID, SEGMENT, PLANNED, highest, no_decisions)


@pytest.mark.parametrize(
    ("holes", "missing"),
    [([], r"100\.\.199"), ([(100, 149)], r"150\.\.199"), ([(150, 199)], r"100\.\.149"), ([(300, 400)], r"100\.\.199")],
)
def test_a_gap_that_no_decision_covers_is_refused_by_its_offsets(holes: list[tuple[int, int]], missing: str) -> None:
    with pytest.raises(SourceChangedError, match=rf"orders-3@1, segment 200: offsets {missing} would be left out"):
        joins(99, *holes)


@pytest.mark.parametrize("holes", [[(100, 199)], [(100, 149), (150, 199)], [(0, 500)]])
def test_a_gap_by_decision_is_none(holes: list[tuple[int, int]]) -> None:
    joins(99, *holes)


class Remote(Partial):
    """0..199 were copied, under these epochs up to these offsets; nobody decided anything."""

    def __init__(self, **ends: int) -> None:
        self.recorded: list[tuple[OffsetRange, SeenBy, int]] = []
        self._ends = {int(epoch.removeprefix("epoch_")): end for epoch, end in ends.items()}

    def highest_offset_for_epoch(self, _partition: TopicIdPartition, epoch: int) -> int | None:
        return self._ends.get(epoch)

    def is_continued(self, partition: TopicIdPartition, leader_epoch: int, highest_copied: int) -> bool:
        continues = self.highest_offset_for_epoch(partition, leader_epoch) == highest_copied
        return continues and not self.divergences(partition)

    def divergences(self, _partition: TopicIdPartition) -> Sequence[Divergence]:
        return ()

    def retention_state(self, _partition: TopicIdPartition) -> PartitionRetentionState:
        return PartitionRetentionState()

    def list_segments(self, partition: TopicIdPartition) -> Sequence[SegmentRow]:
        return [
            SegmentRow(segment_of(partition, epoch, 0, end, {epoch: 0}, state=FINISHED), Verdict.PASSED, None)
            for epoch, end in self._ends.items()
        ]

    def record_divergence(self, _partition: TopicIdPartition, seen: SeenDivergence, *, history: int) -> None:
        self.recorded.append((seen.offsets, seen.seen_by, history))

    def skipped_offsets(self, _partition: TopicIdPartition) -> Sequence[SkippedOffsets]:
        return ()


def follows(epochs: list[tuple[int, int]], highest: int | None, remote: Remote) -> None:
    history = LeaderEpochs.of(epochs)
    fingerprint = SourceFingerprint(1, "dir", REPLICA_ID.topic_id_partition.topic_id, None, history, ())
    opened = SimpleNamespace(segment=SEGMENT, fingerprint=fingerprint)
    require_no_divergence(REPLICA_ID, opened, highest, remote)


def test_behind_replaced_records_nothing_is_copied_whatever_the_plan_says() -> None:
    """The plan is older than an unclean election, and the new leader's segment looks as the planned one did."""
    remote = Remote(epoch_0=199)
    with pytest.raises(SourceChangedError, match=r"segment 200: offsets 120\.\.199 are remote under other leader epo"):
        follows([(0, 0), (2, 120)], 199, remote)
    assert remote.recorded == [((120, 199), SeenBy.COPY, 0)]


def test_records_that_a_divergence_within_the_segment_replaced_are_not_copied_over() -> None:
    remote = Remote(epoch_0=250)
    with pytest.raises(SourceChangedError, match=r"offsets 220\.\.250 are remote under other leader epochs"):
        follows([(0, 0), (2, 220)], 250, remote)


def test_while_a_divergence_waits_for_a_decision_nothing_is_copied() -> None:
    """Whatever the source shows: it may have forgotten what differs."""
    remote = Remote(epoch_0=199)
    seen = SeenDivergence(OffsetRange(120, 199), (0,), (2,), SeenBy.PLAN)
    remote.divergences = lambda _partition: [Divergence(1, seen, 5)]  # type: ignore[method-assign]
    with pytest.raises(SourceChangedError, match=r"offsets 120\.\.199 .* nobody decided about it"):
        follows([(2, 200)], 199, remote)


@pytest.mark.parametrize(("epochs", "highest"), [([(0, 0)], 199), ([(0, 0), (2, 200)], 199), ([(2, 200)], None)])
def test_where_the_histories_agree_there_is_no_divergence(epochs: list[tuple[int, int]], highest: int | None) -> None:
    follows(epochs, highest, Remote(epoch_0=199))


_, DATA = some_segment(1_000)
CHECKED = CheckedSegment(
    DATA, first_offset=200, last_offset=299, max_timestamp_ms=0, batch_count=1, aborted_transactions=0
)
LOG = StoredObject(ObjectKind.LOG, "orders/200.log", 1_000, DATA.log_crc32c)
INDEXES = StoredObject(ObjectKind.INDEXES, "orders/200.indexes", 90, 0x1234)
SENT = (INDEXES, LOG)


def test_a_store_that_has_what_was_sent_and_read_is_believed() -> None:
    require_stored(SENT, SENT, CHECKED)
    require_stored(SENT, (*SENT, StoredObject(ObjectKind.MANIFEST, "orders/200.manifest", 5, 6)), CHECKED)


@pytest.mark.parametrize(
    ("stored", "said"),
    [
        ((INDEXES,), "orders/200.log: the store does not have it"),
        ((LOG,), "orders/200.indexes: the store does not have it"),
        ((INDEXES, replace(LOG, size_bytes=999)), "orders/200.log: the store has 999 bytes with CRC-32C"),
        (
            (replace(INDEXES, crc32c=0x1235), LOG),
            "the store has 90 bytes with CRC-32C 00001235, sent were 90 with 00001",
        ),
    ],
    ids=["no log", "no indexes", "cut log", "changed indexes"],
)
def test_what_the_store_lost_or_changed_is_refused(stored: tuple[StoredObject, ...], said: str) -> None:
    with pytest.raises(RemoteChecksumError, match=said):
        require_stored(SENT, stored, CHECKED)


@pytest.mark.parametrize(
    "log",
    [replace(LOG, crc32c=DATA.log_crc32c ^ 1), replace(LOG, size_bytes=999)],
    ids=["other bytes", "fewer bytes"],
)
def test_a_log_that_was_sent_and_stored_but_is_not_what_the_check_pass_read_is_refused(log: StoredObject) -> None:
    """The source changed between the check pass and the upload: what was sent and what is stored agree and are wrong.
    Recorded as a finished copy it would let the broker's own be deleted."""
    with pytest.raises(
        RemoteChecksumError, match=r"the stored log is not the 1000 bytes with CRC-32C .* of the source"
    ):
        require_stored((INDEXES, log), (INDEXES, log), CHECKED)


@pytest.mark.parametrize("logs", [(), (LOG, replace(LOG, key="orders/201.log"))], ids=["none", "two"])
def test_a_copy_has_one_log(logs: tuple[StoredObject, ...]) -> None:
    with pytest.raises(RemoteChecksumError, match="the stored log is not"):
        require_stored((INDEXES,), (INDEXES, *logs), CHECKED)


def test_a_transformed_log_is_compared_with_what_was_sent_alone() -> None:
    """Compressed or encrypted it has another length and checksum; its source was compared on its way."""
    log = replace(LOG, size_bytes=500, crc32c=7, is_transformed=True)
    require_stored((INDEXES, log), (INDEXES, replace(log, is_transformed=False)), CHECKED)
    with pytest.raises(RemoteChecksumError, match="the store has 499 bytes"):
        require_stored((INDEXES, log), (INDEXES, replace(log, size_bytes=499)), CHECKED)
