"""The services that bring data back, and the recovery drill, which tries all of it on one topic.

A drill has settings, a database and a directory of its own, which are removed when it ends. Of the deployment it uses
the settings of the store, the fetch quotas, and the event log, where its result is kept. The store is only read. Once
the topic is restored, the deployment's database says what is lacking: a store that lost the end of a log looks whole.

    step      a crash right after it leaves                          cleaned up by
    rebuild   the temporary directory, with an SQLite database       the end of the context; after kill -9 a person, as
    verify    the same                                               its path was printed first
    restore   the same, with copies of records                       the same
    start     the same, and a broker on loopback                     the same: its pid is printed, too
"""

import secrets
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

from include.tiering.database.migrations import upgrade
from include.tiering.errors import (
    BrokerProcessError,
    BrokersError,
    RehearsalSpaceError,
    SettingError,
    StoreInDoubtError,
    printable,
)
from include.tiering.recovery.drill import (
    DrilledPartition,
    DrillReport,
    DrillStep,
    RecoveryNeeds,
    said_of_drill,
)
from include.tiering.recovery.metrics import DRILL_FAILED, DRILL_SECONDS, DRILL_TIME
from include.tiering.recovery.service import RecoveryService
from include.tiering.recovery.sql_recovery import SqlMetadataRecovery
from include.tiering.restoring.service import RestoreService, stored_log
from include.tiering.units import MIB, format_bytes

if TYPE_CHECKING:
    from include.tiering.app.app import App
    from include.tiering.broker_process.kafka_home import KafkaHome
    from include.tiering.handover.rehearsal import SegmentDigests
    from include.tiering.kafka.cluster.kafka_records import Isolation
    from include.tiering.model.segments import RemoteLogSegmentId, SeenRecord, TopicIdPartition
    from include.tiering.recovery.rebuild import RebuildPlan
    from include.tiering.restoring.copy_elsewhere import OtherStorage
    from include.tiering.restoring.plan import PartitionLog
    from include.tiering.restoring.report import RestoreReport
    from include.tiering.settings import TieringSettings


def recovery_service(app: "App") -> RecoveryService:
    adapters = app.adapters
    return RecoveryService(
        upgrade_schema=lambda: upgrade(adapters.create_database()),
        has_schema=adapters.has_schema,
        unguarded=lambda: adapters.unguarded_storage,
        storage=lambda: adapters.storage,
        place=lambda: adapters.place,
        raised_by=adapters.raised_by,
        recovery_of=lambda cluster_id: SqlMetadataRecovery(adapters.engine, cluster_id),
        adoption=lambda: adapters.stores.recovery,
        metadata=lambda: adapters.stores.metadata,
        registry=lambda: adapters.stores.registry,
        work=lambda: adapters.stores.work,
        log_dirs=app.log_dirs,
        ownership=app.ownership,
        clock=adapters.clock,
        random_bytes=adapters.random_bytes,
    )


def restore_service(app: "App") -> RestoreService:
    adapters = app.adapters
    return RestoreService(
        cluster_id=adapters.cluster_id,
        place=lambda: adapters.place,
        log_dirs=[each.path for each in app.settings.log_dirs],
        metadata=adapters.stores.metadata,
        storage=adapters.storage,
        quotas=adapters.quotas,
        reading=app.reading,
        effective=app.effective_configs.settings,
        recorder=adapters.recorder,
        clock=adapters.clock,
        random_bytes=adapters.random_bytes,
    )


_TARGET: Final = "TIERING_TARGET__"


def other_storage(config: Path, environ: Mapping[str, str]) -> "OtherStorage":
    """Return the remote storage that another settings file names, for a restore into it.

    Args:
        config: a settings file with a section `remote_storage`.
        environ: of its variables those count whose names begin with `TIERING_TARGET__`, such as
            `TIERING_TARGET__REMOTE_STORAGE__SECRET_ACCESS_KEY`: the others are of the storage that is read.

    Raises:
        SettingError: the file cannot be used, or names no storage.
    """
    from include.tiering.remote_storage.location import access_of, layout_options, open_storage, place_of
    from include.tiering.restoring.copy_elsewhere import OtherStorage
    from include.tiering.settings import load_settings

    own = {f"TIERING_{name.removeprefix(_TARGET)}": text for name, text in environ.items() if name.startswith(_TARGET)}
    remote = load_settings(config, environ={"HOME": environ.get("HOME", ""), **own}).remote_storage
    url = remote.required_url()
    storage = open_storage(url, access_of(remote), **layout_options(remote))
    return OtherStorage(storage, place_of(url, remote.layout, remote.key_prefix))


