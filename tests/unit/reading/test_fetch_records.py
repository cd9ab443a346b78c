"""Fetches of records and of partitions."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import google_crc32c
import pytest

from include.tiering.errors import OffsetOutOfRangeError, RemoteChecksumError, SettingError
from include.tiering.model.histories import Divergence, Followed, OffsetRange, SeenBy, SeenDivergence, SkippedOffsets
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
    Verdict,
)
from include.tiering.quotas.contract import (
    NAMELESS_CLIENT,
    ByteLimiter,
    GoOn,
    QuotaKind,
    QuotaLevel,
    QuotasInForce,
    ReadAdmission,
    Scope,
    keep_on,
)
from include.tiering.quotas.fetch_admission import FetchAdmission
from include.tiering.reading.fetch import (
    FetchedRecords,
    PartitionFetch,
    RecordReader,
)
from include.tiering.reading.files import FetchedSegment, fetch_partition, write_records
from include.tiering.remote_storage.object_cache import ObjectCache
from include.tiering.segments.contract import PartitionRetentionState, SegmentRow
from tests.doubles.manual_clock import ManualClock
from tests.doubles.memory_stores import MemoryMetadata
from tests.doubles.partial import Partial
from tests.doubles.quotas import MemoryLedgerStore, NoQuotas
from tests.doubles.stored_log import CopiedPartition, CountingLimiter, copied_partition

# One read: what quota, damage and verdicts make of it. The bytes themselves: tests/integration.

CLIENT = Scope(QuotaKind.FETCH, QuotaLevel.CLIENT, "reports")


class OneLimiter(Partial):
    """`Quotas` that count; `shares` are bytes a second by scope."""

    def __init__(self) -> None:
        self.limiter = CountingLimiter()
        self.asked: list[tuple[int, str, str | None]] = []
        self.quotas: dict[Scope, int] = {}
        self.ledger = MemoryLedgerStore()
        self.clock = ManualClock()

    def fetch(self, broker_id: int, topic: str, client: str | None = None, *, go_on: GoOn = keep_on) -> ByteLimiter:
        self.asked.append((broker_id, topic, client))
        return self.limiter

    def held_back(self, kind: QuotaKind, seconds: float) -> None:
        assert (kind, seconds) == (QuotaKind.FETCH, 0.0)

    def admission(self, *, samples: int, sample_ms: int) -> ReadAdmission:
        return FetchAdmission(
            self.ledger.exchange,
            self.clock.now_ms,
            stored=lambda: QuotasInForce(1, self.quotas),
            has_no_limit=lambda scope: scope not in self.quotas,
            samples=samples,
            sample_ms=sample_ms,
        )


class Deployment:
    """Three served segments of a real partition in a file store."""

    def __init__(self, root: Path) -> None:
        self.copied: CopiedPartition = copied_partition(root, "orders-0", segments=3)
        rows = [replace(row, verdict=Verdict.PASSED) for row in self.copied.rows]
        self.metadata = MemoryMetadata(rows)
        self.rows: list[SegmentRow] = rows
        self.quotas = OneLimiter()
        self.clock = self.quotas.clock
        admission = self.quotas.admission(samples=11, sample_ms=1_000)
        storage = self.copied.storage.cached(ObjectCache(None, "a store"))
        self.reader = RecordReader(self.metadata, storage, self.quotas, admission)

    @property
    def partition(self):
        return self.rows[0].metadata.topic_id_partition

    def read(self, fetch: PartitionFetch, client: str) -> FetchedRecords:
        return self.reader.read(fetch, self.reader.find(fetch), client)

    def throttle_ms(self, fetch: PartitionFetch, client: str) -> int:
        return self.reader.throttle_ms(self.reader.find(fetch), client)

    def log(self, number: int) -> bytes:
        return self.copied.object_path(self.rows[number], "log").read_bytes()


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    return Deployment(tmp_path)


def test_an_answer_goes_on_into_the_next_segments(deployment: Deployment) -> None:
    found = deployment.read(PartitionFetch(deployment.partition, 0, 10_000_000), "reports")
    assert bytes(found.records) == b"".join(deployment.log(number) for number in range(3))
    assert found.next_offset == deployment.rows[2].metadata.end_offset + 1
    assert found.base_offset == deployment.rows[0].metadata.start_offset
    assert set(deployment.quotas.asked) == {(1, deployment.partition.topic, "reports")}


def test_every_byte_is_charged_before_it_is_read(deployment: Deployment) -> None:
    deployment.read(PartitionFetch(deployment.partition, 0, 10_000_000), NAMELESS_CLIENT)
    logs = sum(row.metadata.segment_size_bytes for row in deployment.rows)
    assert logs < deployment.quotas.limiter.total_bytes < logs * 1.05


def test_a_small_fetch_reads_little(deployment: Deployment) -> None:
    deployment.read(
        PartitionFetch(deployment.partition, deployment.rows[0].metadata.end_offset // 2, 2_000), NAMELESS_CLIENT
    )
    manifest_bytes = deployment.copied.object_path(deployment.rows[0], "rsm-manifest").stat().st_size
    beside_it = deployment.quotas.limiter.total_bytes - manifest_bytes
    assert 0 < beside_it < deployment.rows[0].metadata.segment_size_bytes / 2


def test_what_was_read_before_is_not_charged_again(deployment: Deployment) -> None:
    fetch = PartitionFetch(deployment.partition, 50, 2_000)
    charged = []
    for _ in range(2):
        before = deployment.quotas.limiter.total_bytes
        found = deployment.read(fetch, NAMELESS_CLIENT)
        charged.append(deployment.quotas.limiter.total_bytes - before)
    paths = [deployment.copied.object_path(deployment.rows[0], kind) for kind in ("rsm-manifest", "log")]
    manifest, log = (path.stat().st_size for path in paths)
    assert charged[0] > charged[1] + manifest
    assert len(found.records) <= charged[1] < log


def test_an_exhausted_quota_answers_with_nothing_and_the_throttle_time(deployment: Deployment) -> None:
    deployment.quotas.quotas[CLIENT] = 1_000
    fetch = PartitionFetch(deployment.partition, 0, 4_000)
    assert deployment.throttle_ms(fetch, "reports") == 0
    first = deployment.read(fetch, "reports")
    assert first.records
    throttle_ms = deployment.throttle_ms(fetch, "reports")
    assert throttle_ms > 0
    charged = deployment.quotas.limiter.total_bytes
    second = deployment.read(fetch, "reports")
    assert (second.throttle_ms, second.records, second.next_offset) == (throttle_ms, b"", 0)
    assert deployment.throttle_ms(fetch, "others") == 0
    # A window younger than one sample is measured as one: what it says first is up to that much too short.
    for _ in range(2):
        deployment.clock.advance(deployment.throttle_ms(fetch, "reports") / 1000)
    assert deployment.read(fetch, "reports").records == first.records
    assert deployment.quotas.limiter.total_bytes > charged


def test_a_batch_that_takes_more_than_its_reader_asked_for_is_read_to_its_end(deployment: Deployment) -> None:
    """It was begun within the quota; else the reader would be charged for ever and never get on."""
    deployment.quotas.quotas[CLIENT] = 1_000
    found = deployment.read(PartitionFetch(deployment.partition, 0, 100), "reports")
    assert len(found.records) > 100


def test_a_tiny_quota_answers_at_once_and_says_how_long_the_read_would_take(deployment: Deployment) -> None:
    deployment.quotas.quotas[CLIENT] = 10
    fetch = PartitionFetch(deployment.partition, 0, 1)
    found = deployment.read(fetch, "reports")
    assert (found.records, deployment.quotas.limiter.total_bytes) == (b"", 0)
    assert found.throttle_ms > 11_000
    assert "for which the quota of 10 bytes a second takes" in found.said[0]
    assert deployment.throttle_ms(fetch, "reports") > 0, "the index that was read counts"


def test_no_reader_is_held_for_more_than_its_first_batch_or_a_second(deployment: Deployment) -> None:
    quota = len(deployment.log(0)) // 2
    deployment.quotas.quotas[CLIENT] = quota
    found = deployment.read(PartitionFetch(deployment.partition, 0, 10_000_000), "reports")
    assert 0 < len(found.records) <= quota
    assert deployment.log(0).startswith(bytes(found.records))
    assert deployment.quotas.limiter.total_bytes <= quota


def test_a_quota_that_ends_on_the_way_ends_the_answer(deployment: Deployment) -> None:
    deployment.quotas.quotas[CLIENT] = 2 * deployment.rows[0].metadata.segment_size_bytes
    found = deployment.read(PartitionFetch(deployment.partition, 0, 10_000_000), "reports")
    assert bytes(found.records) == deployment.log(0)
    assert (found.throttle_ms, found.next_offset) == (0, deployment.rows[0].metadata.end_offset + 1)


@pytest.mark.parametrize("verdict", [Verdict.NONE, Verdict.FAILED])
def test_only_served_segments_are_read(deployment: Deployment, verdict: Verdict) -> None:
    second = deployment.rows[1]
    deployment.metadata.put(replace(second, verdict=verdict))
    found = deployment.read(PartitionFetch(deployment.partition, 0, 10_000_000), NAMELESS_CLIENT)
    assert bytes(found.records) == deployment.log(0)
    with pytest.raises(OffsetOutOfRangeError, match=f"its verdict is {verdict}"):
        deployment.read(PartitionFetch(deployment.partition, second.metadata.start_offset, 1), NAMELESS_CLIENT)


def test_what_no_segment_holds_is_out_of_range(deployment: Deployment) -> None:
    beyond = deployment.rows[2].metadata.end_offset + 1
    with pytest.raises(OffsetOutOfRangeError, match=f"no segment in remote storage holds offset {beyond}$"):
        deployment.read(PartitionFetch(deployment.partition, beyond, 1), NAMELESS_CLIENT)
    with pytest.raises(OffsetOutOfRangeError, match="holds offset 0 under leader epoch 77"):
        deployment.read(PartitionFetch(deployment.partition, 0, 1, leader_epoch=77), NAMELESS_CLIENT)


def test_a_recorded_hole_is_named_and_where_records_go_on(deployment: Deployment) -> None:
    hole = OffsetRange(deployment.rows[2].metadata.end_offset + 1, 5_000)
    deployment.metadata.skipped = [SkippedOffsets(hole, "retention was quicker", "me@host", 0)]
    with pytest.raises(
        OffsetOutOfRangeError,
        match=rf"{hole.first}\.\.5000 were skipped by me@host \(retention was quicker\); go on at offset 5001$",
    ):
        deployment.read(PartitionFetch(deployment.partition, 4_000, 1), NAMELESS_CLIENT)
    with pytest.raises(OffsetOutOfRangeError, match=r"holds offset 5001$"):
        deployment.read(PartitionFetch(deployment.partition, 5_001, 1), NAMELESS_CLIENT)


def test_damage_in_the_store_is_named_and_nothing_of_it_is_given(deployment: Deployment) -> None:
    path = deployment.copied.object_path(deployment.rows[0], "log")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(RemoteChecksumError, match="is damaged in the store: "):
        deployment.read(PartitionFetch(deployment.partition, 0, 10_000_000), NAMELESS_CLIENT)


def test_a_damaged_index_fails_the_fetch(deployment: Deployment) -> None:
    """KAFKA-15511: nothing damaged is kept for the fetch after the store was mended."""
    path = deployment.copied.object_path(deployment.rows[0], "indexes")
    sound = path.read_bytes()
    path.write_bytes(bytes(len(sound)))
    with pytest.raises(RemoteChecksumError, match="is damaged in the store: "):
        deployment.read(PartitionFetch(deployment.partition, 0, 1), NAMELESS_CLIENT)
    path.write_bytes(sound)
    assert deployment.read(PartitionFetch(deployment.partition, 0, 1), NAMELESS_CLIENT).records


@pytest.mark.parametrize("arguments", [(-1, 1, None), (0, 0, None), (0, 1, -1)])
def test_what_cannot_be_asked_is_refused(deployment: Deployment, arguments: tuple[int, int, int | None]) -> None:
    with pytest.raises(ValueError, match="offset"):
        PartitionFetch(deployment.partition, *arguments)


def test_a_file_is_named_after_its_offsets(deployment: Deployment, tmp_path: Path) -> None:
    found = deployment.read(PartitionFetch(deployment.partition, 0, 1), NAMELESS_CLIENT)
    path = write_records(found, tmp_path / "out")
    assert path.name == f"{found.base_offset:020d}-{found.next_offset - 1:020d}.batches"
    assert path.parent.name == str(deployment.partition)
    assert path.read_bytes() == bytes(found.records)
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_link_that_somebody_planted_is_not_written_through(deployment: Deployment, tmp_path: Path) -> None:
    found = deployment.read(PartitionFetch(deployment.partition, 0, 1), NAMELESS_CLIENT)
    mine, target = tmp_path / "mine", tmp_path / "out" / str(deployment.partition)
    mine.write_bytes(b"mine")
    target.mkdir(parents=True)
    name = f"{found.base_offset:020d}-{found.next_offset - 1:020d}"
    (target / f"{name}.partial").symlink_to(mine)
    path = write_records(found, tmp_path / "out")
    assert mine.read_bytes() == b"mine"
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (bytes(found.records), 0o600)


def test_a_directory_that_leads_elsewhere_is_refused(deployment: Deployment, tmp_path: Path) -> None:
    found = deployment.read(PartitionFetch(deployment.partition, 0, 1), NAMELESS_CLIENT)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / str(deployment.partition)).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SettingError, match="is no directory: name another directory with --output"):
        write_records(found, tmp_path / "out")


def test_a_directory_of_somebody_else_is_refused(
    deployment: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = deployment.read(PartitionFetch(deployment.partition, 0, 1), NAMELESS_CLIENT)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(SettingError, match="belongs to another user"):
        write_records(found, tmp_path / "out")


# Reading a partition back: which copies become files.

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

    def fetch_log_segment(
        self, metadata: RemoteLogSegmentMetadata, *, limiter: ByteLimiter, ranges: int = 1
    ) -> Iterator[bytes]:
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
    epochs, follows = "(epoch 0; source: epoch 6)", "followed by decision of me (agreed)"
    assert [one.said for one in found] == [
        (f"from offset 150 on the source's history is {follows}; it replaced {SEEN_AT} {epochs}",),
        (f"{SEEN_AT} are of {REPLACED} {epochs}; from offset 150 on the source is {follows}",),
    ]


def test_what_lies_wholly_behind_the_decision_is_left_out_by_name(tmp_path: Path) -> None:
    (found,) = read_back(tmp_path, row(199), followed_from=0)
    assert (found.path, found.by_decision) == (None, True)
    assert "read it with --offset and --epoch" in (found.refused or "")
