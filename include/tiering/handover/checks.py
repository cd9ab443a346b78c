"""Named checks of a handover: the values that they evaluate, the form of a check, and its results.

The values come from brokers, log directories, the platform's database, the brokers' metadata topic and settings;
`run_checks.py` gathers them. A check is a pure function of these values; each of its results is about the topic or
about one of its partitions.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from include.tiering.handover.rules import HandoverStep, RetentionOrder
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.segments import RemoteLogSegmentMetadata, Uuid, Verdict

UNLIMITED = -1


@dataclass(frozen=True, slots=True)
class BrokerCapabilities:
    """One broker as it describes itself. None: the broker does not show the value.

    `lists_remote_offsets`: the broker reports earliest local and latest tiered offsets. `counts_once`: its release has
    the fix of KAFKA-20732, so that it never counts local and remote copies of the same bytes both.
    """

    broker_id: int
    remote_storage_system: bool
    storage_manager_class: str | None
    storage_directory: str | None
    lists_remote_offsets: bool
    counts_once: bool = False


@dataclass(frozen=True, slots=True)
class LeaderOffsets:
    """Offsets of one partition as its leader reports them.

    `latest_tiered` is inclusive; None if nothing is tiered, or the broker is too old to report it. `last_stable_offset`
    and `high_watermark` are exclusive.
    """

    leader: int
    leader_epoch: int
    in_sync_replicas: int
    earliest: int
    latest_tiered: int | None
    last_stable_offset: int
    high_watermark: int


@dataclass(frozen=True, slots=True)
class LeaderReplica:
    """The partition's replica that was read: the leader's, unless the leadership is moving.

    `broker_id` is the broker of the replica. `leader_epochs` are those of the leader's checkpoint or, of a replica that
    was read from the leader over the network, its answers to OffsetForLeaderEpoch. `active_base` is the first offset of
    the active segment. Everything below `recovery_point` (exclusive) was flushed. `waiting` has the rolled segments
    that the platform has not copied, each with its first offset and the reason why it cannot be copied now (None if it
    can). `bytes_per_second` is the rate at which producers append. `local_bytes` are on the leader's disk now,
    `active_bytes` of them in the active segment; `kept_bytes` remain there at the end of the handover, if everything
    that is rolled now is remote by then. `earliest_local` is the first offset that is on the disk.

    Only a replica that was read over the network has `leader_epoch`, in which the leader answered, and `found_to`, up
    to which (exclusive) its log was cut into segments. Where its own segments begin and end is not known: everything
    above the last cut counts as the active segment, and `kept_bytes` is an estimate. `local_bytes` is then what the
    leader tells, None if it does not, and `bytes_per_second` is None while too little is cut. `segment_bytes` is the
    topic's segment.bytes, None if unknown.
    """

    broker_id: int
    leader_epochs: LeaderEpochs
    active_base: int
    recovery_point: int
    waiting: tuple[tuple[int, str | None], ...] = ()
    bytes_per_second: float | None = 0.0
    local_bytes: int | None = 0
    active_bytes: int = 0
    kept_bytes: int = 0
    earliest_local: int = 0
    leader_epoch: int | None = None
    found_to: int | None = None
    segment_bytes: int | None = None

    @property
    def is_fetched(self) -> bool:
        """Whether the replica was read from the leader over the network, and not from its log directory."""
        return self.found_to is not None

    @property
    def may_have_rolled(self) -> bool:
        """Whether the log has more bytes above the last cut than a segment may have: then the broker has rolled one."""
        return self.is_fetched and self.segment_bytes is not None and self.active_bytes > self.segment_bytes


@dataclass(frozen=True, slots=True)
class SeededSegment:
    """A FINISHED segment that is to be handed over.

    `broken` are the rules that a FAILED segment broke, with messages; if none are stored, the detail of its verdict.
    `passed_deep`: the segment passed a verification that read every byte, and failed none since.
    """

    metadata: RemoteLogSegmentMetadata
    verdict: Verdict
    broken: tuple[str, ...] = ()
    passed_deep: bool = False


@dataclass(frozen=True, slots=True)
class PublishedSegment:
    """One segment of the topic in the metadata topic. `is_ours`: the platform wrote the segment's records there."""

    partition: int
    segment_id: Uuid
    start_offset: int
    end_offset: int
    is_ours: bool
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class MetadataTopicState:
    """`__remote_log_metadata` on this cluster.

    `unreadable`: position and reason of at most ten records, in metadata partitions of the topic that is handed over,
    at which brokers stop reading. `published`: segments of that topic, from all writers, that are not deleted.
    `removed`: segments of that topic that another writer published and deleted again. After the deletion brokers keep
    the highest offset that they read from the records of these segments.
    """

    configs: Mapping[str, str]
    unreadable: tuple[str, ...] = ()
    published: tuple[PublishedSegment, ...] = ()
    removed: tuple[PublishedSegment, ...] = ()


