"""The steps of a recovery drill, which tries on one topic all of what a recovery does.

A drill has settings, a database and a directory of its own, which are removed when it ends. Of the deployment it uses
the settings of the store, the fetch quotas, and the event log, where its result is kept. The store is only read. The
deployment's database says what is lacking, as a store that lost the end of a log looks whole, and which holes were
decided: offsets that a person has skipped are lost already, and no fault of the store. It also says what the deployment
copies, deletes or has deleted meanwhile, which no drill can find complete: that is no finding, and a restore that came
too late for it begins again behind the log start.

    step      a crash right after it leaves                          cleaned up by
    rebuild   the temporary directory, with an SQLite database       the end of the context; after kill -9 a person, as
    verify    the same                                               its path was printed first
    restore   the same, with copies of records                       the same
    start     the same; the broker ends with the process on Linux    the same: its pid is printed, too
"""

import secrets
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Final

from include.tiering.broker_process.kafka_home import KafkaHome
from include.tiering.broker_process.throw_away import prepare_restored_broker
from include.tiering.clock import Clock
from include.tiering.errors import (
    BrokerProcessError,
    BrokersError,
    RehearsalSpaceError,
    SettingError,
    printable,
)
from include.tiering.formats import indexes
from include.tiering.formats.checkpoints import parse_offset_checkpoint
from include.tiering.formats.record_batch import HEADER_SIZE
from include.tiering.formats.records import Decompressor, records_of
from include.tiering.model.histories import OffsetRange, not_skipped, without
from include.tiering.model.segments import (
    RemoteLogSegmentId,
    SeenRecord,
    SegmentDigests,
    TopicIdPartition,
    segment_digests,
)
from include.tiering.presentation import count
from include.tiering.reading.scan import AbortedBatches, batches_of
from include.tiering.reading.served_log import said_of_gap
from include.tiering.recovery.drill import DrilledPartition, DrillReport, DrillStep, RecoveryNeeds
from include.tiering.recovery.rebuild import RebuildPlan
from include.tiering.recovery.service import RecoveryService
from include.tiering.remote_storage.contract import ObjectKind
from include.tiering.restoring.plan import PartitionLog, PartitionRestore, RestoreRequest
from include.tiering.restoring.report import RestoreReport
from include.tiering.restoring.restore_segments import HIGH_WATERMARKS, LOG_STARTS
from include.tiering.restoring.service import RestoreService
from include.tiering.units import MIB, format_bytes, format_utc

_COPIES: Final = 1.1
"""Free disk space that is needed, as a multiple of the topic's logs: the restored files are moved, not copied."""
_BASE_BYTES: Final = 64 * MIB
_MOST_FINDINGS: Final = 20
_MOST_RESTORES: Final = 3
_BLOCK_BYTES: Final = 4 * MIB

_Holes = dict[TopicIdPartition, tuple[OffsetRange, ...]]
KnownLogs = Callable[[], Iterable[tuple[TopicIdPartition, PartitionLog]]]
"""Reads the topic's partitions as a database has them."""


@dataclass(frozen=True, slots=True)
class OwnServices:
    """What a drill does in its own database.

    Attributes:
        recovery: rebuilds the metadata.
        restoring: returns what restores the topic, once the metadata are rebuilt.
        verify: verifies all segments completely; returns the id of each that failed, and a sentence.
        logs: reads the rebuilt partitions.
        raise_log_start: raises the log start offset of a rebuilt partition.
    """

    recovery: RecoveryService
    restoring: Callable[[], RestoreService]
    verify: Callable[[], Iterable[tuple[str, str]]]
    logs: KnownLogs
    raise_log_start: Callable[[TopicIdPartition, int], object]


ServedRecords = Callable[[str, TopicIdPartition, int, int, bool], Iterable[SeenRecord]]
"""Reads what consumers get from a broker: bootstrap, partition, first and last offset (inclusive), read_committed."""


