"""The verbs that judge: the gate of a copy, and runs that verify what is stored."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

from include.tiering.model.depth import Depth
from include.tiering.model.ids import TopicIdPartition
from include.tiering.model.turn import Turn
from include.tiering.observability.metrics import process_recorder
from include.tiering.observability.verdict_metrics import publish_verdicts
from include.tiering.quality.judge import Judge, QualityFinding
from include.tiering.quality.late_judge import LateJudge
from include.tiering.quality.measures import SegmentMeasure
from include.tiering.quality.partition_measures import PartitionMeasure
from include.tiering.quality.rules import ALL_OBJECTS_THERE, Severity
from include.tiering.quality.suites import PARTITION_SUITES, Suite, segment_suites
from include.tiering.remote_metadata.contract import SegmentRow
from include.tiering.tasks.missing_segments import LossLimits
from include.tiering.tasks.plan_verification import Sample, VerificationPlan, plan_verification
from include.tiering.tasks.record_verdicts import finding_of_result, only_deep_acquits
from include.tiering.tasks.store_witness import StoreWitness
from include.tiering.tasks.verify_partitions import PartitionReport, nobody_knows, verify_partitions
from include.tiering.tasks.verify_planned import MeasureAll, ToMeasure, measure_planned, measured_here, verify_planned
from include.tiering.tasks.verify_segments import Measurer, VerifyReport, verify_segments
from include.tiering.wiring.ingestion_verbs import IngestionVerbs
from include.tiering.work.sql_verifications import SqlVerificationStore
from include.tiering.work.verification_contract import VerificationStore

_EXPIRED_AT_ONCE: Final = 500


class QualityVerbs(IngestionVerbs):
    """Part of `Tiering`."""

    @cached_property
    def verifications(self) -> VerificationStore:
        return SqlVerificationStore(self.engine, self.cluster_id)

    def verify(
        self,
        run_id: str | None = None,
        *,
        depth: Depth = Depth.SHALLOW,
        results_dir: Path | None = None,
        confirm: Callable[[str], bool] | None = None,
    ) -> VerifyReport:
        """Judge what a run copied; without a run, all that has not passed. Results are stored below `results_dir`;
        `confirm` as in `LossLimits`."""
        return verify_segments(
            self.metadata,
            self.storage,
            self.segment_judge(results_dir),
            run_id=run_id,
            depth=depth,
            quotas=self.quotas,
            clock=self.clock,
            require_ours=self.require_our_store,
            limits=self.loss_limits(confirm),
        )

    def loss_limits(self, confirm: Callable[[str], bool] | None = None) -> LossLimits:
        """How much a verification believes to be lost. `confirm` as there."""
        verify = self.effective_settings().verify
        return LossLimits(
            verify.max_missing_segments,
            verify.max_missing_total,
            confirm,
            doubt_of_one=StoreWitness(self.metadata, lambda: self.storage).doubt,
            failed_before=lambda: self.failed_copies.failed_by(ALL_OBJECTS_THERE),
        )

    def note_confirmed_losses(self, found: str, *, author: str) -> None:
        """Record that a person says of missing segments that they are lost."""
        self.verifications.note_confirmed_losses(found, author=author)

    def expire_verdicts(self) -> int:
        """Segments that passed too long ago are no longer counted as safe; returns how many. In bounded statements."""
        older_than_ms = self.effective_settings().verdict.max_age_ms
        expired = 0
        while found := self.metadata.expire_verdicts(older_than_ms, at_most=_EXPIRED_AT_ONCE):
            expired += found
        return expired

    def turn_of_now(self, share: float) -> Turn | None:
        """The part of all segments whose turn it is in this period, by the database's clock; None for a share of 0."""
        period = self.deletions.now_ms() // self.effective_settings().verify.period_ms
        return Turn.of(share, period) if share else None

    def plan_verification(
        self,
        run_id: str,
        sample: Sample,
        *,
        depth: Depth,
        limit_bytes: int | None = None,
        dry_run: bool = False,
    ) -> VerificationPlan:
        """Let verdicts expire, choose, say what it costs, store the plan. A `dry_run` changes nothing.

        Raises:
            ForeignStoreError: the store is not this database's.
        """
        self.require_our_store()
        if not dry_run:
            self.expire_verdicts()
        plan = plan_verification(
            self._rows(sample),
            sample,
            run_id=run_id,
            depth=depth,
            quotas=self._stored_quotas(),
            now_ms=self.deletions.now_ms(),
            max_age_ms=self.effective_settings().verdict.max_age_ms,
            limit_bytes=limit_bytes,
            needs_deep=lambda row: only_deep_acquits(self.metadata.quality_results(row.metadata.remote_log_segment_id)),
        )
        if not dry_run:
            self.verifications.save_plan(run_id, plan.planned)
        return plan

    def verify_planned(
        self,
        run_id: str,
        *,
        measure_all: MeasureAll | None = None,
        streams: int = 1,
        on_read: Callable[[int], None] = lambda _: None,
        on_group: Callable[[], None] = lambda: None,
        results_dir: Path | None = None,
        confirm: Callable[[str], bool] | None = None,
    ) -> VerifyReport:
        """Verify what is left of a planned run. Without `measure_all` it is read by this process; `on_read` is told the
        planned bytes of each segment then. `confirm` as in `LossLimits`."""
        return verify_planned(
            run_id,
            self.verifications,
            self.metadata,
            self.segment_judge(results_dir),
            measure_all or measured_here(self.measurer, on_read),
            clock=self.clock,
            streams=streams,
            on_group=on_group,
            limits=self.loss_limits(confirm),
        )

    def measure_planned(self, planned: ToMeasure) -> SegmentMeasure | None:
        """Take one measure in this process, which is charged for it. None if the segment is not FINISHED any more."""
        return measure_planned(self.measurer, planned)

    def findings_of(self, run_id: str) -> list[tuple[Severity, QualityFinding]]:
        """What the segments that a planned run has verified so far, in all of its tries, break now."""
        broken = self.verifications.broken_rules(run_id)
        return [(Severity(result.level), finding_of_result(result, start_offset)) for start_offset, result in broken]

    def publish_verdicts(self) -> None:
        """How many segments have which verdict, and for how long, as metrics of this process."""
        publish_verdicts(process_recorder(), self.metadata.verdict_totals())

    def verify_partitions(
        self,
        partitions: Iterable[TopicIdPartition] | None = None,
        *,
        look_at_log_dirs: bool = True,
        results_dir: Path | None = None,
    ) -> PartitionReport:
        """Judge partitions as a whole, without any every one that has segments; those of brokers whose metadata was not
        read are left out. Ends of logs are read where log dirs
        are, unless it is not wanted."""
        unread = self.ingestion.unread()
        asked = self.metadata.partitions() if partitions is None else partitions
        return verify_partitions(
            self.metadata,
            self.partition_judge(results_dir),
            [one for one in asked if one not in unread],
            log_ends=self._log_ends if look_at_log_dirs and self.settings.log_dirs else nobody_knows,
        )

    def segment_judge(self, results_dir: Path | None = None) -> Judge[SegmentMeasure]:
        return LateJudge(partial(_great_expectations, segment_suites(), results_dir))

    def partition_judge(self, results_dir: Path | None = None) -> Judge[PartitionMeasure]:
        return LateJudge(partial(_great_expectations, PARTITION_SUITES, results_dir))

    @property
    def measurer(self) -> Measurer:
        """Takes measures of segments in this process."""
        return Measurer(self.metadata, self.storage, self.quotas, self.require_our_store)

    def _log_ends(self, topics: Collection[str]) -> Mapping[TopicIdPartition, int]:
        """Those of the leaders' replicas. What cannot be read has none."""
        replicas = self.source.scan(topics=topics).replicas
        return {replica.topic_id_partition: replica.log_end_offset for replica in replicas if replica.chosen}

    def _rows(self, sample: Sample) -> Iterator[SegmentRow]:
        unread = self.ingestion.unread()
        for partition in self.metadata.partitions():
            if partition not in unread and sample.is_about(partition):
                yield from self.metadata.list_segments(partition)


def _great_expectations(suites: Sequence[Suite], results_dir: Path | None) -> Judge[Any]:
    # It takes seconds to import: only those who judge wait.
    from include.tiering.quality.great_expectations_judge import GreatExpectationsJudge

    return GreatExpectationsJudge(suites, results_dir=results_dir)