@dataclass(frozen=True, slots=True)
class BrokerDiskSpace:
    """Free bytes in the fullest log directory of one broker.

    They are `tiering.handover.free.bytes` if that is set. Otherwise they are read on this host, without directories
    that cannot be read, or a broker without an entry in `log_dirs` is asked. None if they are not known. `problem` is
    what such a broker answered instead, and `is_forbidden` says that the user lacks the right.
    """

    broker_id: int
    free_bytes: int | None
    problem: str = ""
    is_forbidden: bool = False


@dataclass(frozen=True, slots=True)
class StoreProperties:
    """The platform's store.

    `directory` is the path of a `file://` store, None for every other store. `wants_custom_metadata`: the brokers'
    plugin for this layout expects custom metadata with every segment.
    """

    layout: str
    directory: str | None
    wants_custom_metadata: bool


@dataclass(frozen=True, slots=True)
class HandoverPartition:
    """The evidence about one partition.

    If the leader reports no offsets, `offsets` and `replica` are None and `seed` is empty. `replica` is also None if no
    readable log directory has it. `problem` says why, if that is known. `histories` is a sentence in two cases: a log
    divergence is undecided; or the platform archived offsets of a history that the source has left since, and the
    broker's log still has these offsets. Otherwise it is empty.
    """

    partition: int
    offsets: LeaderOffsets | None
    replica: LeaderReplica | None
    seed: tuple[SeededSegment, ...]
    problem: str = ""
    histories: str = ""

    @property
    def seed_end(self) -> int | None:
        """Highest seeded offset, inclusive; None if nothing is seeded."""
        return max((segment.metadata.end_offset for segment in self.seed), default=None)