@dataclass(slots=True)
class Drill:
    """One drill, step by step.

    Attributes:
        topic: name of the topic.
        kafka: the Kafka release that is started.
        root: an empty directory.
        opened: opens what the drill does in its own database.
        known: reads the topic's partitions from the deployment's database.
        served: reads records from the throw-away broker.
        clock: for the time that steps take.
        say: called with a sentence about each step.
    """

    topic: str
    kafka: KafkaHome
    root: Path
    opened: Callable[[], AbstractContextManager[OwnServices]]
    known: KnownLogs
    served: ServedRecords
    clock: Clock
    say: Callable[[str], None]
    steps: list[tuple[DrillStep, float]] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    _before: frozenset[RemoteLogSegmentId] = frozenset()

    def report(self) -> DrillReport:
        """Run all steps.

        Raises:
            SettingError: the store has no such topic, or several.
            StateConflictError: the store's layout writes no manifests, so nothing can be rebuilt from it.
            RehearsalError: there is too little space, or the throw-away broker could not be prepared.
            RemoteStorageUnavailableError: the store does not answer.
        """
        self._before = frozenset(segment_id for segment_id, is_finished in self._states().items() if is_finished)
        with self.opened() as own:
            with self._timed(DrillStep.REBUILD):
                plan, holes = self._rebuilt(own)
            needs = RecoveryNeeds(_log_bytes(plan, self.topic), plan.log_bytes, 0, 0.0)
            _require_space(self.root, needs.topic_bytes)
            with self._timed(DrillStep.VERIFY):
                self._verify(own)
            with self._timed(DrillStep.RESTORE):
                restored = self._restored(own, holes)
            self._compare(restored)
            needs = replace(needs, work_seconds=sum(seconds for _, seconds in self.steps))
        partitions: tuple[DrilledPartition, ...] = ()
        if restored is not None:
            needs = replace(needs, disk_bytes=_size_of(restored.directory))
            complete = [each.partition for each in restored.partitions if not each.left]
            if complete and len(complete) == len(restored.partitions):
                partitions = self._read_back(restored.directory, complete)
        return DrillReport(
            self.topic,
            self.kafka.version,
            tuple(self.steps),
            partitions,
            tuple(self.findings[:_MOST_FINDINGS]),
            needs,
            tuple(self.skipped),
        )

    @contextmanager
    def _timed(self, step: DrillStep) -> Iterator[None]:
        began = self.clock.monotonic()
        self.say(f"{step}")
        yield
        self.steps.append((step, self.clock.monotonic() - began))

    def _rebuilt(self, own: OwnServices) -> tuple[RebuildPlan, _Holes]:
        """Return what a rebuild of the whole store would do, and the holes of the topic."""
        whole = own.recovery.plan_rebuild()
        named = tuple(each for each in whole.partitions if each.topic_id_partition.topic == self.topic)
        known = dict(self.known())
        if not named:
            none = f"{printable(self.topic)}: the store has no object of this topic"
            if not any(log.parts for log in known.values()):
                raise SettingError(none)
            self.findings.append(none)
        if len(ids := {each.topic_id_partition.topic_id for each in named}) > 1:
            raise SettingError(f"{self.topic}: the store has {len(ids)} topics of this name, and a drill takes one")
        report = own.recovery.rebuild_apart(replace(whole, partitions=named), author="drill")
        holes: _Holes = {}
        for rebuilt in report.partitions:
            partition = rebuilt.topic_id_partition
            holes[partition] = rebuilt.holes
            for hole in rebuilt.holes:
                self._explain(partition, hole, known.get(partition))
        states = self._states()
        for each in (each for rebuilt in report.partitions for each in rebuilt.faulty):
            segment_id, sizes_bytes = each.attempt.segment_id, each.attempt.sizes_bytes
            # A manifest is written last, and deleted first: a broker may copy or delete the segment now.
            is_unknown = segment_id not in states and segment_id not in self._before
            was_whole = not sizes_bytes or ObjectKind.MANIFEST in sizes_bytes
            if (is_unknown and was_whole) or (segment_id in self._before and states.get(segment_id, False)):
                self.findings.append(f"{segment_id.topic_id_partition}: segment {segment_id.id}: {each.message}")
        return whole, holes

    def _states(self) -> dict[RemoteLogSegmentId, bool]:
        """Return all segments that the deployment has now, and whether each is neither copied nor deleted."""
        rows = [row.metadata for _, log in self.known() for row in log.rows]
        return {row.remote_log_segment_id: row.is_finished for row in rows}

    def _changing(self) -> set[RemoteLogSegmentId]:
        """Return the segments that the deployment copies or deletes now, or has deleted since the drill began."""
        states = self._states()
        return {segment_id for segment_id in states.keys() | self._before if not states.get(segment_id, False)}

    def _explain(self, partition: TopicIdPartition, hole: OffsetRange, known: PartitionLog | None) -> None:
        """Say by which decisions the offsets of a hole were skipped.

        What none of them covers is a finding, if the deployment has not deleted it by its retention.
        """
        decided, log_start_offset = ((), 0) if known is None else (known.skipped, known.log_start_offset)
        if hole.last < log_start_offset:
            return
        lost = not_skipped(max(hole.first, log_start_offset), hole.last, decided)
        self.findings += [f"{partition}: no copy has offsets {offsets}" for offsets in lost]
        for decision in decided:
            first, last = max(hole.first, decision.offsets.first), min(hole.last, decision.offsets.last)
            if first <= last:
                self.skipped.append(
                    f"{partition}: {count(last - first + 1, 'offset')} are skipped ({first}..{last}), recorded by"
                    f" {decision.author} at {format_utc(decision.recorded_at_ms)}: {decision.reason}"
                )

    def _verify(self, own: OwnServices) -> None:
        failed = list(own.verify())
        changing = {str(each.id) for each in self._changing()} if failed else set()
        self.findings += [sentence for segment_id, sentence in failed if segment_id not in changing]

    def _restored(self, own: OwnServices, holes: _Holes) -> RestoreReport | None:
        try:
            partitions = own.restoring().partitions_of(self.topic)
        except SettingError as error:
            self.findings.append(str(error))
            return None
        for number in range(1, _MOST_RESTORES + 1):
            directory = self.root / f"restored-{number}"
            self._raise_log_starts(own)
            report = own.restoring().run(RestoreRequest(partitions), directory)
            changing = self._changing() if report.failed else set()
            if not any(each.part.segment.remote_log_segment_id in changing for each in report.failed):
                break
            if number < _MOST_RESTORES:
                self.say("the deployment has deleted segments meanwhile: the topic is restored again without them")
                shutil.rmtree(directory)
        said_before = {
            f"{partition}: {said_of_gap(hole, log.rows, log.skipped)}"
            for partition, log in own.logs()
            for hole in holes.get(partition, ())
        }
        self.findings += [sentence for sentence in report.plan.said if sentence not in said_before]
        for failed in report.failed:
            segment = failed.part.segment
            offsets = f"{segment.start_offset}..{segment.end_offset}"
            self.findings.append(
                f"{failed.part.partition}: segment {segment.remote_log_segment_id.id} with offsets {offsets}:"
                f" {failed.reason}"
            )
        return report

    def _raise_log_starts(self, own: OwnServices) -> None:
        """Leave out what the deployment's retention has deleted by now, or is about to delete."""
        rebuilt = {partition for partition, _ in own.logs()}
        for partition, log in self.known():
            if partition in rebuilt:
                own.raise_log_start(partition, log.log_start_offset)

    def _compare(self, restored: RestoreReport | None) -> None:
        """Find what the deployment's database serves, and the recovery has not."""
        found = {} if restored is None else {each.partition: each for each in restored.partitions}
        for partition, log in self.known():
            self.findings += [f"{partition}: {lost}" for lost in lacking(log, self._before, found.get(partition))]

    def _read_back(self, restored: Path, partitions: Sequence[TopicIdPartition]) -> tuple[DrilledPartition, ...]:
        levels = (False, True)
        expected = {each: tuple(_expected(restored, each, committed=one) for one in levels) for each in partitions}
        home = self.root / "kafka"
        home.mkdir()
        with ExitStack() as stack:
            try:
                with self._timed(DrillStep.START):
                    broker = prepare_restored_broker(
                        home, self.kafka, restored, partitions, clock=self.clock, random_bytes=secrets.token_bytes
                    )
                    stack.enter_context(broker.running())
                process = broker.process
                self.say(f"Kafka {self.kafka.version} runs at {process.bootstrap}, pid {process.pid}")
                with self._timed(DrillStep.READ):
                    return tuple(self._compared(process.bootstrap, each, expected[each]) for each in partitions)
            except (BrokerProcessError, BrokersError) as error:
                # A broker that does not take the directory, or serves less than it, is what a drill is to find.
                self.findings.append(str(error))
                return ()

    def _compared(
        self, bootstrap: str, partition: TopicIdPartition, expected: "Sequence[_Expected]"
    ) -> DrilledPartition:
        """Read a partition from the broker in both isolation levels, and compare it with what was restored."""
        records, equal, differences = [], [], []
        for committed, wanted in zip((False, True), expected, strict=True):
            got: Iterable[SeenRecord] = ()
            if wanted.end > wanted.start:
                got = self.served(bootstrap, partition, wanted.start, wanted.end - 1, committed)
            found = segment_digests(got, sorted(wanted.digests) or [0])
            records.append(sum(each.records for each in found.values()))
            same = [base for base, digest in wanted.digests.items() if found.get(base) == digest]
            equal.append(sum(wanted.digests[base].records for base in same))
            level = "read_committed" if committed else "read_uncommitted"
            differences += [
                f"{partition}, {level}: the records of the segment at offset {base} are not equal"
                for base in sorted({*wanted.digests, *found} - set(same))
            ]
        return DrilledPartition(partition.partition, (records[0], records[1]), (equal[0], equal[1]), tuple(differences))


