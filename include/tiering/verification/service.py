"""Verification: the quality check of a copy, and runs that verify stored segments."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from include.tiering.clock import Clock
from include.tiering.model.segments import Depth, RemoteLogSegmentId, TopicIdPartition
from include.tiering.quotas.contract import Quotas, QuotasInForce
from include.tiering.remote_storage.contract import RemoteStorage
from include.tiering.remote_storage.store_ownership import StoreOwnership
from include.tiering.runs.cluster_log_dirs import ClusterLogDirs
from include.tiering.segments.contract import RemoteLogMetadata, SegmentRow
from include.tiering.segments.failed_copies import FailedCopies
from include.tiering.segments.ingestion_contract import MetadataIngestion
from include.tiering.segments.stored_copies import StoreWitness
from include.tiering.settings import TieringSettings
from include.tiering.telemetry.metrics import MetricsRecorder, RunKind
from include.tiering.verification.measures import PartitionMeasure, SegmentMeasure
from include.tiering.verification.metrics import publish_verdicts
from include.tiering.verification.plan import (
    PlanShare,
    RollingSample,
    VerificationPlan,
    VerificationSample,
    VerificationStore,
    plan_verification,
    verdicts_to_read,
)
from include.tiering.verification.record_verdicts import LossLimits, finding_of_result, only_deep_clears
from include.tiering.verification.rules import ALL_OBJECTS_THERE, QualityFinding, RuleEvaluator, Severity
from include.tiering.verification.verify_partitions import PartitionReport, no_log_ends, verify_partitions
from include.tiering.verification.verify_planned import (
    MeasureAll,
    ToMeasure,
    conclude_missing,
    measure_in_process,
    verify_planned,
)
from include.tiering.verification.verify_segments import (
    LockedSegment,
    Measurer,
    VerifyReport,
    subjects_of,
    verify_segments,
    verify_subjects,
)

_EXPIRED_AT_ONCE: Final = 500


class VerificationService:
    """Measures stored segments, evaluates the rules, and records results and verdicts.

    Args:
        now_ms: the database's clock.
        stored_quotas: the quotas of the current dynamic configs, for the estimate of a verification's duration.
        effective: the settings overridden by the current dynamic configs.
        segment_evaluator: makes an evaluator of the segment rules that stores its results below the given directory.
        partition_evaluator: makes such an evaluator of the rules about whole partitions.
    """

    def __init__(
        self,
        *,
        storage: Callable[[], RemoteStorage],
        quotas: Callable[[], Quotas],
        stored_quotas: Callable[[], QuotasInForce],
        metadata: RemoteLogMetadata,
        failed_copies: FailedCopies,
        verifications: VerificationStore,
        ingestion: MetadataIngestion,
        log_dirs: ClusterLogDirs,
        ownership: StoreOwnership,
        segment_evaluator: Callable[[Path | None], RuleEvaluator[SegmentMeasure]],
        partition_evaluator: Callable[[Path | None], RuleEvaluator[PartitionMeasure]],
        effective: Callable[[], TieringSettings],
        now_ms: Callable[[], int],
        recorder: MetricsRecorder,
        clock: Clock,
    ) -> None:
        self._storage = storage
        self._quotas = quotas
        self._stored_quotas = stored_quotas
        self._metadata = metadata
        self._failed_copies = failed_copies
        self._verifications = verifications
        self._ingestion = ingestion
        self._log_dirs = log_dirs
        self._ownership = ownership
        self._segment_evaluator = segment_evaluator
        self._partition_evaluator = partition_evaluator
        self._effective = effective
        self._now_ms = now_ms
        self._recorder = recorder
        self._clock = clock

    def verify_run(
        self,
        run_id: str | None = None,
        *,
        depth: Depth = Depth.SHALLOW,
        results_dir: Path | None = None,
        confirm: Callable[[str], bool] | None = None,
    ) -> VerifyReport:
        """Verify the FINISHED segments that a run copied, and all of the platform's FINISHED ones without a verdict.

        Args:
            run_id: the run that copied the segments; None: verify all segments whose verdict is not PASSED instead.
            depth: how deep they are read.
            results_dir: directory for the evaluator's results; None stores none.
            confirm: see `LossLimits`.

        Raises:
            RemoteStorageUnavailableError, ForeignStoreError, StoreInDoubtError, RuleEvaluationError: see
                `verify_segments`.
        """
        return verify_segments(
            self._metadata,
            self._storage(),
            self._segment_evaluator(results_dir),
            run_id=run_id,
            depth=depth,
            quotas=self._quotas(),
            clock=self._clock,
            require_ours=self._ownership.require,
            limits=self.loss_limits(confirm),
            at_once=self._effective().read.max_segments,
        )

    def verify_segments(self, segments: Mapping[TopicIdPartition, frozenset[RemoteLogSegmentId]], depth: Depth) -> None:
        """Verify those of these segments that are FINISHED, whichever run copied them, and record the results."""
        subjects = subjects_of(self._metadata, segments)
        verify_subjects(self._measurer, self._segment_evaluator(None), subjects, depth, self.loss_limits())

    def loss_limits(self, confirm: Callable[[str], bool] | None = None) -> LossLimits:
        """Return the limits for missing segments that a verification records as lost. `confirm`: see `LossLimits`."""
        verify = self._effective().verify
        return LossLimits(
            verify.max_missing_segments,
            verify.max_missing_total,
            confirm,
            doubt_of_single=StoreWitness(self._metadata, self._storage).doubt,
            failed_before=lambda: self._failed_copies.failed_by(ALL_OBJECTS_THERE),
        )

    def note_confirmed_losses(self, found: str, *, author: str) -> None:
        """Record that `author` confirmed that missing segments are lost; `found` describes them."""
        self._verifications.note_confirmed_losses(found, author=author)

    def expire_verdicts(self) -> int:
        """Expire PASSED verdicts older than `tiering.verdict.max.age.ms`, at most 500 a statement; return how many."""
        older_than_ms = self._effective().verdict.max_age_ms
        expired = 0
        while found := self._metadata.expire_verdicts(older_than_ms, at_most=_EXPIRED_AT_ONCE):
            expired += found
        return expired

    def current_rolling_sample(self, share: float) -> RollingSample | None:
        """Return the rolling sample of the current period, by the database's clock; None for a share of 0."""
        period = self._now_ms() // self._effective().verify.period_ms
        return RollingSample.of(share, period) if share else None

    def plan(
        self,
        run_id: str,
        sample: VerificationSample,
        *,
        depth: Depth,
        limit_bytes: int | None = None,
        dry_run: bool = False,
    ) -> VerificationPlan:
        """Expire old verdicts, choose segments, estimate the cost and store the plan.

        Args:
            run_id: the run that gets the plan.
            sample: which segments to choose.
            depth: how deep the run reads segments.
            limit_bytes: the most bytes, by estimate, that the run reads, except that one segment is always planned;
                None: no limit.
            dry_run: choose and estimate, but change nothing in the database: no verdict expires, no plan is stored.

        Raises:
            ForeignStoreError: the store is not this database's.
            StateConflictError: the run has another plan or is of another kind.
            SettingError: a suite file is wrong.
        """
        rules = self._segment_evaluator(None).rules
        self._ownership.require()
        if not dry_run:
            self.expire_verdicts()
        now_ms, max_age_ms = self._now_ms(), self._effective().verdict.max_age_ms
        partitions = self._partitions(sample)
        plan = plan_verification(
            candidates(self._metadata, partitions, sample, now_ms=now_ms, max_age_ms=max_age_ms),
            sample,
            run_id=run_id,
            depth=depth,
            quotas=self._stored_quotas(),
            now_ms=now_ms,
            max_age_ms=max_age_ms,
            among=None if sample.everything else self._stored(partitions),
            limit_bytes=limit_bytes,
            costs=self._storage().reading_costs,
            needs_deep=lambda row: only_deep_clears(
                self._metadata.quality_results(row.metadata.remote_log_segment_id), rules
            ),
        )
        if not dry_run:
            self._verifications.save_plan(run_id, plan.planned)
        return plan

    def run_planned(
        self,
        run_id: str,
        *,
        measure_all: MeasureAll | None = None,
        streams: int = 1,
        on_read: Callable[[int], None] = lambda _: None,
        on_group: Callable[[], None] = lambda: None,
        may_go_on: Callable[[], bool] = lambda: True,
        results_dir: Path | None = None,
        confirm: Callable[[str], bool] | None = None,
        share: PlanShare | None = None,
    ) -> VerifyReport:
        """Verify the remaining segments of a planned run.

        Args:
            run_id: a run with a stored plan.
            measure_all: takes the measures; None: this process reads the segments.
            on_read: called with the planned bytes of each segment that this process has read or found deleted.
            streams: how many segments `measure_all` reads at the same time.
            on_group: called after a group of segments is recorded.
            may_go_on: called before each group; if it returns False, the rest stays planned.
            results_dir: directory for the evaluator's results; None stores none.
            confirm: see `LossLimits`.
            share: the part of the plan to verify, whose missing segments `conclude_missing` decides; None: all of it.

        Raises:
            RemoteStorageUnavailableError, ForeignStoreError, StoreInDoubtError, RuleEvaluationError: see
                `verify_planned`.
        """
        return verify_planned(
            run_id,
            self._verifications,
            self._metadata,
            self._segment_evaluator(results_dir),
            measure_all or partial(self.measure_all, on_read=on_read),
            clock=self._clock,
            streams=streams,
            on_group=on_group,
            may_go_on=may_go_on,
            limits=self.loss_limits(confirm),
            share=share,
        )

    def conclude_missing(self, run_id: str, *, results_dir: Path | None = None) -> VerifyReport:
        """Decide which segments that the batches of a planned run found missing are lost, after all have ended.

        Raises:
            RemoteStorageUnavailableError, ForeignStoreError, StoreInDoubtError, RuleEvaluationError: see
                `verify_planned.conclude_missing`.
        """
        return conclude_missing(
            run_id,
            self._verifications,
            self._metadata,
            self._segment_evaluator(results_dir),
            self.measure_all,
            clock=self._clock,
            limits=self.loss_limits(),
        )

    def findings_of(self, run_id: str) -> list[tuple[Severity, QualityFinding]]:
        """Return, with severities, the rules that the segments verified in any try of a planned run break now."""
        broken = self._verifications.broken_rules(run_id)
        rules = (*self._segment_evaluator(None).rules, *self._partition_evaluator(None).rules)
        return [
            (Severity(result.level), finding_of_result(result, start_offset, rules)) for start_offset, result in broken
        ]

    def publish_verdicts(self) -> None:
        """Publish, by verdict, segments, bytes and the age of the oldest verdict, after a verification."""
        publish_verdicts(self._recorder, self._metadata.verdict_totals())
        self._recorder.ended(RunKind.VERIFICATION)

    def verify_partitions(
        self,
        partitions: Iterable[TopicIdPartition] | None = None,
        *,
        scan_log_dirs: bool = True,
        results_dir: Path | None = None,
    ) -> PartitionReport:
        """Evaluate the rules about whole partitions and record what is found.

        A partition that brokers tier is left out while the brokers' metadata of it is not read completely.

        Args:
            partitions: the partitions to evaluate; None: every partition that has segments.
            scan_log_dirs: whether to read the ends of the leaders' logs in the log dirs, if any are configured.
            results_dir: directory for the evaluator's results; None stores none.

        Raises:
            RuleEvaluationError: a rule could not be applied.
        """
        unread = self._ingestion.unread()
        wanted = self._metadata.partitions() if partitions is None else partitions
        return verify_partitions(
            self._metadata,
            self._partition_evaluator(results_dir),
            [partition for partition in wanted if partition not in unread],
            log_ends=self._log_dirs.log_ends if scan_log_dirs and self._log_dirs.are_configured else no_log_ends,
        )

    def measure_all(
        self, wanted: Sequence[ToMeasure], on_read: Callable[[int], None] = lambda _: None
    ) -> Iterable[SegmentMeasure | LockedSegment]:
        """Measure segments in this process, several at the same time; see `measure_in_process`."""
        return measure_in_process(self._measurer, on_read)(wanted)

    @property
    def _measurer(self) -> Measurer:
        at_once = self._effective().read.max_segments
        return Measurer(self._metadata, self._storage(), self._quotas(), self._ownership.require, at_once)

    def _partitions(self, sample: VerificationSample) -> Sequence[TopicIdPartition]:
        unread = self._ingestion.unread()
        wanted = (partition for partition in self._metadata.partitions() if sample.is_about(partition))
        return [partition for partition in wanted if partition not in unread]

    def _stored(self, partitions: Collection[TopicIdPartition]) -> tuple[int, int]:
        """Return the number and the bytes of the FINISHED segments of these partitions, from the counters."""
        wanted = frozenset(partitions)
        sizes = [size for size in self._metadata.partition_sizes() if size.topic_id_partition in wanted]
        return sum(size.segments for size in sizes), sum(size.size_bytes for size in sizes)


def candidates(
    metadata: RemoteLogMetadata,
    partitions: Sequence[TopicIdPartition],
    sample: VerificationSample,
    *,
    now_ms: int,
    max_age_ms: int,
) -> Iterator[SegmentRow]:
    """Yield segments of these partitions, each once: at least all FINISHED ones that the sample chooses."""
    verdicts = verdicts_to_read(sample, now_ms=now_ms, max_age_ms=max_age_ms)
    if verdicts is None:
        for partition in partitions:
            yield from metadata.list_segments(partition)
        return
    wanted, found = frozenset(partitions), set[RemoteLogSegmentId]()
    for row in metadata.selected.finished_with_verdicts(verdicts):
        if row.metadata.topic_id_partition in wanted:
            found.add(row.metadata.remote_log_segment_id)
            yield row
    if sample.rolling_sample is None:
        return
    for partition in partitions:
        finished = (RemoteLogSegmentId(partition, id_) for id_ in metadata.selected.finished_ids(partition))
        ids = [segment_id.id for segment_id in finished if sample.rolling_sample.holds(segment_id)]
        for row in metadata.selected.segments_with_ids(partition, ids):
            if row.metadata.remote_log_segment_id not in found:
                yield row
