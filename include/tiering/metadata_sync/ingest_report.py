"""What a run that read the brokers' metadata topic did."""

from collections.abc import Mapping
from dataclasses import dataclass

from include.tiering.segments.ingestion_contract import MetadataTopicIdentity, RecordOutcome


@dataclass(frozen=True, slots=True)
class IngestedPartition:
    """What a run did with one metadata partition.

    Attributes:
        from_offset, next_offset: its position before and after.
        end_offset: of when the run began, exclusive.
        records: that were applied or dropped; `outcomes` says what each did.
        holes: offsets without a record. Brokers that start while the last one is a hole are not ready until another
            record comes.
        stopped: why it went no further for a reason that a person has to look at.
        failed: why it went no further for a reason that passes.
    """

    metadata_partition: int
    from_offset: int
    next_offset: int
    end_offset: int
    records: int
    holes: int
    ends_in_a_hole: bool
    outcomes: Mapping[RecordOutcome, int]
    stopped: str | None = None
    failed: str | None = None

    @property
    def lag_records(self) -> int:
        return max(0, self.end_offset - self.next_offset)


@dataclass(frozen=True, slots=True)
class IngestReport:
    """One run. `findings` are sentences for a person; `changes` say what follows for topics and for our segments."""

    topic: MetadataTopicIdentity
    partitions: tuple[IngestedPartition, ...]
    findings: tuple[str, ...]
    changes: tuple[str, ...]

    @property
    def records(self) -> int:
        return sum(one.records for one in self.partitions)

    @property
    def lag_records(self) -> int:
        return sum(one.lag_records for one in self.partitions)

    @property
    def stopped(self) -> tuple[IngestedPartition, ...]:
        return tuple(one for one in self.partitions if one.stopped is not None)

    @property
    def failed(self) -> tuple[IngestedPartition, ...]:
        return tuple(one for one in self.partitions if one.failed is not None)
