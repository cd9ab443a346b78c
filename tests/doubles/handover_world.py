"""A handover over doubles that act as brokers do, and the services over it."""

import hashlib
import itertools
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

from include.tiering.app import App
from include.tiering.copying.copy_segment import SegmentCopier
from include.tiering.copying.finish_abandoned import AbandonedCopies
from include.tiering.database.engine import open_engine
from include.tiering.database.migrations import upgrade
from include.tiering.formats.remote_log_metadata import decode, encode
from include.tiering.formats.remote_log_metadata_records import (
    EpochEntry,
    PartitionEntry,
    SegmentIdEntry,
    SegmentRecord,
    SegmentUpdateRecord,
)
from include.tiering.handover.checks import StoreProperties
from include.tiering.handover.contract import Handover, LocalRetention, SeededPartition
from include.tiering.handover.drive import archive_handover_again, carry_on, undo_handover
from include.tiering.handover.ports import CopyRound, HandoverLimits, HandoverPorts, StoredDigest
from include.tiering.handover.rules import HandoverStep
from include.tiering.handover.run_checks import gather, seed_rows
from include.tiering.handover.store import SqlHandoverStore
from include.tiering.kafka.log_dirs.contract import BoundsQuality, IneligibleReason, LogSegment, ReplicaId
from include.tiering.kafka.metadata_topic.contract import METADATA_TOPIC, metadata_partition_of
from include.tiering.metadata_sync.publication_contract import Intent
from include.tiering.metadata_sync.sql_publication import SqlPublicationStore
from include.tiering.model.histories import OffsetRange, without
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.ownership import Fence, StoreMarker, TopicOwner
from include.tiering.model.segments import (
    RangeDigest,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
    Verdict,
)
from include.tiering.runs.sql_approval import SqlPlanQuestions
from include.tiering.segments.contract import QualityResult, Verification
from include.tiering.segments.stored_copies import WholeCopy
from include.tiering.settings import TieringSettings
from tests.doubles.deployment import World, copy_world
from tests.doubles.fake_app import put
from tests.doubles.manual_clock import ManualClock
from tests.doubles.memory_metadata_topic import MemoryMetadataTopic
from tests.doubles.model_brokers import BROKER_DEFAULTS, TOPIC_DEFAULTS, ModelBrokers
from tests.doubles.present import present
from tests.doubles.quotas import SameLimiter
from tests.doubles.segments import CLUSTER_ID, whole_replica

# A topic to hand over: brokers that tier as Kafka does, their disks, a real store, a real database, no network.
# world = handover_world(directory) world.carry_on() # up to the approval world.approve(); world.carry_on() # to the
# end Brokers act when they are asked: with remote storage on they know what FINISHED records say, and delete from
# their disks what local retention lets go and they know to be remote.

TOPIC: Final = "orders"
TOPIC_ID: Final = Uuid(b"orders-topic-id!")
AS_IT_WAS: Final = LocalRetention()
HANDOVER_ID: Final = Uuid(b"handover-number1")
EPOCHS: Final = LeaderEpochs.of([(0, 0), (2, 15)])
OLD_RETENTION: Final = {"retention.bytes": "900000", "local.retention.bytes": "5000"}
SEGMENT_BYTES: Final = 1_000
_MANAGER: Final = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"


class ActingBrokers(ModelBrokers):
    """With a look at its topics that is no call."""

    def topics_now(self) -> frozenset[str]:
        return frozenset(self._topics)

    def own_configs(self, topic: str) -> Mapping[str, str]:
        return self._topics[topic].configs


