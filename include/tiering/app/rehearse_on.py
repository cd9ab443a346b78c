"""The hand-over itself, on a throw-away broker that holds a sample, by a platform that knows nothing else."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from include.tiering.app.app import App, open_app
from include.tiering.broker_process.sample import PartitionSample, bases_of, size_of
from include.tiering.broker_process.throw_away import NODE_ID, ThrowAwayBroker
from include.tiering.handover.checks import UNLIMITED
from include.tiering.handover.contract import Handover, LocalRetention
from include.tiering.handover.rehearsal import (
    Rehearsal,
    RehearsedPartition,
    SegmentDigests,
    compared,
    counted,
    first_kept,
    lost_between,
    segment_digests,
)
from include.tiering.handover.report import latest_checks
from include.tiering.handover.rules import HandoverState, HandoverStep, is_before
from include.tiering.kafka.cluster.contract import PartitionOffsets
from include.tiering.kafka.cluster.kafka_records import Isolation, KafkaServedRecords
from include.tiering.settings import TieringSettings, load_settings

_AUTHOR: Final = "rehearsal"
_ALL_THAT_IS_ROLLED: Final = LocalRetention(local_retention_bytes=1)
"""Nothing that is remote stays on the disk, so everything is read from the store."""
_LOCAL_STEPS: Final = 3
_PATIENCE_SECONDS: Final = 180.0
_POLL_SECONDS: Final = 1.0
_STORED_LOG: Final = re.compile(r"(\d{20})-.{22}\.log")


class Counting(Protocol):
    """Entered with a verb and the bytes that there are, it counts those that are done."""

    def __call__(self, verb: str, planned_bytes: int, /) -> AbstractContextManager[Callable[[int], None]]: ...


@dataclass(frozen=True, slots=True)
class Watcher:
    """Who is told what happens."""

    told: Callable[[str], None]
    on_step: Callable[[Handover], None]
    counting: Counting


@dataclass(frozen=True, slots=True)
class _Read:
    """What consumers got of one partition at one moment."""

    offsets: PartitionOffsets
    plain: SegmentDigests
    committed: SegmentDigests


def rehearse_on(
    broker: ThrowAwayBroker,
    samples: Sequence[PartitionSample],
    configs: Mapping[str, str],
    watcher: Watcher,
    kafka_version: str,
) -> Rehearsal:
    """Every step, approved by itself; consumers read once the retention is held back, and again at the end.

    Args:
        configs: of the topic, as far as they are known.

    Raises:
        BrokersError, RemoteStorageError: the throw-away broker or store does not do what it is asked.
    """
    topic = samples[0].replica_id.topic_id_partition.topic
    with open_app(settings_of(broker, topic)) as app:
        app.set_up.migrate()
        if configs:
            app.adapters.brokers.alter_topic_configs(topic, configs)
        run = _Run(app, samples, watcher)
        handover = app.handover.begin(topic, _ALL_THAT_IS_ROLLED, author=_AUTHOR)
        handover = run.carry_on(handover, HandoverStep.GUARDS)
        partitions: tuple[RehearsedPartition, ...] = ()
        if _is_behind(handover, HandoverStep.GUARDS):
            before = run.read_all()
            handover = run.carry_on(handover, None)
            if handover.state is HandoverState.DONE:
                partitions = run.judged(before, run.read_all(), broker.remote_dir, configs)
        store, handover_id = app.adapters.stores.handovers, handover.handover_id
        return Rehearsal(
            topic=topic,
            kafka_version=kafka_version,
            samples=tuple(samples),
            handover=handover,
            checks=latest_checks(store, handover),
            guards=store.guards(handover_id),
            seed=store.seed(handover_id),
            partitions=partitions,
            broker_errors=tuple(broker.process.errors()),
        )


def settings_of(broker: ThrowAwayBroker, topic: str) -> TieringSettings:
    """Of a platform for that broker alone: nothing comes from a file, from the environment, or from defaults below the
    user's home."""
    values = {
        "cluster.bootstrap_servers": broker.process.bootstrap,
        "topics.include": [topic],
        "log_dirs": [{"broker_id": NODE_ID, "path": str(broker.process.log_dir)}],
        "remote_storage.url": broker.remote_dir.as_uri(),
        "remote_storage.layout": "local_tiered_storage",
        "metadata.url": f"sqlite:///{broker.platform_dir}/metadata.sqlite",
        # Nobody produces.
        "tiering.handover.hold.hours": 0,
        "tiering.handover.local.steps": _LOCAL_STEPS,
    }
    return load_settings(None, values, {}, overrides_origin=_AUTHOR)


class _Run:
    """One hand-over of the samples, and the readings around it."""

    def __init__(self, app: App, samples: Sequence[PartitionSample], watcher: Watcher) -> None:
        self._app = app
        self._samples = samples
        self._watcher = watcher
        self._step: HandoverStep | None = None

    def carry_on(self, handover: Handover, until: HandoverStep | None) -> Handover:
        """Up to `until` (inclusive) or to its end, agreeing to what it asks and waiting for what it waits for."""
        clock = self._app.adapters.clock
        deadline = clock.monotonic() + _PATIENCE_SECONDS
        while True:
            handover = self._app.handover.carry_on(
                handover.handover_id, until=until, on_step=self._once, told=self._watcher.told
            )
            if handover.state is not HandoverState.ACTIVE or (until is not None and _is_behind(handover, until)):
                return handover
            if handover.step is HandoverStep.APPROVAL and handover.plan_hash is not None and not handover.approval:
                self._app.handover.approve(handover.handover_id, handover.plan_hash, author=_AUTHOR)
            elif clock.monotonic() > deadline:
                return handover
            else:
                clock.sleep(_POLL_SECONDS)

    def read_all(self) -> list[_Read]:
        """All that consumers get of every partition, in the order of the samples."""
        partitions = [sample.replica_id.topic_id_partition for sample in self._samples]
        answer = self._app.adapters.brokers.partition_offsets(partitions)
        with self._watcher.counting("reading", len(Isolation) * size_of(self._samples)) as on_bytes:
            return [
                self._read(sample, answer.of(sample.replica_id.topic_id_partition), on_bytes)
                for sample in self._samples
            ]

    def judged(
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
        records, stable = (sum(one.records for one in digests.values()) for digests in (plain, committed))
        self._watcher.told(
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
        """A step that waits is done again, and told once."""
        if handover.step is not self._step:
            self._step = handover.step
            self._watcher.on_step(handover)


def _is_behind(handover: Handover, step: HandoverStep) -> bool:
    return is_before(step, handover.step)


def _copied_twice(remote_dir: Path, sample: PartitionSample) -> tuple[int, ...]:
    partition = sample.replica_id.topic_id_partition
    stored = remote_dir.glob(f"kafka-tiered-storage/{partition}-*/*.log")
    bases = Counter(int(found[1]) for path in stored if (found := _STORED_LOG.fullmatch(path.name)))
    return tuple(sorted(base for base, copies in bases.items() if copies > 1))