_PREFIX: Final = "tiering-drill-"
_COPIES: Final = 1.1
"""Free disk space that is needed, as a multiple of the topic's logs: the restored files are moved, not copied."""
_BASE_BYTES: Final = 64 * MIB
_MOST_FINDINGS: Final = 20
_BLOCK_BYTES: Final = 4 * MIB


def drill(
    app: "App",
    topic: str,
    kafka: "KafkaHome",
    *,
    author: str,
    say: Callable[[str], None],
    keep: bool = False,
) -> DrillReport:
    """Recover a topic from the store alone, and compare what consumers read; record the result.

    Args:
        app: the deployment. Only its event log and metrics are written.
        topic: name of the topic.
        kafka: the Kafka release that is started.
        author: who asked for the drill, for the event log.
        say: called with a sentence about each step.
        keep: whether to keep the temporary directory. The broker is ended in any case.

    Raises:
        SettingError: the store has no such topic, or several; or TMPDIR is in a log directory.
        StateConflictError: the store's layout writes no manifests, so nothing can be rebuilt from it.
        RehearsalError: there is too little space, or the throw-away broker could not be prepared.
        RemoteStorageUnavailableError: the store does not answer.
    """
    from include.tiering.app.rehearse import temporary_parent

    root = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=temporary_parent(app)))
    try:
        say(f"the drill's database and files are in {root}")
        run = _Drill(app, topic, kafka, root, say)
        report = run.report()
    finally:
        if not keep:
            shutil.rmtree(root)
    record_drill(app, report, author)
    return replace(report, kept=root) if keep else report


def topic_that_waits(app: "App") -> str | None:
    """Return the topic whose last drill is the longest ago, or that had none; the smallest one of several without."""
    from include.tiering.database.event_log import EventKind

    sizes: dict[str, int] = {}
    for each in app.sizes.partition_sizes():
        sizes[each.topic_id_partition.topic] = sizes.get(each.topic_id_partition.topic, 0) + each.size_bytes
    last = {topic: app.adapters.stores.events.last(EventKind.DRILL, topic) for topic in sizes}
    waits = {topic: 0 if event is None else event.occurred_at_ms for topic, event in last.items()}
    return min(sizes, key=lambda topic: (waits[topic], sizes[topic], topic), default=None)


def record_drill(app: "App", report: DrillReport, author: str) -> None:
    """Keep the result of a drill in the event log and in the metrics."""
    from include.tiering.database.event_log import EventKind

    topic, adapters = report.topic, app.adapters
    adapters.stores.events.append(EventKind.DRILL, topic, said_of_drill(report), author=author)
    adapters.recorder.set(DRILL_TIME, adapters.clock.now_ms() / 1000, topic)
    adapters.recorder.set(DRILL_FAILED, 0 if report.has_passed else 1, topic)
    adapters.recorder.set(DRILL_SECONDS, report.seconds, topic)


