"""Rehearse a handover: a sample of the topic on a throw-away broker, with a separate app.

The deployment's log directories, or leaders, and cluster metadata are only read. Database, store and quotas of the
rehearsal are in a temporary directory, and a separate app with settings for them runs the handover.

    step        a crash right after it leaves                        cleaned up by
    sampled     nothing                                              -
    directory   the temporary directory, with copies of records      the end of the context; after kill -9 a person,
                                                                     for whom its path is printed
    broker      the same; on Linux the broker ends with the process  the same; on another system a person also has to
                                                                     end the broker, whose pid is printed
"""

import re
import secrets
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol

from include.tiering.app.app import App, open_app
from include.tiering.broker_process.kafka_home import KafkaHome
from include.tiering.broker_process.sample import PartitionSample, bases_of, require_free_space, samples_of, size_of
from include.tiering.broker_process.throw_away import NODE_ID, ThrowAwayBroker, prepare_broker
from include.tiering.errors import ClusterMetadataError, SettingError, SourceError, SourceVanishedError
from include.tiering.handover.checks import UNLIMITED
from include.tiering.handover.contract import Handover, LocalRetention
from include.tiering.handover.rehearsal import (
    Rehearsal,
    RehearsedPartition,
    compared,
    counted,
    first_kept,
    lost_between,
)
from include.tiering.handover.report import latest_checks
from include.tiering.handover.rules import HandoverState, HandoverStep, is_before
from include.tiering.kafka.cluster.cluster_metadata import LostClusterMetadata, UnknownClusterMetadata
from include.tiering.kafka.cluster.contract import ClusterMetadata, PartitionOffsets, known_topic
from include.tiering.kafka.cluster.kafka_records import Isolation, KafkaServedRecords
from include.tiering.kafka.fetch_api.newest_segments import leader_logs_of, write_newest
from include.tiering.kafka.log_dirs.contract import ReplicaId, ScanReport
from include.tiering.kafka.log_dirs.dirs import identify
from include.tiering.kafka.log_dirs.rules import topic_refusal
from include.tiering.kafka.log_dirs.source import LogDirSource
from include.tiering.model.segments import SegmentDigests, is_legal_topic_name, segment_digests
from include.tiering.presentation import count
from include.tiering.runs.cluster_log_dirs import configured_log_dirs
from include.tiering.settings import TieringSettings, load_settings
from include.tiering.units import format_bytes

_AUTHOR: Final = "rehearsal"
_ALL_THAT_IS_ROLLED: Final = LocalRetention(local_retention_bytes=1)
"""The broker deletes every segment from its disk once it has copied it, so that consumers read it from the store."""
_LOCAL_STEPS: Final = 3
_PATIENCE_SECONDS: Final = 180.0
_POLL_SECONDS: Final = 1.0
_STORED_LOG: Final = re.compile(r"(\d{20})-.{22}\.log")


class Counting(Protocol):
    """Opens a progress bar for an activity. Whoever opened it calls the yielded function with each part's bytes."""

    def __call__(self, activity: str, planned_bytes: int, /) -> AbstractContextManager[Callable[[int], None]]: ...


@dataclass(frozen=True, slots=True)
class Watcher:
    """The functions that are called with progress."""

    on_message: Callable[[str], None]
    on_step: Callable[[Handover], None]
    counting: Counting


@dataclass(frozen=True, slots=True)
class _Read:
    """What consumers received from one partition: `plain` by read_uncommitted, `committed` by read_committed."""

    offsets: PartitionOffsets
    plain: SegmentDigests
    committed: SegmentDigests