def lacking(
    known: PartitionLog, before: Collection[RemoteLogSegmentId], restored: PartitionRestore | None
) -> Iterator[str]:
    """Yield sentences about what a restore from other metadata, as rebuilt ones, lacks of what is served.

    Args:
        known: the partition as the deployment's database has it afterwards.
        before: segments that were there before the metadata were rebuilt; others were copied meanwhile.
        restored: what was restored; None: nothing.
    """
    parts = () if restored is None else restored.parts
    found = [OffsetRange(part.first_offset, part.last_offset) for part in parts]
    for served in known.parts:
        if served.segment.remote_log_segment_id in before:
            for lost in without(OffsetRange(served.first_offset, served.last_offset), found):
                segment_id = served.segment.remote_log_segment_id.id
                yield f"offsets {lost} of segment {segment_id} are not in the recovered log"
    recorded = {row.metadata.remote_log_segment_id: row.log_crc32c for row in known.rows}
    for part in parts:
        done = None if restored is None else restored.done.get(part.key)
        crc32c = recorded.get(part.segment.remote_log_segment_id)
        is_whole = part.base_offset == part.segment.start_offset and not part.is_cut
        if done is not None and is_whole and crc32c not in (None, done.crc32c):
            yield f"segment {part.segment_id} has a log with CRC-32C {done.crc32c:08x}, its source had {crc32c:08x}"


