"""The service of remote sizes, copy and delete lags, and costs."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final
from urllib.parse import urlsplit

from include.tiering.clock import Clock
from include.tiering.copying.plan import partitions_out_of_sight
from include.tiering.copying.plan_copy import CopyPlanner
from include.tiering.copying.run_scope import RunScope
from include.tiering.kafka.cluster.contract import ClusterMetadata
from include.tiering.kafka.log_dirs.contract import matches
from include.tiering.model.sizes import PartitionSize, PartitionStates, estimate_cost
from include.tiering.runs.cluster_log_dirs import ClusterLogDirs
from include.tiering.segments.contract import RemoteLogMetadata, TopicRegistry
from include.tiering.segments.failed_copies import FailedCopies, publish_failed_copies
from include.tiering.segments.ingestion_contract import MetadataIngestion
from include.tiering.segments.sizes_contract import RemoteLogSizes
from include.tiering.segments.topics import TopicLifecycle
from include.tiering.settings import TieringSettings
from include.tiering.sizes.compare import LogDirDescription, TierComparison, compare_tiers, describe_log_dirs
from include.tiering.sizes.metrics import SizeGauges
from include.tiering.sizes.report import SizeReport
from include.tiering.telemetry.metrics import MetricsRecorder, RunKind
from include.tiering.verification.metrics import publish_verdicts

NO_DUPLICATES: Final[Mapping[str, int]] = MappingProxyType({})
_HISTORY: Final = "sizes-history"


class SizeService:
    """Reads the counters of remote sizes, compares both tiers, and publishes the metrics.

    Only `report` (unless its `scan_log_dirs` is False) and `describe_log_dirs` scan log directories.
    """

    def __init__(
        self,
        *,
        settings: TieringSettings,
        sizes: RemoteLogSizes,
        metadata: RemoteLogMetadata,
        registry: TopicRegistry,
        failed_copies: FailedCopies,
        ingestion: MetadataIngestion,
        cluster_metadata: Callable[[], ClusterMetadata],
        log_dirs: ClusterLogDirs,
        names: TopicLifecycle,
        planner: CopyPlanner,
        recorder: MetricsRecorder,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._sizes = sizes
        self._metadata = metadata
        self._registry = registry
        self._failed_copies = failed_copies
        self._ingestion = ingestion
        self._cluster_metadata = cluster_metadata
        self._log_dirs = log_dirs
        self._names = names
        self._planner = planner
        self._recorder = recorder
        self._clock = clock

    def partition_sizes(self) -> Sequence[PartitionSize]:
        """Return FINISHED sizes from the counters, and publish the sizes, among them RemoteLogSizeBytes (KIP-852).

        The metrics of segments that failed verification are published too. A partition that brokers tier is left out
        until the brokers' records about it were all read; meanwhile nothing is published for its topic.
        """
        return [states.finished for states in self.publish_sizes() if states.finished.segments]

    def publish_sizes(self) -> Sequence[PartitionStates]:
        """Publish the sizes as `partition_sizes` does, and return them by state, also of empty partitions."""
        unread = self._ingestion.unread()
        of_unread = {partition.topic for partition in unread}
        states = self._sizes.partition_states()
        published = [state for state in states if state.topic_id_partition.topic not in of_unread]
        SizeGauges(self._recorder).sizes(published)
        topics = {partition.topic_id_partition.topic for partition in published}
        publish_failed_copies(self._recorder, self._failed_copies.all(), topics)
        return [state for state in states if state.topic_id_partition not in unread]

    def report(self, topics: Collection[str] = (), *, scan_log_dirs: bool = True) -> SizeReport:
        """Return sizes, lags and costs.

        The report has a partition without a FINISHED segment only if its `PartitionStates.stored_bytes` are not 0.
        Sizes of all topics are published in any case, see `partition_sizes`; lags, costs and verdicts only without
        `topics`.

        Args:
            topics: names or patterns; empty: all topics.
            scan_log_dirs: whether to compare with the brokers' logs: those in the log dirs if any are configured, and
                otherwise those that are read from the leaders.
        """

        def is_asked(topic: str) -> bool:
            return not topics or matches(topic, topics)

        states = [
            states
            for states in self.publish_sizes()
            if is_asked(states.topic_id_partition.topic) and (states.finished.segments or states.stored_bytes)
        ]
        sizes = [partition.finished for partition in states]
        stored = {partition.topic_id_partition: partition.stored_bytes for partition in states}
        delete_lags = self._sizes.delete_lags()
        tiers = self._tiers(topics) if scan_log_dirs else None
        segments = sum(size.segments for size in sizes)
        cost = estimate_cost(sum(stored.values()), segments, self._settings.prices.table())
        lags = [lag for lag in delete_lags if is_asked(lag.topic_id_partition.topic)]
        unread = {partition: why for partition, why in self._ingestion.unread().items() if is_asked(partition.topic)}
        report = SizeReport(sizes, lags, tiers, cost, () if topics else self._metadata.verdict_totals(), unread, stored)
        if not topics:
            self._publish(report)
        return report

    def publish_recount(
        self, *, milliseconds: float, differences: int, duplicate_bytes: Mapping[str, int] = NO_DUPLICATES
    ) -> None:
        """Publish how long the recount of a size run took, and how many differences the run found.

        `duplicate_bytes` are bytes that two FINISHED segments hold, by topic; other topics are published as 0.
        """
        gauges = SizeGauges(self._recorder)
        gauges.recount(milliseconds=milliseconds, differences=differences)
        topics = dict.fromkeys(self._sizes.topic_names().values(), 0)
        gauges.duplicates("remote", {**topics, **duplicate_bytes})
        self._recorder.ended(RunKind.SIZES)

    def describe_log_dirs(
        self, topics: Collection[str] = ()
    ) -> tuple[Sequence[LogDirDescription], Sequence[PartitionSize]]:
        """Return every log dir with its replicas, and the sizes of `partition_sizes`; `topics` restricts both.

        Raises:
            SettingError: no log dir is configured.
        """
        self._log_dirs.require_configured()
        patterns = tuple(topics) or ("*",)
        sizes = [size for size in self.partition_sizes() if matches(size.topic_id_partition.topic, patterns)]
        return describe_log_dirs(self._log_dirs.scan_all(topics=patterns), self._log_dirs.known(patterns), sizes), sizes

    def history_dir(self, run_dir: Path) -> Path:
        """Return the directory of the history of sizes.

        This is `sizes.history_path` if it is set, otherwise a directory next to the SQLite database, or below `run_dir`
        if the database is not SQLite.
        """
        if self._settings.sizes.history_path is not None:
            return Path(self._settings.sizes.history_path)
        database = urlsplit(self._settings.metadata.url.get_secret_value())
        parent = Path(database.path[1:]).parent if database.scheme == "sqlite" else run_dir
        return parent / _HISTORY

    def _tiers(self, topics: Collection[str]) -> TierComparison | None:
        scope = RunScope(tuple(topics)).or_topics(self._settings.topics.include)
        if not self._log_dirs.are_configured and not (self._log_dirs.reads_leaders and scope.topics):
            return None
        report = self._planner.marked(scope.scan(self._log_dirs.scan_all))
        return compare_tiers(
            report,
            self._metadata,
            self._registry,
            self._clock.now_ms(),
            self._names.retentions_of_copies(report),
            partitions_out_of_sight(report, scope, self._cluster_metadata(), self._registry),
        )

    def _publish(self, report: SizeReport) -> None:
        gauges = SizeGauges(self._recorder)
        # A topic whose last segment was deleted has no size any more, and no lag either.
        topics = {*self._sizes.topic_names().values(), *(size.topic_id_partition.topic for size in report.sizes)}
        gauges.delete_lags(report.delete_lags, topics)
        gauges.cost(report.cost)
        publish_verdicts(self._recorder, report.verdicts)
        self._recorder.ended(RunKind.SIZES)
        if (tiers := report.tiers) is not None:
            # A log directory that cannot be read may hold any topic, so the values of others stay after an error.
            gauges.copy_lags(tiers.copy_lags, tiers.out_of_sight, are_all=not tiers.errors)
            read = {lag.topic_id_partition.topic for lag in tiers.copy_lags}
            by_topic = Counter(dict.fromkeys(read if tiers.errors else read | topics, 0))
            for duplicate in tiers.duplicates:
                by_topic[duplicate.topic_id_partition.topic] += duplicate.size_bytes
            gauges.duplicates("local", by_topic)
            gauges.log_dirs(self._log_dirs.free_bytes())
