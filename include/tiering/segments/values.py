"""What is known of one segment, of one partition, and of one rule about one segment."""

from dataclasses import dataclass, field
from typing import Final

from include.tiering.model.ids import RemoteLogSegmentId, Uuid
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segment_metadata import RemoteLogSegmentMetadata
from include.tiering.model.segment_origin import SegmentOrigin
from include.tiering.model.segment_state import RemoteLogSegmentState
from include.tiering.model.verdict import Verdict

CRITICAL: Final = "critical"
"""The level of a rule that fails a segment."""


@dataclass(frozen=True, slots=True)
class SegmentRow:
    """A segment with what this platform knows beyond Kafka's metadata.

    `source_fingerprint` is opaque text: equal texts mean the same source bytes. `finished_at_ms` and `verdict_at_ms`
    are times of the database: None if it never was FINISHED, whatever its state is now, or was never judged.
    `deep_passed_at_ms` is the time of the last verdict PASSED by a look that read every byte, None if there was none
    since it failed. `superseded_by` is the new copy of the same offsets that took its place, `delete_started_at_ms`
    when its deletion began, by the database's clock; of a broker's segment the times of its states are the broker's
    own, none of them in the future.
    `broker_state` is what the brokers' metadata topic says of it, None if it does not (yet). `history` is 0, or the
    number of the divergence behind whose decision it was copied.
    """

    metadata: RemoteLogSegmentMetadata
    verdict: Verdict
    log_crc32c: int | None
    verdict_detail: str = ""
    source_fingerprint: str | None = None
    finished_at_ms: int | None = None
    verdict_at_ms: int | None = None
    deep_passed_at_ms: int | None = None
    superseded_by: Uuid | None = None
    delete_started_at_ms: int | None = None
    origin: SegmentOrigin = SegmentOrigin.PLATFORM
    broker_state: RemoteLogSegmentState | None = None
    history: int = 0


@dataclass(frozen=True, slots=True)
class PartitionTruth:
    """What this platform holds to be true of a partition's remote log, whatever its broker forgets.

    Nothing below `log_start_offset` is served; it only rises. `leader_epochs` is the history merged over time.
    """

    log_start_offset: int = 0
    leader_epochs: LeaderEpochs = field(default_factory=LeaderEpochs)


@dataclass(frozen=True, slots=True)
class QualityResult:
    """What one rule said about one segment. `level` is the rule's severity, `message` for a person."""

    segment_id: RemoteLogSegmentId
    rule: str
    level: str
    passed: bool
    message: str = ""

    @property
    def fails(self) -> bool:
        """Whether the segment fails by it."""
        return not self.passed and self.level == CRITICAL