@dataclass(frozen=True, slots=True)
class FrozenPartition:
    """The decided offsets of one partition, and the broker's log start, leader and leader epoch at that time.

    A resume at the step `watch` replaces the log start.
    """

    partition: int
    start_offset: int
    end_offset: int
    log_start_offset: int
    leader: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class HandoverEvidence:
    """All values that the checks evaluate, gathered one after another.

    `topic_id_now` is None if the brokers have no such topic. `configs` are the topic's configs in force, including
    defaults. `old_configs` are those that will be in force when the handover has set its retention overrides back to
    the old values. `leases` are sentences about batches of other runs that still have a lease to copy or delete.
    `frozen` are the decided offsets by partition; it is empty before the first quality check that passed.
    `hold_seconds`: the free space on the disks must suffice for the records that producers append in this time.
    `count_once`: a person declared that every broker has the fix of KAFKA-20732. `retention_order`: that of the
    handover; that of a new one if there is none.
    `local_target_ms`, `local_target_bytes`: local.retention.ms and .bytes at the end of the handover; negative if
    neither the handover nor the old configs set a limit. `silent_brokers` have a replica of the topic, and do not
    describe themselves. `followers` has, by partition and broker, the bytes of the replicas that do not lead, None if
    they are not known; it is empty at other steps than local-retention.
    """

    topic: str
    topic_id: Uuid
    topic_id_now: Uuid | None
    owner: TopicOwner
    brokers: tuple[BrokerCapabilities, ...]
    configs: Mapping[str, str]
    old_configs: Mapping[str, str]
    partitions: tuple[HandoverPartition, ...]
    metadata_topic: MetadataTopicState | None
    store: StoreProperties
    disks: tuple[BrokerDiskSpace, ...] = ()
    leases: tuple[str, ...] = ()
    frozen: Mapping[int, FrozenPartition] = field(default_factory=dict)
    now_ms: int = 0
    hold_seconds: int = 0
    local_target_ms: int = UNLIMITED
    local_target_bytes: int = UNLIMITED
    count_once: bool = False
    retention_order: RetentionOrder = RetentionOrder.LOCAL_FIRST
    silent_brokers: frozenset[int] = frozenset()
    followers: Mapping[int, Mapping[int, int | None]] = field(default_factory=dict)

    @property
    def brokers_count_once(self) -> bool:
        """Whether every broker is known to count bytes that are both local and remote once, also after its start.

        It is not known while a broker that has a replica is away: it may come back with an older release.
        """
        are_known = bool(self.brokers) and not self.silent_brokers
        return self.count_once or (are_known and all(broker.counts_once for broker in self.brokers))

    def limit(self, key: str, configs: Mapping[str, str] | None = None) -> int:
        """Return a numeric config of the topic, from `configs` if given; -1 if it is absent or not a number."""
        value = (self.configs if configs is None else configs).get(key, "")
        return int(value) if value.lstrip("-").isdigit() else UNLIMITED

    def is_true(self, key: str) -> bool:
        return self.configs.get(key, "false").lower() == "true"


class CheckOutcome(StrEnum):
    """REFUSED stops the handover; WAITING may pass without intervention; NOTE informs a person and stops nothing."""

    PASSED = "passed"
    NOTE = "note"
    WAITING = "waiting"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one named check, about the topic or about one of its partitions.

    `numbers`: what was found and what was expected; for PASSED, the check's promise. `what_to_do` may be empty.
    """

    name: str
    partition: int | None
    outcome: CheckOutcome
    numbers: str = ""
    what_to_do: str = ""


@dataclass(frozen=True, slots=True)
class Remark:
    """A deviation from the promise of a check. It becomes a `CheckResult` with the check's name."""

    numbers: str
    what_to_do: str = ""
    partition: int | None = None
    outcome: CheckOutcome = CheckOutcome.REFUSED


CheckFunction = Callable[[HandoverEvidence], Iterator[Remark]]


@dataclass(frozen=True, slots=True)
class NamedCheck:
    """A check. `promise`: what holds if it passes without a note. `evaluate` yields the deviations from the promise.

    `steps`: the steps at which the check is evaluated.
    """

    name: str
    promise: str
    evaluate: CheckFunction
    steps: frozenset[HandoverStep]


def results_of(checks: Iterable[NamedCheck], step: HandoverStep, evidence: HandoverEvidence) -> tuple[CheckResult, ...]:
    """Return the results of all checks of this step, in the order of `checks`.

    A check without a remark, or with notes only, has passed; its notes are results as well.
    """
    return tuple(result for check in checks if step in check.steps for result in _results(check, evidence))


def worst(results: Iterable[CheckResult]) -> CheckOutcome:
    """Return the worst outcome: REFUSED is worse than WAITING, then NOTE, then PASSED. Without results: PASSED."""
    order = list(CheckOutcome)
    return max((result.outcome for result in results), key=order.index, default=CheckOutcome.PASSED)


def _results(check: NamedCheck, evidence: HandoverEvidence) -> Iterator[CheckResult]:
    remarks = list(check.evaluate(evidence))
    if all(remark.outcome is CheckOutcome.NOTE for remark in remarks):
        yield CheckResult(check.name, None, CheckOutcome.PASSED, check.promise)
    for remark in remarks:
        yield CheckResult(check.name, remark.partition, remark.outcome, remark.numbers, remark.what_to_do)
