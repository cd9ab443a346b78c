"""Everything that a hand-over touches, and one drive of it."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from include.tiering.clock import Clock
from include.tiering.handover.checks.handover_check import CheckResult
from include.tiering.handover.checks.handover_facts import StoreFacts
from include.tiering.handover.handover import HandoverStep
from include.tiering.handover.handover_contract import Drive, Handover, HandoverStore, SeededPartition
from include.tiering.handover.metadata_scan import MetadataScan
from include.tiering.kafka.cluster.contract import Brokers
from include.tiering.kafka.log_dirs.contract import LogSource
from include.tiering.kafka.metadata_topic.contract import MetadataTopic
from include.tiering.metadata_sync.publication_contract import PublicationStore
from include.tiering.model.histories import OffsetRange
from include.tiering.model.ids import RemoteLogSegmentId, TopicIdPartition
from include.tiering.model.ownership import Fence
from include.tiering.model.segment_data import RangeDigest
from include.tiering.runs.contract import WorkStore
from include.tiering.segments.contract import RemoteLogMetadata, TopicRegistry

REMOTE_STORAGE: str = "remote.storage.enable"


@dataclass(frozen=True, slots=True)
class CopyRound:
    """What one plan and its batches did. `failed` and `held_back` are sentences about what was not copied.

    `worth_retrying`: nothing of it needs a person.
    """

    copied_segments: int
    failed: tuple[str, ...] = ()
    held_back: tuple[str, ...] = ()
    worth_retrying: bool = True


@dataclass(frozen=True, slots=True)
class StoredDigest:
    """Of the records of a range but for those in `not_opened`: offsets of batches that are too large to be opened."""

    digest: RangeDigest
    not_opened: tuple[OffsetRange, ...] = ()


class Verbs(Protocol):
    """What the platform does for a hand-over. Each may be repeated."""

    def copy_round(self, topic: str, run_id: str) -> CopyRound:
        """Plan and copy what is rolled and not remote, in this process, until nothing planned is left."""
        ...

    def verify(self, segments: Mapping[TopicIdPartition, frozenset[RemoteLogSegmentId]]) -> None:
        """Read these segments back, as deeply as hand-overs ask for, and record their verdicts."""
        ...

    def abandon_leftovers(self, fence: Fence) -> None:
        """Abandon, of the leased partition's copies that never were finished, those of which nothing is stored."""
        ...

    def publish(self, seeded: SeededPartition) -> None:
        """Send STARTED and FINISHED of its segments, in order, and read them back. What was published stays."""
        ...

    def stored_digest(self, partition: TopicIdPartition, start_offset: int, end_offset: int) -> StoredDigest:
        """Of what was copied, its bytes checked against the source's checksum. Offsets are inclusive."""
        ...

    def served_digest(
        self, partition: TopicIdPartition, start_offset: int, end_offset: int, leave_out: Sequence[OffsetRange] = ()
    ) -> RangeDigest:
        """Of what a plain consumer gets from the brokers, without the offsets in `leave_out`. All are inclusive."""
        ...

    def free_bytes(self, broker_id: int) -> int | None:
        """Room in the fullest log directory of a broker; None if nobody here sees it."""
        ...


@dataclass(frozen=True, slots=True)
class HandoverLimits:
    """`hold_seconds`: how long the disks must be able to take what producers bring. `watch_seconds`: how long one drive
    waits for brokers. `settle_seconds`: how long they may take to delete what local retention lets go.
    `local_steps`: in how many steps it is lowered. `verify_deep`: nothing is handed over that no deep look passed.
    """

    lease_ms: int = 30_000
    hold_seconds: int = 24 * 3600
    watch_seconds: float = 300.0
    poll_seconds: float = 1.0
    settle_seconds: float = 600.0
    local_steps: int = 8
    verify_deep: bool = False
    max_rounds: int = 100


@dataclass(frozen=True, slots=True)
class HandoverPorts:
    """Contracts and verbs. `new_run_id` gives a new one each time, `keep_alive` prolongs a drive while it lasts,
    `metadata_scan` remembers what was read of the metadata topic."""

    handovers: HandoverStore
    brokers: Brokers
    source: LogSource
    metadata: RemoteLogMetadata
    registry: TopicRegistry
    work: WorkStore
    metadata_topic: MetadataTopic
    publications: PublicationStore
    verbs: Verbs
    store: StoreFacts
    clock: Clock
    new_run_id: Callable[[], str]
    keep_alive: Callable[[Drive], AbstractContextManager[None]]
    limits: HandoverLimits = field(default_factory=HandoverLimits)
    metadata_scan: MetadataScan = field(default_factory=MetadataScan)


class StepEnd(StrEnum):
    """DONE: the next step. WAIT: the same one again, later. STOP: a person has to do something first."""

    DONE = "done"
    WAIT = "wait"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class StepResult:
    """How a step ended. `goes_to`: another step than the one that follows."""

    end: StepEnd
    detail: str = ""
    goes_to: HandoverStep | None = None


DONE: StepResult = StepResult(StepEnd.DONE)


@dataclass(frozen=True, slots=True)
class HandoverRun:
    """One drive of one hand-over. `told` gets a line for each thing that a person would want to see."""

    ports: HandoverPorts
    drive: Drive
    told: Callable[[str], None]

    @property
    def handover(self) -> Handover:
        """As it is stored now."""
        return self.ports.handovers.handover(self.drive.handover_id)

    @property
    def seed(self) -> Sequence[SeededPartition]:
        return self.ports.handovers.seed(self.drive.handover_id)

    def renew(self) -> None:
        """Raises LeaseLostError: somebody else drives."""
        self.ports.handovers.renew(self.drive, lease_ms=self.ports.limits.lease_ms)

    def record(self, step: HandoverStep, results: Sequence[CheckResult]) -> None:
        """Keep what the checks of a step said."""
        self.ports.handovers.record_checks(self.drive, step, results)

    def pause(self) -> None:
        """Between two questions to brokers."""
        self.renew()
        self.ports.clock.sleep(self.ports.limits.poll_seconds)