def rehearse_on(
    broker: ThrowAwayBroker,
    samples: Sequence[PartitionSample],
    configs: Mapping[str, str],
    watcher: Watcher,
    kafka_version: str,
    *,
    reads_leaders: bool = False,
) -> Rehearsal:
    """Run all steps of a handover, and approve its plan automatically.

    Consumers read the topic once after the handover has overridden the topic's retention, and again if it is completed.

    Args:
        broker: the throw-away broker.
        samples: the copied partitions.
        configs: what is set on the topic before: those of `RETENTION_CONFIGS` that are known, and segment.bytes and
            segment.ms if the sample was fetched from leaders.
        watcher: receives the progress.
        kafka_version: for the report.
        reads_leaders: whether the platform of the rehearsal reads the broker over the network, and not its directory.

    Raises:
        BrokersError: the throw-away broker does not answer, or refuses a request.
        RemoteStorageError: the temporary store cannot be read or written.
    """
    topic = samples[0].replica_id.topic_id_partition.topic
    with open_app(settings_of(broker, topic, reads_leaders=reads_leaders)) as app:
        app.set_up.migrate()
        if configs:
            app.adapters.brokers.alter_topic_configs(topic, configs)
        run = _Run(app, samples, watcher)
        handover = app.handover.begin(topic, _ALL_THAT_IS_ROLLED, author=_AUTHOR)
        handover = run.carry_on(handover, HandoverStep.OVERRIDES)
        partitions: tuple[RehearsedPartition, ...] = ()
        if _is_after(handover, HandoverStep.OVERRIDES):
            before = run.read_all()
            handover = run.carry_on(handover, None)
            if handover.state is HandoverState.DONE:
                partitions = run.compared_partitions(before, run.read_all(), broker.remote_dir, configs)
        store, handover_id = app.adapters.stores.handovers, handover.handover_id
        return Rehearsal(
            topic=topic,
            kafka_version=kafka_version,
            samples=tuple(samples),
            handover=handover,
            checks=latest_checks(store, handover),
            overrides=store.overrides(handover_id),
            seed=store.seed(handover_id),
            partitions=partitions,
            broker_errors=tuple(broker.process.errors()),
        )


def settings_of(broker: ThrowAwayBroker, topic: str, *, reads_leaders: bool) -> TieringSettings:
    """Return the settings of the separate app. No settings file, environment variable or home directory is used."""
    values = {
        "cluster.bootstrap_servers": broker.process.bootstrap,
        "topics.include": [topic],
        "remote_storage.url": broker.remote_dir.as_uri(),
        "remote_storage.layout": "local_tiered_storage",
        "metadata.url": f"sqlite:///{broker.platform_dir}/metadata.sqlite",
        # There are no producers, so no disk space is needed for new records.
        "tiering.handover.hold.hours": 0,
        "tiering.handover.local.steps": _LOCAL_STEPS,
    }
    if reads_leaders:
        # Nobody produces during a rehearsal, so there are no new records whose flush would have to be awaited.
        values |= {"leaders.spool_directory": str(broker.platform_dir), "leaders.settle_ms": 0}
    else:
        values["log_dirs"] = [{"broker_id": NODE_ID, "path": str(broker.process.log_dir)}]
    return load_settings(None, values, {}, overrides_origin=_AUTHOR)


