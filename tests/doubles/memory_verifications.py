"""Plans of verifications in a dictionary: enough of the contract for tasks that work one off."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from include.tiering.model.segments import RemoteLogSegmentId
from include.tiering.verification.plan import (
    PlannedVerification,
    VerificationOutcome,
    VerificationResult,
    VerificationTotal,
)
from tests.doubles.partial import Partial


@dataclass
class MemoryVerifications(Partial):
    """`records` holds every call of `record`, in order."""

    plans: dict[str, dict[RemoteLogSegmentId, PlannedVerification]] = field(default_factory=dict)
    results: dict[tuple[str, RemoteLogSegmentId], VerificationResult] = field(default_factory=dict)
    records: list[list[VerificationResult]] = field(default_factory=list)
    confirmed: list[tuple[str, str]] = field(default_factory=list)

    def save_plan(self, run_id: str, planned: Sequence[PlannedVerification]) -> None:
        self.plans[run_id] = {one.segment_id: one for one in planned}

    def pending(self, run_id: str, *, at_most: int) -> Sequence[PlannedVerification]:
        return self.planned(run_id, VerificationOutcome.PLANNED)[:at_most]

    def planned(self, run_id: str, outcome: VerificationOutcome) -> list[PlannedVerification]:
        found = [one for one in self.plans[run_id].values() if self._outcome(run_id, one) is outcome]

        def place(one: PlannedVerification) -> tuple[str, int, int]:
            partition = one.segment_id.topic_id_partition
            return partition.topic, partition.partition, one.start_offset

        return sorted(found, key=place)

    def record(self, run_id: str, results: Sequence[VerificationResult]) -> None:
        self.records.append(list(results))
        for result in results:
            assert result.segment_id in self.plans[run_id]
            self.results[run_id, result.segment_id] = result

    def note_confirmed_losses(self, found: str, *, author: str) -> None:
        self.confirmed.append((found, author))

    def totals(self, run_id: str) -> Sequence[VerificationTotal]:
        totals = []
        for outcome in VerificationOutcome:
            found = self.planned(run_id, outcome)
            read_bytes = sum(
                self.results[run_id, one.segment_id].read_bytes
                for one in found
                if outcome is not VerificationOutcome.PLANNED
            )
            planned_bytes = sum(one.planned_bytes for one in found)
            totals.append(VerificationTotal(outcome, len(found), planned_bytes, read_bytes))
        return totals

    def _outcome(self, run_id: str, planned: PlannedVerification) -> VerificationOutcome:
        result = self.results.get((run_id, planned.segment_id))
        return VerificationOutcome.PLANNED if result is None else result.outcome