@dataclass
class HandoverWorld:
    """What a test may look at and change. `at`: called with the name of each call that changes something, before it
    takes effect and, with `!`, after it; may raise. `lost`: (partition, start, end) that brokers serve wrongly.
    `too_large`: (partition, start offset) of segments with a batch that is not opened."""

    copying: World
    brokers: ActingBrokers
    metadata_topic: MemoryMetadataTopic
    handovers: SqlHandoverStore
    publications: SqlPublicationStore
    questions: SqlPlanQuestions
    clock: ManualClock
    at: Callable[[str], None] = lambda _: None
    messages: list[str] = field(default_factory=list)
    verdict: Verdict = Verdict.PASSED
    verified: list[RemoteLogSegmentMetadata] = field(default_factory=list)
    lost: set[tuple[int, int]] = field(default_factory=set)
    too_large: set[tuple[int, int]] = field(default_factory=set)
    limits: HandoverLimits = field(default_factory=lambda: HandoverLimits(watch_seconds=30.0, settle_seconds=30.0))
    runs: int = 0
    forgetful: bool = False
    reads_leaders: bool = False
    handover_id: Uuid = HANDOVER_ID

    @property
    def partitions(self) -> list[TopicIdPartition]:
        ids = {one.topic_id_partition for one in self.copying.source.replicas}
        return sorted(ids, key=lambda one: one.partition)

    @property
    def ports(self) -> HandoverPorts:
        return HandoverPorts(
            handovers=_Announced(self.handovers, self._reached, _STORE_CHANGES),
            brokers=_Announced(self.brokers, self._reached, ("alter_topic_configs",)),
            source=self.copying.source,
            metadata=self.copying.metadata,
            registry=_Announced(self.copying.registry, self._reached, ("set_owner",)),
            work=self.copying.work,
            metadata_topic=self.metadata_topic,
            publications=self.publications,
            actions=_Announced(WorldActions(self), self._reached, ("copy_round", "verify", "publish")),
            store=StoreProperties("local_tiered_storage", "/srv/remote", False),
            clock=self.clock,
            new_run_id=self._new_run_id,
            keep_alive=lambda _: nullcontext(),
            limits=self.limits,
        )

    @property
    def handover(self) -> Handover:
        return self.handovers.handover(self.handover_id)

    @property
    def configs(self) -> dict[str, str]:
        """Those that the topic itself has."""
        return {k: present(v.value) for k, v in self.brokers.topic_configs(TOPIC).items() if v.source == "topic"}

    @property
    def owner(self) -> TopicOwner:
        return self.copying.registry.owner(TOPIC_ID)

    def begin(self, wanted: LocalRetention = AS_IT_WAS) -> None:
        self.handovers.begin(self.handover_id, TOPIC_ID, TOPIC, wanted, author="ada")

    def carry_on(self, driver: str = "driver", **how: Any) -> Handover:
        return carry_on(self.ports, self.handover_id, driver, on_message=self.messages.append, **how)

    def approve(self) -> None:
        self.handovers.approve(self.handover_id, present(self.handover.plan_hash), author="grace")

    def up_to(self, step: HandoverStep) -> Handover:
        """Everything before this step is done."""
        self.carry_on()
        self.approve()
        before = list(HandoverStep)[list(HandoverStep).index(step) - 1]
        return self.carry_on(until=before)

    def undo(self) -> Any:
        return undo_handover(self.ports, self.handover_id, "driver", on_message=self.messages.append)

    def archive_again(self) -> Handover:
        return archive_handover_again(self.ports, self.handover_id, "driver", on_message=self.messages.append)

    def evidence(self) -> Any:
        return gather(self.ports, TOPIC, TOPIC_ID, self.handover)

    def roll(self, partition: int, **changes: Any) -> None:
        """Producers filled one more segment."""
        replica_id = ReplicaId(TopicIdPartition(TOPIC_ID, partition, TOPIC), 1, "memory")
        replica = self.copying.source.replicas[replica_id]
        rolled = sum(not one.active for one in replica.segments) + 1
        self.put(partition, rolled, **changes)

    def put(self, partition: int, segments: int, **changes: Any) -> None:
        """So many rolled segments of ten offsets, and an active one with five more."""
        tp = TopicIdPartition(TOPIC_ID, partition, TOPIC)
        replica_id = ReplicaId(tp, 1, "memory")
        bases = range(0, segments * 10, 10)
        rolled = [_segment(base, base + 9, None) for base in bases]
        end = segments * 10 + 5
        self.copying.source.replicas[replica_id] = whole_replica(
            replica_id,
            (*rolled, _segment(segments * 10, end - 1, IneligibleReason.ACTIVE)),
            end,
            leader_epochs=EPOCHS,
            bounds=BoundsQuality.EXACT,
            leader_epoch=2,
        )
        if changes:
            self.copying.source.change(replica_id, **changes)
        model = self.brokers.partition(TOPIC_ID, partition)
        model.high_watermark, model.leader_epoch = end, 2
        self._tell_size(replica_id)

    def _tell_size(self, replica_id: ReplicaId) -> None:
        """What the leader says of its log; over the network the source says it as well."""
        replica = self.copying.source.replicas[replica_id]
        model = self.brokers.partition(TOPIC_ID, replica_id.topic_id_partition.partition)
        model.log_bytes = sum(one.size_bytes for one in replica.segments)
        if self.reads_leaders:
            known = {"found_to": replica.high_watermark, "log_bytes": model.log_bytes, "segment_bytes": SEGMENT_BYTES}
            self.copying.source.change(replica_id, **known)

    def switch_by_hand(self) -> None:
        self.brokers.alter_topic_configs(TOPIC, {"remote.storage.enable": "true"})

    def act(self, _call: str) -> None:
        """What brokers do by themselves."""
        if TOPIC not in self.brokers.topics_now():
            return
        configs = {**TOPIC_DEFAULTS, **self.brokers.own_configs(TOPIC)}
        if configs["remote.storage.enable"] != "true" or self.forgetful:
            return
        for partition in self.partitions:
            model = self.brokers.partition(TOPIC_ID, partition.partition)
            model.latest_tiered = self._finished_end(partition)
            limit = int(configs["local.retention.bytes"])
            if limit >= 0 and model.latest_tiered is not None:
                self._delete_local(partition, model, limit)

    def _delete_local(self, partition: TopicIdPartition, model: Any, limit: int) -> None:
        replica_id = ReplicaId(partition, 1, "memory")
        replica = self.copying.source.replicas[replica_id]
        segments = list(replica.segments)
        excess = sum(one.size_bytes for one in segments) - limit
        while not segments[0].active and excess >= segments[0].size_bytes:
            if segments[0].end_offset > model.latest_tiered:
                break
            excess -= segments.pop(0).size_bytes
        model.earliest_local = segments[0].base_offset
        self.copying.source.change(replica_id, segments=tuple(segments))
        self._tell_size(replica_id)

    def _finished_end(self, partition: TopicIdPartition) -> int | None:
        ends: dict[Uuid, int] = {}
        finished = set()
        number = metadata_partition_of(partition, self.metadata_topic.partitions)
        bounds = self.metadata_topic.offsets(number)
        for record in self.metadata_topic.read(number, bounds.begin, end_offset=bounds.end):
            decoded = _decoded(record.value)
            assert isinstance(decoded, SegmentRecord | SegmentUpdateRecord)
            if decoded.segment_id.partition.partition != partition.partition:
                continue
            if isinstance(decoded, SegmentRecord):
                ends[decoded.segment_id.id] = decoded.end_offset
            elif decoded.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
                finished.add(decoded.segment_id.id)
        return max((ends[one] for one in finished), default=None)

    def _reached(self, name: str) -> None:
        self.at(name)

    def _new_run_id(self) -> str:
        self.runs += 1
        return f"handover-run-{self.runs}"