class _Run:
    """One handover of the samples, with what consumers read before and after it."""

    def __init__(self, app: App, samples: Sequence[PartitionSample], watcher: Watcher) -> None:
        self._app = app
        self._samples = samples
        self._watcher = watcher
        self._step: HandoverStep | None = None

    def carry_on(self, handover: Handover, until: HandoverStep | None) -> Handover:
        """Continue until the step `until` is done or the handover ends: approve its plan, and repeat a step that waits.

        If a step still waits 180 s after this call began, the handover is returned as it is.
        """
        clock = self._app.adapters.clock
        deadline = clock.monotonic() + _PATIENCE_SECONDS
        while True:
            handover = self._app.handover.carry_on(
                handover.handover_id, until=until, on_step=self._once, on_message=self._watcher.on_message
            )
            if handover.state is not HandoverState.ACTIVE or (until is not None and _is_after(handover, until)):
                return handover
            if handover.step is HandoverStep.APPROVAL and handover.plan_hash is not None and not handover.approval:
                self._app.handover.approve(handover.handover_id, handover.plan_hash, author=_AUTHOR)
            elif clock.monotonic() > deadline:
                return handover
            else:
                clock.sleep(_POLL_SECONDS)

    def read_all(self) -> list[_Read]:
        """Read everything that consumers get of every partition, in the order of the samples."""
        partitions = [sample.replica_id.topic_id_partition for sample in self._samples]
        answer = self._app.adapters.brokers.partition_offsets(partitions)
        with self._watcher.counting("reading", len(Isolation) * size_of(self._samples)) as on_bytes:
            return [
                self._read(sample, answer.of(sample.replica_id.topic_id_partition), on_bytes)
                for sample in self._samples
            ]

    def compared_partitions(
        self, before: Sequence[_Read], after: Sequence[_Read], remote_dir: Path, configs: Mapping[str, str]
    ) -> tuple[RehearsedPartition, ...]:
        return tuple(
            RehearsedPartition(
                sample=sample,
                log_start_offset=is_now.offsets.earliest,
                remote_only_below=is_now.offsets.earliest_local or is_now.offsets.earliest,
                plain=compared(sample, was.plain, is_now.plain, is_now.offsets.earliest),
                committed=compared(sample, was.committed, is_now.committed, is_now.offsets.earliest),
                lost=self._lost(sample, was.offsets.earliest, is_now.offsets.earliest, configs),
                copied_twice=_copied_twice(remote_dir, sample),
            )
            for sample, was, is_now in zip(self._samples, before, after, strict=True)
        )

    def _lost(self, sample: PartitionSample, was: int, is_now: int, configs: Mapping[str, str]) -> tuple[str, ...]:
        kept_from = first_kept(
            sample,
            was,
            retention_ms=int(configs.get("retention.ms", UNLIMITED)),
            retention_bytes=int(configs.get("retention.bytes", UNLIMITED)),
            now_ms=self._app.adapters.clock.now_ms(),
        )
        return lost_between(sample, was, is_now, kept_from)

    def _read(self, sample: PartitionSample, offsets: PartitionOffsets, on_bytes: Callable[[int], None]) -> _Read:
        ends = {Isolation.UNCOMMITTED: offsets.high_watermark, Isolation.COMMITTED: offsets.last_stable_offset}
        plain, committed = (
            self._digests(sample, isolation, offsets.earliest, end, on_bytes) for isolation, end in ends.items()
        )
        records, stable = (sum(digest.records for digest in digests.values()) for digests in (plain, committed))
        self._watcher.on_message(
            f"{sample.replica_id.topic_id_partition}: {records:,} records read, {stable:,} by read_committed"
        )
        return _Read(offsets, plain, committed)

    def _digests(
        self, sample: PartitionSample, isolation: Isolation, start: int, end: int, on_bytes: Callable[[int], None]
    ) -> SegmentDigests:
        if start >= end:
            return {}
        app = self._app
        served = KafkaServedRecords(app.adapters.client_config(), isolation=isolation, clock=app.adapters.clock)
        records = served.read(sample.replica_id.topic_id_partition, start, end - 1)
        return segment_digests(counted(records, sample, on_bytes), bases_of(sample))

    def _once(self, handover: Handover) -> None:
        """Report a step only once, even if it is repeated."""
        if handover.step is not self._step:
            self._step = handover.step
            self._watcher.on_step(handover)


def _is_after(handover: Handover, step: HandoverStep) -> bool:
    return is_before(step, handover.step)


def _copied_twice(remote_dir: Path, sample: PartitionSample) -> tuple[int, ...]:
    partition = sample.replica_id.topic_id_partition
    stored = remote_dir.glob(f"kafka-tiered-storage/{partition}-*/*.log")
    bases = Counter(int(found[1]) for path in stored if (found := _STORED_LOG.fullmatch(path.name)))
    return tuple(sorted(base for base, copies in bases.items() if copies > 1))


