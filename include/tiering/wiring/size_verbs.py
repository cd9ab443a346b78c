"""What can be asked about sizes."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Final
from urllib.parse import urlsplit

from include.tiering.errors import ClusterFactsError, SourceError
from include.tiering.log_source.log_dir.dirs import LogDir, identify
from include.tiering.log_source.topic_patterns import matches
from include.tiering.model.cost import estimate_cost
from include.tiering.model.sizes import PartitionSize
from include.tiering.observability.failed_copy_metrics import publish_failed_copies
from include.tiering.observability.metrics import process_recorder
from include.tiering.observability.size_gauges import SizeGauges
from include.tiering.observability.verdict_metrics import publish_verdicts
from include.tiering.quality.judge import Judge
from include.tiering.quality.size_rules import SizeMeasure, StoredMeasure
from include.tiering.quality.suites import SIZE_SUITES, STORED_SUITES
from include.tiering.remote_metadata.sizes_contract import KeyRange, RemoteLogSizes, SizeRow
from include.tiering.remote_metadata.sql_sizes import SqlRemoteLogSizes
from include.tiering.reports.sizes import SizeReport
from include.tiering.tasks.compare_tiers import TierComparison, compare_tiers
from include.tiering.tasks.describe_log_dirs import KnownLogDir, LogDirDescription, describe_log_dirs
from include.tiering.tasks.out_of_sight import partitions_out_of_sight
from include.tiering.wiring.ingestion_verbs import IngestionVerbs
from include.tiering.wiring.name_parts import NameParts

NO_DUPLICATES: Final[Mapping[str, int]] = MappingProxyType({})
_HISTORY: Final = "sizes-history"


class SizeVerbs(IngestionVerbs, NameParts):
    """Part of `Tiering`."""

    @cached_property
    def remote_log_sizes(self) -> RemoteLogSizes:
        return SqlRemoteLogSizes(self.engine, self.cluster_id)

    def sizes(self) -> Sequence[PartitionSize]:
        """FINISHED sizes from the counters, published as RemoteLogSizeBytes (KIP-852), with what failed of them.

        Partitions that brokers tier are left out while not all is read that brokers wrote, and of their topics nothing
        is published.
        """
        unread = self.ingestion.unread()
        of_unread = {one.topic for one in unread}
        states = self.remote_log_sizes.partition_states()
        published = [one for one in states if one.topic_id_partition.topic not in of_unread]
        SizeGauges(process_recorder()).sizes(published)
        topics = {one.topic_id_partition.topic for one in published}
        publish_failed_copies(process_recorder(), self.failed_copies.all(), topics)
        return [one.finished for one in states if one.finished.segments and one.topic_id_partition not in unread]

    def size_report(self, topics: Collection[str] = (), *, look_at_log_dirs: bool = True) -> SizeReport:
        """Sizes, what waits and what it costs, of all topics or of those that match a pattern; published without
        patterns. The log dirs are scanned unless there are none, or it is not wanted."""

        def is_asked(topic: str) -> bool:
            return not topics or matches(topic, topics)

        sizes = [size for size in self.sizes() if is_asked(size.topic_id_partition.topic)]
        delete_lags = self.remote_log_sizes.delete_lags()
        tiers = self._tiers(topics) if look_at_log_dirs and self.settings.log_dirs else None
        cost = estimate_cost(
            sum(size.size_bytes for size in sizes), sum(size.segments for size in sizes), self.settings.prices.table()
        )
        lags = [lag for lag in delete_lags if is_asked(lag.topic_id_partition.topic)]
        unread = {one: why for one, why in self.ingestion.unread().items() if is_asked(one.topic)}
        report = SizeReport(sizes, lags, tiers, cost, () if topics else self.metadata.verdict_totals(), unread)
        if not topics:
            self._publish(report)
        return report

    def publish_recount(
        self, *, milliseconds: float, differences: int, duplicate_bytes: Mapping[str, int] = NO_DUPLICATES
    ) -> None:
        """What a size run took and found, as metrics of this process; `duplicate_bytes` of remote segments by topic."""
        gauges = SizeGauges(process_recorder())
        gauges.recount(milliseconds=milliseconds, differences=differences)
        topics = dict.fromkeys(self.remote_log_sizes.topic_names().values(), 0)
        gauges.duplicates("remote", {**topics, **duplicate_bytes})

    def describe_log_dirs(
        self, topics: Collection[str] = ()
    ) -> tuple[Sequence[LogDirDescription], Sequence[PartitionSize]]:
        """Every log dir with its replicas, and all that is remote.

        Raises:
            SettingError: there is no log dir.
        """
        patterns = tuple(topics) or ("*",)
        sizes = [size for size in self.sizes() if matches(size.topic_id_partition.topic, patterns)]
        return describe_log_dirs(self.source.scan(topics=patterns), self._known_log_dirs(), sizes), sizes

    def segment_ranges(self, ranges: int) -> Sequence[KeyRange]:
        """At most `ranges` ranges that together hold every segment of now once."""
        return self.remote_log_sizes.split(ranges)

    def export_segments(self, key_range: KeyRange) -> Iterator[Sequence[SizeRow]]:
        """Segments of one range, in pages: memory stays flat however many there are."""
        return self.remote_log_sizes.export(key_range)

    def size_judge(self) -> Judge[SizeMeasure]:
        # Great Expectations takes seconds to import: only those who judge wait.
        from include.tiering.quality.great_expectations_judge import GreatExpectationsJudge

        return GreatExpectationsJudge(SIZE_SUITES)

    def stored_judge(self) -> Judge[StoredMeasure]:
        from include.tiering.quality.great_expectations_judge import GreatExpectationsJudge

        return GreatExpectationsJudge(STORED_SUITES)

    def size_history_dir(self, run_dir: Path) -> Path:
        """As set, else beside a SQLite database, else below the directory of the size run."""
        if self.settings.sizes.history_path is not None:
            return Path(self.settings.sizes.history_path)
        database = urlsplit(self.settings.metadata.url.get_secret_value())
        beside = Path(database.path[1:]).parent if database.scheme == "sqlite" else run_dir
        return beside / _HISTORY

    def _tiers(self, topics: Collection[str]) -> TierComparison:
        wanted = tuple(topics) or self.settings.topics.include
        report = self.with_compacted(self.source.scan(topics=wanted))
        return compare_tiers(
            report,
            self.metadata,
            self.registry,
            self.clock.now_ms(),
            self.retentions_of_copies(report),
            partitions_out_of_sight(report, wanted, self.facts, self.registry),
        )

    def _publish(self, report: SizeReport) -> None:
        gauges = SizeGauges(process_recorder())
        gauges.delete_lags(report.delete_lags, {size.topic_id_partition.topic for size in report.sizes})
        gauges.cost(report.cost)
        publish_verdicts(process_recorder(), report.verdicts)
        if report.tiers is not None:
            gauges.copy_lags(report.tiers.copy_lags, report.tiers.out_of_sight)
            by_topic: Counter[str] = Counter()
            for one in report.tiers.duplicates:
                by_topic[one.topic_id_partition.topic] += one.size_bytes
            gauges.duplicates("local", by_topic)

    def _known_log_dirs(self) -> list[KnownLogDir]:
        known = []
        for log_dir in self.settings.log_dirs:
            found = KnownLogDir(log_dir.broker_id, str(log_dir.path), None)
            try:
                identity = identify(LogDir(log_dir.broker_id, log_dir.path))
            except (SourceError, ClusterFactsError) as error:
                known.append(replace(found, error=f"{type(error).__name__}: {error}"))
            else:
                known.append(replace(found, directory_id=identity.directory_id))
        return known
