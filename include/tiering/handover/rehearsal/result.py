"""How a rehearsal ended: the hand-over as it was carried out, and what consumers got before and afterwards."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from include.tiering.broker_process.sample import PartitionSample, size_of
from include.tiering.handover.checks.handover_check import CheckResult
from include.tiering.handover.handover import HandoverState
from include.tiering.handover.handover_contract import GuardValue, Handover, SeededPartition
from include.tiering.handover.rehearsal.read_back import Comparison


@dataclass(frozen=True, slots=True)
class RehearsedPartition:
    """`remote_only_below` (exclusive): what lies below it is on the broker's disk no more. `lost` are offsets that went
    though nothing lets them; `copied_twice` base offsets of which the store has more than one copy."""

    sample: PartitionSample
    log_start_offset: int
    remote_only_below: int
    plain: Comparison
    committed: Comparison
    lost: tuple[str, ...] = ()
    copied_twice: tuple[int, ...] = ()

    @property
    def is_whole(self) -> bool:
        return self.plain.is_equal and self.committed.is_equal and not self.lost and not self.copied_twice


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """`partitions` is empty unless the hand-over came to its end. `broker_errors` are lines of the throw-away broker's
    log. `kept` is where everything still lies, if somebody asked for it."""

    topic: str
    kafka_version: str
    samples: tuple[PartitionSample, ...]
    handover: Handover
    checks: Sequence[CheckResult]
    guards: Sequence[GuardValue]
    seed: Sequence[SeededPartition]
    partitions: tuple[RehearsedPartition, ...]
    broker_errors: tuple[str, ...]
    kept: Path | None = None

    @property
    def size_bytes(self) -> int:
        return size_of(self.samples)

    @property
    def is_done(self) -> bool:
        return self.handover.state is HandoverState.DONE

    @property
    def is_whole(self) -> bool:
        """Handed over, and every record read back as it was."""
        return self.is_done and all(one.is_whole for one in self.partitions)