RETENTION_CONFIGS: Final = ("retention.ms", "retention.bytes", "local.retention.ms", "local.retention.bytes")
"""The configs that affect a topic's records while there are no producers.

The rehearsed topic gets the values that the deployment's cluster metadata has."""
_LEAST_SEGMENT_BYTES: Final = 1 << 20
"""Kafka 4 takes no smaller segment.bytes of a topic."""
_PREFIX: Final = "tiering-rehearsal-"


def rehearse(
    app: App, topic: str, kafka: KafkaHome, watcher: Watcher, *, max_bytes: int, keep: bool = False
) -> Rehearsal:
    """Hand a sample of the topic over to a broker of the release `kafka`, and compare what consumers read.

    Args:
        app: the deployment, which is only read.
        topic: name of the topic.
        kafka: the Kafka distribution.
        watcher: receives the progress.
        max_bytes: the highest number of bytes of each partition's sample, which has whole segments. The two newest
            are taken even if they have more together.
        keep: whether to keep the temporary directory. The broker is ended in any case.

    Raises:
        SettingError: there are neither log directories nor bootstrap servers, the name is no topic name, or TMPDIR is
            in a log directory.
        UnknownTopicError: there is no such topic.
        RehearsalError: the sample or the throw-away broker could not be prepared.
        SourceError: a log directory cannot be read, or a leader's answers cannot be used.
        BrokersError: the brokers of the deployment or the throw-away broker do not answer, or refuse a request.
    """
    parent = temporary_parent(app)
    reads_leaders = app.log_dirs.reads_leaders
    with _directory(parent, keep=keep) as root:
        if reads_leaders:
            samples, configs, sources = _fetched(app, topic, max_bytes, root / "fetched", watcher)
        else:
            samples, configs = _sampled(app, topic, max_bytes)
            sources = _sources(app, samples)
        size_bytes = size_of(samples)
        require_free_space(size_bytes, shutil.disk_usage(parent).free, parent)
        watcher.on_message(f"{format_bytes(size_bytes)} of {count(len(samples), 'partition')} are copied into {root}")
        with watcher.counting("copying", size_bytes) as on_bytes:
            broker = prepare_broker(
                root,
                kafka,
                samples,
                sources,
                clock=app.adapters.clock,
                random_bytes=secrets.token_bytes,
                on_bytes=on_bytes,
            )
        with broker.running():
            watcher.on_message(f"Kafka {kafka.version} runs at {broker.process.bootstrap}, pid {broker.process.pid}")
            rehearsal = rehearse_on(broker, samples, configs, watcher, kafka.version, reads_leaders=reads_leaders)
        return replace(rehearsal, kept=root) if keep else rehearsal


def _sampled(app: App, topic: str, max_bytes: int) -> tuple[tuple[PartitionSample, ...], dict[str, str]]:
    if not is_legal_topic_name(topic):
        raise SettingError(f"not the name of a topic: {topic!r}")
    cluster = _cluster_metadata(app)
    brokers = app.adapters.brokers if app.adapters.has_brokers else None
    source = LogDirSource(configured_log_dirs(app.settings), cluster, named_topics=[topic], brokers=brokers)
    topic_metadata = cluster.topic_named(topic)
    samples = samples_of(topic, source.scan(topics=[topic]), topic_metadata, max_bytes)
    known: Mapping[str, str] = {} if topic_metadata is None else topic_metadata.configs
    return samples, {key: known[key] for key in RETENTION_CONFIGS if key in known}


