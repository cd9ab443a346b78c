"""Named checks of a handover: what they evaluate, as plain values, and what one is and says.

The values are what brokers say, what the leader's disk shows, what is remote and what was published. `run_checks.py`
gathers them. A check is a pure function over them, of a topic or of one of its partitions.
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
    """One broker as it describes itself. None: it does not say.

    `lists_remote_offsets`: it can be asked for its earliest local and its latest tiered offset.
    """

    broker_id: int
    remote_storage_system: bool
    storage_manager_class: str | None
    storage_directory: str | None
    lists_remote_offsets: bool


@dataclass(frozen=True, slots=True)
class LeaderOffsets:
    """What the leader says of one partition. `latest_tiered` is inclusive, None if nothing is; the other two ends are
    exclusive.
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
    """The leader's replica as its disk shows it. `active_base` is the first offset of the active segment.

    `recovery_point`: below it everything was flushed. `waiting`: rolled segments that are not remote yet, each with its
    first offset and why it cannot be copied now; None: it can. `bytes_per_second`: at which producers fill it.
    """

    broker_id: int
    leader_epochs: LeaderEpochs
    active_base: int
    recovery_point: int
    waiting: tuple[tuple[int, str | None], ...] = ()
    bytes_per_second: float = 0.0


@dataclass(frozen=True, slots=True)
class SeededSegment:
    """A FINISHED segment that is to be handed over. `broken` are the rules that it failed, as the gate named them.

    `passed_deep`: a verification that read every byte passed it, and none failed it since.
    """

    metadata: RemoteLogSegmentMetadata
    verdict: Verdict
    broken: tuple[str, ...] = ()
    passed_deep: bool = False


@dataclass(frozen=True, slots=True)
class PublishedSegment:
    """What the metadata topic holds of one segment of the topic. `is_ours`: we wrote it."""

    partition: int
    segment_id: Uuid
    start_offset: int
    end_offset: int
    is_ours: bool


@dataclass(frozen=True, slots=True)
class MetadataTopicState:
    """`__remote_log_metadata` on this cluster. `unreadable`: position and reason of each record that brokers stop at.

    `published`: what it holds of the topic that is handed over, whoever wrote it. `removed`: what somebody else wrote
    of it and deleted again; brokers keep its offsets.
    """

    configs: Mapping[str, str]
    unreadable: tuple[str, ...] = ()
    published: tuple[PublishedSegment, ...] = ()
    removed: tuple[PublishedSegment, ...] = ()


@dataclass(frozen=True, slots=True)
class BrokerDiskSpace:
    """Room in the log directories of one broker; None: nobody here can see it."""

    broker_id: int
    free_bytes: int | None


@dataclass(frozen=True, slots=True)
class StoreProperties:
    """Our own store: its layout, the directory of a `file://` one, and what that layout's plugin expects as custom
    metadata of every segment.
    """

    layout: str
    directory: str | None
    wants_custom_metadata: bool


@dataclass(frozen=True, slots=True)
class HandoverPartition:
    """All about one partition. None: the brokers, or the log directories, do not answer for it; `problem` says why.

    `histories` says what is archived of other histories than the source's, and empty if nothing is that matters.
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
        return max((one.metadata.end_offset for one in self.seed), default=None)


@dataclass(frozen=True, slots=True)
class FrozenPartition:
    """What was decided to be handed over of one partition, and the broker's log start, leader and leader epoch then."""

    partition: int
    start_offset: int
    end_offset: int
    log_start_offset: int
    leader: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class HandoverEvidence:
    """Everything, at one moment. `topic_id_now` is None if the brokers know no topic of this name.

    `configs` are the topic's in force, whoever set them; `old_configs` those that are restored at the end. `leases` are
    sentences about who still copies or deletes. `frozen` is what was stored when the leases were fenced off, empty
    before. `hold_seconds`: for how long the disks must be able to take what producers bring. `local_target_bytes`: what
    local.retention.bytes is at the end, -1 for no limit of its own.
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
        """A numeric config of the topic; -1 where it is absent or no number."""
        value = (self.configs if configs is None else configs).get(key, "")
        return int(value) if value.lstrip("-").isdigit() else UNLIMITED

    def is_true(self, key: str) -> bool:
        return self.configs.get(key, "false").lower() == "true"


class CheckOutcome(StrEnum):
    """REFUSED stops the handover; WAITING may pass by itself; NOTE is for a person and stops nothing."""

    PASSED = "passed"
    NOTE = "note"
    WAITING = "waiting"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What one named check said of the topic, or of one of its partitions.

    `numbers`: what was found and what was expected. `what_to_do` is empty where nothing is to be done.
    """

    name: str
    partition: int | None
    outcome: CheckOutcome
    numbers: str = ""
    what_to_do: str = ""


@dataclass(frozen=True, slots=True)
class Remark:
    """What a check found that is not as it promises; it becomes a result under the check's name."""

    numbers: str
    what_to_do: str = ""
    partition: int | None = None
    outcome: CheckOutcome = CheckOutcome.REFUSED


CheckFunction = Callable[[HandoverEvidence], Iterator[Remark]]


@dataclass(frozen=True, slots=True)
class NamedCheck:
    """`promise`: what holds if it passes. `evaluate` yields nothing then. `steps`: at which it is made."""

    name: str
    promise: str
    evaluate: CheckFunction
    steps: frozenset[HandoverStep]


def results_of(checks: Iterable[NamedCheck], step: HandoverStep, evidence: HandoverEvidence) -> tuple[CheckResult, ...]:
    """Of all checks that are made at this step, in their order; one that has no remark passed."""
    return tuple(result for check in checks if step in check.steps for result in _results(check, evidence))


def worst(results: Iterable[CheckResult]) -> CheckOutcome:
    """REFUSED before WAITING before NOTE before PASSED."""
    order = list(CheckOutcome)
    return max((result.outcome for result in results), key=order.index, default=CheckOutcome.PASSED)


def _results(check: NamedCheck, evidence: HandoverEvidence) -> Iterator[CheckResult]:
    remarks = list(check.evaluate(evidence))
    if all(remark.outcome is CheckOutcome.NOTE for remark in remarks):
        yield CheckResult(check.name, None, CheckOutcome.PASSED, check.promise)
    for remark in remarks:
        yield CheckResult(check.name, remark.partition, remark.outcome, remark.numbers, remark.what_to_do)