class WorldActions:
    """`PlatformActions` in one process; publishing keeps the journal as the publisher does."""

    def __init__(self, world: HandoverWorld) -> None:
        self._world = world

    def copy_round(self, topic: str, run_id: str) -> CopyRound:
        plan = self._world.copying.planned(run_id)
        self._world.copying.work.save_plan(run_id, plan.partitions)
        result = self._world.copying.batch(run_id, f"{run_id}/0")
        failed = tuple(f"{one.item.topic_id_partition}: {one.item.message}" for one in result.failed)
        held = tuple(f"{one.topic_id_partition}: {one.reason}" for one in plan.held_back)
        return CopyRound(len(result.copied), failed, held, all(one.retriable for one in result.failed))

    def verify(self, segments: Mapping[TopicIdPartition, frozenset[RemoteLogSegmentId]]) -> None:
        metadata = self._world.copying.metadata
        for one in sorted((one for ids in segments.values() for one in ids), key=str):
            is_wrong = self._world.verdict is Verdict.FAILED
            broken = (QualityResult(one, "Q102", "critical", False, "as the test wants"),) if is_wrong else ()
            row = present(metadata.segment(one))
            metadata.record_verification(Verification(one, broken, before=row, is_deep=self._world.limits.verify_deep))
            self._world.verified.append(row.metadata)

    def abandon_empty_copies(self, fence: Fence) -> None:
        copying = self._world.copying
        copier = SegmentCopier(
            copying.source, copying.storage, copying.metadata, copying.registry, self._world.clock, bytes, _nothing
        )
        whole = WholeCopy(copying.storage, SameLimiter(copying.limiter))
        AbandonedCopies(copier, whole, lambda: None).abandon_empty(fence)

    def publish(self, seeded: SeededPartition) -> None:
        world, partition = self._world, seeded.topic_id_partition
        rows = seed_rows(world.copying.metadata, partition, seeded.log_start_offset)
        segments = [row.metadata.remote_log_segment_id for row in rows if row.metadata.end_offset <= seeded.end_offset]
        lease = world.publications.claim(partition, run_id="publish", batch_id="publish", lease_ms=30_000)
        assert lease is not None
        number = metadata_partition_of(partition, world.metadata_topic.partitions)
        journal = world.publications.begin(
            lease.fence, metadata_partition=number, partition_count=world.metadata_topic.partitions, next_offset=0
        )
        wanted = [(one, state) for one in segments for state in (_STARTED, _FINISHED)]
        for sequence, (segment_id, state) in enumerate(wanted):
            if sequence < len(journal.records) and journal.records[sequence].offset is not None:
                continue
            row = world.copying.metadata.segment(segment_id)
            assert row is not None
            world.at("published record")
            value = _value(row.metadata, state)
            intent = Intent(segment_id.id, state, row.metadata.start_offset, row.metadata.end_offset, value)
            world.publications.intend(lease.fence, sequence, intent)
            offset = world.metadata_topic.append(number, value)
            world.publications.advance(lease.fence, offset + 1, found=offset)
        world.copying.work.release(lease)

    def stored_digest(self, partition: TopicIdPartition, start_offset: int, end_offset: int) -> StoredDigest:
        large = OffsetRange(start_offset + 3, start_offset + 4)
        not_opened = (large,) if (partition.partition, start_offset) in self._world.too_large else ()
        return StoredDigest(_digest(partition, start_offset, end_offset, not_opened), not_opened)

    def served_digest(
        self, partition: TopicIdPartition, start_offset: int, end_offset: int, leave_out: Sequence[OffsetRange] = ()
    ) -> RangeDigest:
        digest = _digest(partition, start_offset, end_offset, leave_out)
        if any(partition.partition == where and start_offset <= at <= end_offset for where, at in self._world.lost):
            return replace(digest, records=digest.records - 1, sha256="another")
        return digest

    def free_bytes(self, broker_id: int) -> int | None:
        return 10**12