def _fetched(
    app: App, topic: str, max_bytes: int, log_dir: Path, watcher: Watcher
) -> tuple[tuple[PartitionSample, ...], dict[str, str], dict[ReplicaId, Path]]:
    """Fetch the newest segments of the topic's logs from the leaders, and write them into the new directory `log_dir`.

    The written files end at other offsets than the segments that the platform will find, as the files of a real broker
    may. So the rehearsal shows what follows from that: the broker continues the copy in the middle of one of its files,
    and serves the platform's segments beside files of its own that end at other offsets.

    Returns:
        Samples of what was written, configs for the topic, and the directory of each sample, which is `log_dir`.

    Raises:
        SettingError: the name is no topic name.
        RehearsalError: a leader does not tell the size of its log, a handover could not copy the topic, or there is
            not enough space.
        UnknownTopicError: there is no such topic.
        SourceError, BrokersError: the leaders cannot be read.
    """
    if not is_legal_topic_name(topic):
        raise SettingError(f"not the name of a topic: {topic!r}")
    brokers, logs = app.adapters.brokers, app.adapters.leader_logs
    known = known_topic(brokers, topic)
    found = leader_logs_of(brokers, known, topic_refusal(topic, known, removed=False, named=True, cleaned=False))
    planned = sum(min(log.log_bytes, max_bytes + 2 * log.roll.segment_bytes) for log in found)
    require_free_space(planned, shutil.disk_usage(log_dir.parent).free, log_dir.parent)
    watcher.on_message(
        f"up to {format_bytes(planned)} of {count(len(found), 'partition')} are fetched into {log_dir.parent}"
    )
    log_dir.mkdir()
    roll = found[0].roll
    segment_bytes = max(roll.segment_bytes, _LEAST_SEGMENT_BYTES)
    files = replace(roll, segment_bytes=segment_bytes * 3 // 4)
    with watcher.counting("fetching", planned) as on_bytes:
        replicas = tuple(write_newest(logs, replace(log, roll=files), log_dir, max_bytes, on_bytes) for log in found)
    samples = samples_of(topic, ScanReport(None, replicas, ()), known, max_bytes)
    configs = {key: known.configs[key] for key in RETENTION_CONFIGS if key in known.configs}
    cuts = {"segment.bytes": str(segment_bytes), "segment.ms": str(roll.segment_ms)}
    return samples, configs | cuts, {sample.replica_id: log_dir for sample in samples}


def _cluster_metadata(app: App) -> ClusterMetadata:
    """Return the cluster metadata without reading the database, which may not be set up yet."""
    cluster_metadata = app.adapters.cluster_metadata
    return UnknownClusterMetadata() if isinstance(cluster_metadata, LostClusterMetadata) else cluster_metadata


def _sources(app: App, samples: Sequence[PartitionSample]) -> dict[ReplicaId, Path]:
    """Return the log directory of each sample.

    Raises:
        SourceVanishedError: the log directory of a sample cannot be identified any more, which the scan still could.
    """
    paths: dict[tuple[int, str], Path] = {}
    for log_dir in configured_log_dirs(app.settings):
        with suppress(SourceError, ClusterMetadataError):
            identity = identify(log_dir)
            paths[identity.broker_id, identity.directory_id] = log_dir.path
    found = {
        sample.replica_id: paths.get((sample.replica_id.broker_id, sample.replica_id.directory_id))
        for sample in samples
    }
    sources = {replica_id: path for replica_id, path in found.items() if path is not None}
    if gone := found.keys() - sources.keys():
        raise SourceVanishedError(str(min(gone, key=str)), "its log directory disappeared while it was read")
    return sources


def temporary_parent(app: App) -> Path:
    """Return the directory for temporary files (TMPDIR). Raises SettingError if it is in a log directory."""
    parent = Path(tempfile.gettempdir()).resolve()
    for log_dir in app.settings.log_dirs:
        if parent.is_relative_to(log_dir.path.resolve()):
            raise SettingError(
                f"TMPDIR is in the log directory {log_dir.path}, where nothing may be written: set another TMPDIR"
            )
    return parent


@contextmanager
def _directory(parent: Path, *, keep: bool) -> Iterator[Path]:
    root = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    try:
        yield root
    finally:
        if not keep or not any(root.iterdir()):
            shutil.rmtree(root)