@dataclass(slots=True)
class _Drill:
    """One drill, step by step."""

    app: "App"
    topic: str
    kafka: "KafkaHome"
    root: Path
    say: Callable[[str], None]
    steps: list[tuple[DrillStep, float]] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)

    def report(self) -> DrillReport:
        before = {row.metadata.remote_log_segment_id for _, log in self._known() for row in log.rows}
        with self._opened() as own:
            with self._timed(DrillStep.REBUILD):
                plan = self._rebuilt(own)
            needs = RecoveryNeeds(_log_bytes(plan, self.topic), plan.log_bytes, 0, 0.0)
            _require_space(self.root, needs.topic_bytes)
            with self._timed(DrillStep.VERIFY):
                self._verify(own)
            with self._timed(DrillStep.RESTORE):
                restored = self._restored(own)
            self._compare(before, restored)
            needs = replace(needs, work_seconds=sum(seconds for _, seconds in self.steps))
        partitions: tuple[DrilledPartition, ...] = ()
        if restored is not None:
            needs = replace(needs, disk_bytes=_size_of(restored.directory))
            complete = [each.partition for each in restored.partitions if not each.left]
            if complete and len(complete) == len(restored.partitions):
                partitions = self._read_back(restored.directory, complete)
        return DrillReport(
            self.topic, self.kafka.version, tuple(self.steps), partitions, tuple(self.findings[:_MOST_FINDINGS]), needs
        )

    @contextmanager
    def _opened(self) -> "Iterator[App]":
        """Open an app with a database of its own, under the deployment's quotas, which stay open."""
        from include.tiering.app.app import open_app

        with open_app(_settings_of(self.app.settings, self.root), quotas=self.app.adapters.quotas) as own:
            try:
                yield own
            finally:
                own.adapters.__dict__.pop("quotas", None)

    @contextmanager
    def _timed(self, step: DrillStep) -> Iterator[None]:
        clock = self.app.adapters.clock
        began = clock.monotonic()
        self.say(f"{step}")
        yield
        self.steps.append((step, clock.monotonic() - began))

    def _rebuilt(self, own: "App") -> "RebuildPlan":
        whole = own.recovery.plan_rebuild()
        named = tuple(each for each in whole.partitions if each.topic_id_partition.topic == self.topic)
        if not named:
            none = f"{printable(self.topic)}: the store has no object of this topic"
            if not any(log.parts for _, log in self._known()):
                raise SettingError(none)
            self.findings.append(none)
        if len(ids := {each.topic_id_partition.topic_id for each in named}) > 1:
            raise SettingError(f"{self.topic}: the store has {len(ids)} topics of this name, and a drill takes one")
        report = own.recovery.rebuild_apart(replace(whole, partitions=named), author="drill")
        for rebuilt in report.partitions:
            self.findings += [f"{rebuilt.topic_id_partition}: no copy has offsets {hole}" for hole in rebuilt.holes]
            self.findings += [
                f"{rebuilt.topic_id_partition}: segment {each.attempt.segment_id.id}: {each.message}"
                for each in rebuilt.faulty
            ]
        return whole

    def _verify(self, own: "App") -> None:
        from include.tiering.model.segments import Depth
        from include.tiering.verification.verify_segments import verify_segments

        adapters = own.adapters
        try:
            report = verify_segments(
                adapters.stores.metadata,
                adapters.unguarded_storage,
                adapters.segment_evaluator(None),
                run_id=None,
                # Without the database nobody knows the checksum of a log that is stored compressed or encrypted.
                depth=Depth.DEEP,
                quotas=adapters.quotas,
                clock=adapters.clock,
                # The owner of the store may plan meanwhile, which changes the marker.
                require_ours=lambda: None,
                limits=own.verification.loss_limits(),
                at_once=own.settings.read.max_segments,
            )
        except StoreInDoubtError as error:
            self.findings.append(str(error))
            return
        self.findings += [f"segment {each.segment_id}: {each.rule}: {each.message}" for each in report.failed]

    def _restored(self, own: "App") -> "RestoreReport | None":
        from include.tiering.restoring.plan import RestoreRequest

        try:
            partitions = own.restoring.partitions_of(self.topic)
        except SettingError as error:
            self.findings.append(str(error))
            return None
        report = own.restoring.run(RestoreRequest(partitions), self.root / "restored")
        self.findings += report.plan.said
        for failed in report.failed:
            segment = failed.part.segment
            offsets = f"{segment.start_offset}..{segment.end_offset}"
            self.findings.append(
                f"{failed.part.partition}: segment {segment.remote_log_segment_id.id} with offsets {offsets}:"
                f" {failed.reason}"
            )
        return report

    def _known(self) -> "Iterator[tuple[TopicIdPartition, PartitionLog]]":
        """Yield the topic's partitions as the deployment's database has them."""
        metadata = self.app.adapters.stores.metadata
        for partition in metadata.partitions():
            if partition.topic == self.topic:
                yield partition, stored_log(metadata, partition)

    def _compare(self, before: "Collection[RemoteLogSegmentId]", restored: "RestoreReport | None") -> None:
        """Find what the deployment's database serves, and the recovery has not."""
        from include.tiering.restoring.plan import lacking

        found = {} if restored is None else {each.partition: each for each in restored.partitions}
        for partition, log in self._known():
            self.findings += [f"{partition}: {lost}" for lost in lacking(log, before, found.get(partition))]

    def _read_back(self, restored: Path, partitions: "Sequence[TopicIdPartition]") -> tuple[DrilledPartition, ...]:
        from include.tiering.broker_process.throw_away import prepare_restored_broker
        from include.tiering.kafka.cluster.kafka_records import Isolation

        expected = {
            (each, isolation): _expected(restored, each, isolation) for each in partitions for isolation in Isolation
        }
        home = self.root / "kafka"
        home.mkdir()
        clock = self.app.adapters.clock
        with ExitStack() as stack:
            try:
                with self._timed(DrillStep.START):
                    broker = prepare_restored_broker(
                        home, self.kafka, restored, partitions, clock=clock, random_bytes=secrets.token_bytes
                    )
                    stack.enter_context(broker.running())
                process = broker.process
                self.say(f"Kafka {self.kafka.version} runs at {process.bootstrap}, pid {process.pid}")
                with self._timed(DrillStep.READ):
                    return tuple(_compared(broker.process.bootstrap, each, expected) for each in partitions)
            except (BrokerProcessError, BrokersError) as error:
                # A broker that does not take the directory, or serves less than it, is what a drill is to find.
                self.findings.append(str(error))
                return ()