@contextmanager
def handover_world(
    directory: Path, *, partitions: int = 2, segments: int = 3, reads_leaders: bool = False
) -> Iterator[HandoverWorld]:
    """The topic has a limited retention.bytes and local.retention.bytes of its own."""
    (directory / "metadata.sqlite").write_bytes(_migrated())
    with copy_world(directory) as copying:
        engine = copying.engine
        defaults = {
            **BROKER_DEFAULTS,
            "remote.log.storage.manager.class.name": _MANAGER,
            "rsm.config.dir": "/srv/remote",
        }
        brokers = ActingBrokers(CLUSTER_ID, broker_defaults=defaults)
        brokers.create_topic(TOPIC, partitions=partitions, topic_id=TOPIC_ID, configs=OLD_RETENTION)
        brokers.create_topic(METADATA_TOPIC, partitions=3, configs={"retention.ms": "-1"})
        clock = ManualClock()
        world = HandoverWorld(
            copying,
            brokers,
            MemoryMetadataTopic(partitions=3),
            SqlHandoverStore(engine, CLUSTER_ID),
            SqlPublicationStore(engine, CLUSTER_ID),
            SqlPlanQuestions(engine, CLUSTER_ID),
            clock,
            reads_leaders=reads_leaders,
        )
        brokers.after_call = world.act
        for partition in range(partitions):
            world.put(partition, segments)
        yield world


