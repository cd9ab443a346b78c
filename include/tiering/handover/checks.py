"""Named checks of a handover: the values that they evaluate, the form of a check, and its results.

The values come from brokers, the leader's disk, the stored segment metadata and the brokers' metadata topic;
`run_checks.py` gathers them. A check is a pure function of them, about a topic or about one of its partitions.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from include.tiering.handover.rules import HandoverStep
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.segments import RemoteLogSegmentMetadata, Uuid, Verdict

UNLIMITED = -1


@dataclass(frozen=True, slots=True)
class BrokerCapabilities:
    """One broker as it describes itself. None: it does not show the value.

    `lists_remote_offsets`: it reports its earliest local and its latest tiered offset.
    """

    broker_id: int
    remote_storage_system: bool
    storage_manager_class: str | None
    storage_directory: str | None
    lists_remote_offsets: bool


@dataclass(frozen=True, slots=True)
class LeaderOffsets:
    """Offsets of one partition as its leader reports them.

    `latest_tiered` is inclusive, None if nothing is tiered. `last_stable_offset` and `high_watermark` are exclusive.
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
    """The leader's replica as read from its disk. `active_base` is the first offset of the active segment.

    `recovery_point` (exclusive): everything below it was flushed. `waiting`: rolled segments that are not remote yet,
    each with its first offset and the reason why it cannot be copied now; None if it can. `bytes_per_second`: the rate
    at which producers append to it.
    """

    broker_id: int
    leader_epochs: LeaderEpochs
    active_base: int
    recovery_point: int
    waiting: tuple[tuple[int, str | None], ...] = ()
    bytes_per_second: float = 0.0


@dataclass(frozen=True, slots=True)
class SeededSegment:
    """A FINISHED segment that is to be handed over. `broken` are the rules that it failed, with their messages.

    `passed_deep`: a verification that read every byte passed it, and none failed it since.
    """

    metadata: RemoteLogSegmentMetadata
    verdict: Verdict
    broken: tuple[str, ...] = ()
    passed_deep: bool = False


@dataclass(frozen=True, slots=True)
class PublishedSegment:
    """One segment of the topic in the metadata topic. `is_ours`: the platform wrote its records."""

    partition: int
    segment_id: Uuid
    start_offset: int
    end_offset: int
    is_ours: bool


@dataclass(frozen=True, slots=True)
class MetadataTopicState:
    """`__remote_log_metadata` on this cluster.

    `unreadable`: position and reason of each record at which brokers stop reading. `published`: segments of the topic
    that is handed over, from all writers. `removed`: segments of it that another writer published and deleted again;
    brokers do not lower the offsets that they read from them.
    """

    configs: Mapping[str, str]
    unreadable: tuple[str, ...] = ()
    published: tuple[PublishedSegment, ...] = ()
    removed: tuple[PublishedSegment, ...] = ()


@dataclass(frozen=True, slots=True)
class BrokerDiskSpace:
    """Free bytes in the log directories of one broker; None if they cannot be read from here."""

    broker_id: int
    free_bytes: int | None


@dataclass(frozen=True, slots=True)
class StoreProperties:
    """The platform's store.

    `directory` is set for a `file://` store. `wants_custom_metadata`: the brokers' plugin for this layout expects
    custom metadata with every segment.
    """

    layout: str
    directory: str | None
    wants_custom_metadata: bool


@dataclass(frozen=True, slots=True)
class HandoverPartition:
    """The evidence about one partition.

    `offsets` is None if no broker reports them, `replica` if no readable log directory has it; `problem` says why.
    `histories` says which archived offsets in the broker's log belong to another history than the source's; empty if
    there are none.
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
    """The decided offsets of one partition, and the broker's log start, leader and leader epoch at that time."""

    partition: int
    start_offset: int
    end_offset: int
    log_start_offset: int
    leader: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class HandoverEvidence:
    """All values that the checks evaluate, at one moment. `topic_id_now` is None if the brokers have no such topic.

    `configs` are the topic's configs in force, including defaults; `old_configs` those that are in force at the end.
    `leases` are sentences about batches that still copy or delete. `frozen` is what was stored by the step `fence`,
    empty before it. `hold_seconds`: for how long the disks must have space for what producers append.
    `local_target_bytes`: local.retention.bytes at the end, -1 if the topic has no limit of its own.
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
    local_target_bytes: int = UNLIMITED

    def limit(self, key: str, configs: Mapping[str, str] | None = None) -> int:
        """Return a numeric config of the topic; -1 where it is absent or no number."""
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

    `numbers`: what was found and what was expected. `what_to_do` is empty where no action is needed.
    """

    name: str
    partition: int | None
    outcome: CheckOutcome
    numbers: str = ""
    what_to_do: str = ""


@dataclass(frozen=True, slots=True)
class Remark:
    """A deviation from what a check promises; it becomes a result under the check's name."""

    numbers: str
    what_to_do: str = ""
    partition: int | None = None
    outcome: CheckOutcome = CheckOutcome.REFUSED


CheckFunction = Callable[[HandoverEvidence], Iterator[Remark]]


@dataclass(frozen=True, slots=True)
class NamedCheck:
    """A check. `promise`: what holds if it passes. `evaluate` yields the deviations. `steps`: when it is evaluated."""

    name: str
    promise: str
    evaluate: CheckFunction
    steps: frozenset[HandoverStep]


def results_of(checks: Iterable[NamedCheck], step: HandoverStep, evidence: HandoverEvidence) -> tuple[CheckResult, ...]:
    """Return the results of all checks of this step, in their order; a check without a remark has passed."""
    return tuple(result for check in checks if step in check.steps for result in _results(check, evidence))


def worst(results: Iterable[CheckResult]) -> CheckOutcome:
    """Return the worst outcome: REFUSED before WAITING before NOTE before PASSED."""
    order = list(CheckOutcome)
    return max((result.outcome for result in results), key=order.index, default=CheckOutcome.PASSED)


def _results(check: NamedCheck, evidence: HandoverEvidence) -> Iterator[CheckResult]:
    remarks = list(check.evaluate(evidence))
    if all(remark.outcome is CheckOutcome.NOTE for remark in remarks):
        yield CheckResult(check.name, None, CheckOutcome.PASSED, check.promise)
    for remark in remarks:
        yield CheckResult(check.name, remark.partition, remark.outcome, remark.numbers, remark.what_to_do)
