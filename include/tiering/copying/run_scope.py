"""Which partitions a run takes: the value that a form, a command and the services pass on."""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Self, TypeVar

from include.tiering.errors import ClusterMetadataError
from include.tiering.kafka.cluster.contract import ClusterMetadata, TopicMetadata
from include.tiering.kafka.log_dirs.contract import ScanReport, matches
from include.tiering.model.segments import TopicIdPartition

_Read = TypeVar("_Read")


@dataclass(frozen=True, slots=True)
class RunScope:
    """Which partitions a run takes. The services pass it on; only its methods say what it means.

    To add a criterion, such as a broker, add a field here and apply it in `scan`, `in_cluster` and `archived`, because
    partitions are found in the source, in the cluster's metadata and in the archive. `scope_of` in
    `plugins/tiering_airflow/run_form.py` makes a scope from the fields of a DAG's form.

    A partition that the run does not take must be missing in the report that `scan` returns. It is not enough to leave
    it out of the plan: the scan then shows the partition, the plan names no loss of it, and `record_losses` removes its
    stored losses as settled. The same holds for the report's errors: each fails the run, so of the errors about
    partitions `scan` returns only those about partitions that the run takes.

    `topics` are patterns of topic names; without any pattern the run takes nothing, see `or_topics`.
    """

    topics: tuple[str, ...] = ()

    def or_topics(self, topics: Iterable[str]) -> Self:
        """Return this scope, or a scope with these topics if it has none."""
        return self if self.topics else replace(self, topics=tuple(topics))

    def scan(self, scan: Callable[..., ScanReport]) -> ScanReport:
        """Return a scan of the topics of the run. `scan` is the method of a `LogSource`, or of `ClusterLogDirs`."""
        return scan(topics=self.topics)

    def in_cluster(self, cluster_metadata: ClusterMetadata) -> Iterator[TopicMetadata]:
        """Yield the topics of the cluster that the run takes, ordered by name.

        A topic is left out if its metadata cannot be read and a retry cannot help, as without a permission.

        Raises:
            ClusterMetadataError: the cluster's metadata cannot be read now; a retry may succeed.
        """
        names: Collection[str] | None = self.topics
        if set("*?[") & set("".join(self.topics)):
            names = _readable(cluster_metadata.topic_names)
        for name in sorted(set(names or ())):
            if matches(name, self.topics) and (topic := _readable(cluster_metadata.topic_named, name)) is not None:
                yield topic

    def archived(self, partitions: Iterable[TopicIdPartition]) -> set[TopicIdPartition]:
        """Return the partitions that the run takes, out of these partitions with remote segments."""
        return {partition for partition in partitions if matches(partition.topic, self.topics)}


AS_CONFIGURED: Final = RunScope()
"""The scope of a run that names no criterion: the settings say which topics it takes."""


def _readable(read: Callable[..., _Read], *names: str) -> _Read | None:
    """Return what `read` returns; None if it fails and a retry cannot help, for lack of a permission for example."""
    try:
        return read(*names)
    except ClusterMetadataError as error:
        if error.retriable:
            raise
        return None