@dataclass(frozen=True, slots=True)
class _Expected:
    """What consumers should get of a partition: from `start` to `end` (exclusive), with the digest of each segment."""

    start: int
    end: int
    digests: "SegmentDigests"


def _expected(restored: Path, partition: "TopicIdPartition", isolation: "Isolation") -> _Expected:
    """Decode the restored files of a partition, as they were checked."""
    from include.tiering.formats.checkpoints import parse_offset_checkpoint
    from include.tiering.handover.rehearsal import segment_digests
    from include.tiering.kafka.cluster.kafka_records import Isolation
    from include.tiering.restoring.restore_segments import HIGH_WATERMARKS, LOG_STARTS

    directory, key = restored / str(partition), (partition.topic, partition.partition)
    start = parse_offset_checkpoint((restored / LOG_STARTS).read_bytes())[key]
    end = parse_offset_checkpoint((restored / HIGH_WATERMARKS).read_bytes())[key]
    committed = isolation is Isolation.COMMITTED
    if committed:
        end = min(end, _last_stable_offset(directory, end))
    records = _records_of(directory, start, end, committed=committed)
    return _Expected(start, end, segment_digests(records, _bases_of(directory)))


def _last_stable_offset(directory: Path, end: int) -> int:
    """Return the first offset of a transaction that is open at the log's end, by the snapshot there; else `end`."""
    from include.tiering.formats import indexes

    producers = indexes.parse_producer_snapshot((directory / f"{end:020d}.snapshot").read_bytes())
    return min((each.current_txn_first_offset for each in producers if each.has_open_transaction), default=end)


def _records_of(directory: Path, start: int, end: int, *, committed: bool) -> "Iterator[SeenRecord]":
    """Yield the records from offset `start` up to `end` (exclusive), in order; control records are left out.

    Args:
        directory: of one partition.
        start: the first offset.
        end: behind the last offset; with `committed`, at most the last stable offset.
        committed: leave out records of aborted transactions.

    Raises:
        FormatError: a file is damaged.
    """
    from include.tiering.formats import indexes
    from include.tiering.formats.record_batch import HEADER_SIZE
    from include.tiering.formats.records import Decompressor, records_of
    from include.tiering.reading.scan import AbortedBatches, batches_of

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


def _compared(
    bootstrap: str,
    partition: "TopicIdPartition",
    expected: "Mapping[tuple[TopicIdPartition, Isolation], _Expected]",
) -> DrilledPartition:
    """Read a partition from the broker in both isolation levels, and compare it with what was restored."""
    from include.tiering.handover.rehearsal import segment_digests
    from include.tiering.kafka.cluster.kafka_records import Isolation, KafkaServedRecords

    records, equal, differences = [], [], []
    for isolation in (Isolation.UNCOMMITTED, Isolation.COMMITTED):
        wanted = expected[partition, isolation]
        served = KafkaServedRecords({"bootstrap.servers": bootstrap}, isolation=isolation)
        got = served.read(partition, wanted.start, wanted.end - 1) if wanted.end > wanted.start else iter(())
        found = segment_digests(got, sorted(wanted.digests) or [0])
        records.append(sum(each.records for each in found.values()))
        same = [base for base, digest in wanted.digests.items() if found.get(base) == digest]
        equal.append(sum(wanted.digests[base].records for base in same))
        differences += [
            f"{partition}, {isolation.value}: the records of the segment at offset {base} are not equal"
            for base in sorted({*wanted.digests, *found} - set(same))
        ]
    return DrilledPartition(partition.partition, (records[0], records[1]), (equal[0], equal[1]), tuple(differences))


def _settings_of(settings: "TieringSettings", root: Path) -> "TieringSettings":
    """Return settings with the same store and limits, a database below `root`, and neither log dirs nor brokers."""
    from include.tiering.settings import load_settings

    own = load_settings(None, {"metadata.url": f"sqlite:///{root}/metadata.sqlite"}, {}, overrides_origin="drill")
    kept = {"remote_storage": settings.remote_storage, "read": settings.read, "prices": settings.prices}
    return own.model_copy(update=kept)


def _log_bytes(plan: "RebuildPlan", topic: str) -> int:
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