@dataclass(frozen=True, slots=True)
class _Expected:
    """What consumers should get of a partition: from `start` to `end` (exclusive), with the digest of each segment."""

    start: int
    end: int
    digests: SegmentDigests


def _expected(restored: Path, partition: TopicIdPartition, *, committed: bool) -> _Expected:
    """Decode the restored files of a partition, as they were checked."""
    directory, key = restored / str(partition), (partition.topic, partition.partition)
    start = parse_offset_checkpoint((restored / LOG_STARTS).read_bytes())[key]
    end = parse_offset_checkpoint((restored / HIGH_WATERMARKS).read_bytes())[key]
    if committed:
        end = min(end, _last_stable_offset(directory, end))
    records = _records_of(directory, start, end, committed=committed)
    return _Expected(start, end, segment_digests(records, _bases_of(directory)))


def _last_stable_offset(directory: Path, end: int) -> int:
    """Return the first offset of a transaction that is open at the log's end, by the snapshot there; else `end`."""
    producers = indexes.parse_producer_snapshot((directory / f"{end:020d}.snapshot").read_bytes())
    return min((each.current_txn_first_offset for each in producers if each.has_open_transaction), default=end)


def _records_of(directory: Path, start: int, end: int, *, committed: bool) -> Iterator[SeenRecord]:
    """Yield the records from offset `start` up to `end` (exclusive), in order; control records are left out.

    Args:
        directory: of one partition.
        start: the first offset.
        end: behind the last offset; with `committed`, at most the last stable offset.
        committed: leave out records of aborted transactions.

    Raises:
        FormatError: a file is damaged.
    """
    found = (indexes.parse_transaction_index(path.read_bytes()) for path in sorted(directory.glob("*.txnindex")))
    aborted = AbortedBatches(chain.from_iterable(found) if committed else ())
    decompressor = Decompressor()
    for path in sorted(directory.glob("*.log")):
        for _, header, batch in batches_of(_blocks(path), 0):
            if header.base_offset >= end:
                return
            if header.is_control or header.last_offset < start or aborted.has(header):
                continue
            for record in records_of(header, batch[HEADER_SIZE:], decompressor):
                if start <= record.offset < end:
                    yield record


def _blocks(path: Path) -> Iterable[bytes]:
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            yield block


def _bases_of(directory: Path) -> list[int]:
    return sorted(int(path.stem) for path in directory.glob("*.log"))


def _log_bytes(plan: RebuildPlan, topic: str) -> int:
    return sum(each.log_bytes for each in plan.partitions if each.topic_id_partition.topic == topic)


def _size_of(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def _require_space(root: Path, topic_bytes: int) -> None:
    needed_bytes, free_bytes = int(_COPIES * topic_bytes) + _BASE_BYTES, shutil.disk_usage(root).free
    if needed_bytes > free_bytes:
        raise RehearsalSpaceError(
            f"{root} has {format_bytes(free_bytes)} free, a drill needs {format_bytes(needed_bytes)}: set TMPDIR to a"
            " directory with more space, or choose a smaller topic"
        )