_decoded: Final = cache(decode)
"""Brokers look at every record at every call."""


@cache
def _migrated() -> bytes:
    """A new database: made once, as that takes longer than most tests."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "new.sqlite"
        engine = open_engine(f"sqlite:///{file}")
        upgrade(engine)
        engine.dispose()
        return file.read_bytes()


class _Announced:
    """Says each of these calls before and after it."""

    def __init__(self, wrapped: Any, reached: Callable[[str], None], names: Sequence[str]) -> None:
        self._wrapped, self._reached, self._names = wrapped, reached, names

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._wrapped, name)
        if name not in self._names:
            return found

        def announced(*args: Any, **kwargs: Any) -> Any:
            self._reached(name)
            result = found(*args, **kwargs)
            self._reached(f"{name}!")
            return result

        return announced


_STORE_CHANGES: Final = (
    "advance",
    "set_state",
    "save_overrides",
    "overrides_restored",
    "save_seed",
    "note_compared",
    "claim",
    "propose",
)
_STARTED: Final = RemoteLogSegmentState.COPY_SEGMENT_STARTED
_FINISHED: Final = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


def _nothing(*_: object) -> None:
    """Nobody watches."""


def _segment(base: int, end: int, reason: IneligibleReason | None) -> LogSegment:
    epochs = EPOCHS.range(base, end + 1)
    return LogSegment(base, end, SEGMENT_BYTES, 1_600_000_000_000 + base, epochs, reason is not None, reason)


def _digest(
    partition: TopicIdPartition, start_offset: int, end_offset: int, leave_out: Sequence[OffsetRange]
) -> RangeDigest:
    read = without(OffsetRange(start_offset, end_offset), leave_out)
    text = f"{partition}:{','.join(map(str, read))}"
    return RangeDigest(sum(one.size for one in read), hashlib.sha256(text.encode()).hexdigest())


def _value(metadata: RemoteLogSegmentMetadata, state: RemoteLogSegmentState) -> bytes:
    tp = metadata.topic_id_partition
    entry = SegmentIdEntry(PartitionEntry(tp.topic, tp.topic_id, tp.partition), metadata.remote_log_segment_id.id)
    if state is _FINISHED:
        return encode(SegmentUpdateRecord(entry, metadata.broker_id, metadata.event_timestamp_ms, None, state))
    return encode(
        SegmentRecord(
            segment_id=entry,
            start_offset=metadata.start_offset,
            end_offset=metadata.end_offset,
            broker_id=metadata.broker_id,
            max_timestamp_ms=metadata.max_timestamp_ms,
            event_timestamp_ms=metadata.event_timestamp_ms,
            epochs=tuple(EpochEntry(one.epoch, one.start_offset) for one in metadata.segment_leader_epochs),
            size_bytes=metadata.segment_size_bytes,
            custom_metadata=None,
            state=_STARTED,
        )
    )


# The services of handovers over a `HandoverWorld`: for tests of what stands in front of them.


class WorldApp(App):
    """As much of an `App` as handovers need. It has no store: what is copied there is the world's."""

    def __init__(self, world: HandoverWorld) -> None:
        numbers = itertools.count(1)
        super().__init__(TieringSettings(), clock=world.clock, random_bytes=lambda size: bytes([next(numbers)]) * size)
        put(
            self,
            engine=cast(Any, None),
            cluster_id="cluster",
            handovers=world.handovers,
            handover_ports=world.ports,
            brokers=world.brokers,
            plan_questions=world.questions,
        )
        marker = StoreMarker("cluster", "store", 1)
        self.__dict__["ownership"] = SimpleNamespace(
            claim=lambda: marker, require=lambda: None, claim_if_possible=lambda: None
        )

    @contextmanager
    def opened(self, *_: Any) -> Iterator["WorldApp"]:
        """In the place of whatever opens the library."""
        yield self
