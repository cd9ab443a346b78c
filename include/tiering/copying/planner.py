"""What a copy would do now: every command judges by the same plan."""

from collections.abc import Callable, Collection, Mapping, Sequence

from include.tiering.copying.copy_plan import CopyPlan
from include.tiering.copying.next_segments import NOTHING_FAILED, with_compacted
from include.tiering.copying.plan_copy import plan_copy
from include.tiering.kafka.cluster.contract import ClusterFacts
from include.tiering.kafka.log_dirs.contract import LogSource, ScanReport
from include.tiering.model.ids import TopicIdPartition
from include.tiering.quotas.contract import Quotas
from include.tiering.remote_storage.contract import RemoteStorage
from include.tiering.runs.cluster_log_dirs import ClusterLogDirs
from include.tiering.segments.contract import RemoteLogMetadata, TopicRegistry
from include.tiering.segments.failed_copies import FailedCopies, FailedCopy, by_partition
from include.tiering.segments.stored_copies import StoreWitness, WholeCopy
from include.tiering.segments.topics import TopicLifecycle
from include.tiering.settings import TieringSettings


class CopyPlanner:
    """Plans copies from a scan of log directories. Nothing is stored.

    Args:
        effective: the settings with the dynamic configs of now over them.
        now_ms: the database's clock.
    """

    def __init__(
        self,
        *,
        source: Callable[[], LogSource],
        storage: Callable[[], RemoteStorage],
        quotas: Callable[[], Quotas],
        metadata: RemoteLogMetadata,
        registry: TopicRegistry,
        failed_copies: FailedCopies,
        facts: Callable[[], ClusterFacts],
        log_dirs: ClusterLogDirs,
        names: TopicLifecycle,
        effective: Callable[[], TieringSettings],
        now_ms: Callable[[], int],
    ) -> None:
        self._source = source
        self._storage = storage
        self._quotas = quotas
        self._metadata = metadata
        self._registry = registry
        self._failed_copies = failed_copies
        self._facts = facts
        self._log_dirs = log_dirs
        self._names = names
        self._effective = effective
        self._now_ms = now_ms

    def plan(
        self,
        report: ScanReport,
        run_id: str,
        topics: Collection[str],
        *,
        failed: Mapping[TopicIdPartition, Sequence[FailedCopy]] | None = None,
        limit_bytes: int | None = None,
    ) -> CopyPlan:
        """What a copy of these topics (patterns) would do now, by their scan.

        Args:
            failed: failed copies by partition, if the caller has them; else they are read.
        """
        if failed is None:
            failed = by_partition(self._failed_copies.all())
        return plan_copy(
            run_id,
            self.with_compacted(report, failed),
            metadata=self._metadata,
            registry=self._registry,
            facts=self._facts(),
            now_ms=self._now_ms(),
            topics=topics,
            limit_bytes=limit_bytes,
            placements=self._log_dirs.placements(),
            retentions=self._names.retentions_of_copies(report),
            failed=failed,
            max_new_copies=self._effective().superseded.max_copies,
            doubt=StoreWitness(self._metadata, self._storage).doubt_or_error,
            is_whole=lambda row: WholeCopy(self._storage(), self._quotas()).is_there(row),
        )

    def with_compacted(
        self, report: ScanReport, failed: Mapping[TopicIdPartition, Sequence[FailedCopy]] = NOTHING_FAILED
    ) -> ScanReport:
        """The report, in which segments that are to be copied next, or anew, say that they are compacted, if they
        are."""
        return with_compacted(report, self._metadata, self._source().leading_compacted, failed)
