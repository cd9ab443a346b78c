"""Which topic a name means: what is set on a name is about the topic that has it now."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property

from include.tiering.log_source.contract import ScanReport
from include.tiering.model.failed_copies import FailedCopy
from include.tiering.model.ids import TopicIdPartition
from include.tiering.quota.topic_retention import TopicRetention
from include.tiering.remote_metadata.sql_topic_deletions import SqlTopicDeletions
from include.tiering.remote_metadata.topic_deletions_contract import TopicDeletions
from include.tiering.tasks.next_segments import NOTHING_FAILED, with_compacted
from include.tiering.tasks.topic_standing import TopicWatch
from include.tiering.wiring.parts import Parts


class NameParts(Parts):
    """Part of `Tiering`."""

    @cached_property
    def topic_deletions(self) -> TopicDeletions:
        return SqlTopicDeletions(self.engine, self.cluster_id)

    def with_compacted(
        self, report: ScanReport, failed: Mapping[TopicIdPartition, Sequence[FailedCopy]] = NOTHING_FAILED
    ) -> ScanReport:
        """The report, in which segments that are to be copied next, or anew, say that they are compacted, if they
        are."""
        return with_compacted(report, self.metadata, self.source.leading_compacted, failed)

    @property
    def topic_watch(self) -> TopicWatch:
        return TopicWatch(self.cluster_id, self.facts, self.topic_deletions)

    def retentions_of_copies(self, report: ScanReport) -> dict[str, TopicRetention]:
        """What is set on topics, by name, as far as it may keep a first copy from beginning at the log start: without
        names of several topics while the cluster does not say which of them has it now."""
        retentions = self.topic_retentions()
        if not retentions:
            return {}
        seen = {one.topic_id_partition.topic_id: one.topic_id_partition.topic for one in report.replicas}
        doubtful = self.topic_watch.doubtful_names({**self.registry.names_in_use(), **seen})
        return {name: retention for name, retention in retentions.items() if name not in doubtful}

    def shared_names(self) -> frozenset[str]:
        """Names that more than one topic of the database has, or had."""
        counted = Counter(self.registry.names_in_use().values())
        return frozenset(name for name, topics in counted.items() if topics > 1)
