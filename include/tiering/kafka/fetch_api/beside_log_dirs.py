"""Log directories where the leader's broker has one in the settings, and the leaders' logs elsewhere.

| the broker that leads a partition                 | its segments come from                                    |
|---|---|
| has an entry in `log_dirs`                        | that broker's directories, and from nothing else          |
| has none                                          | the leader, over the network                              |
| has one, and the directory cannot be read         | nothing: the partition waits, and the scan names the path |

So the settings and the leader alone decide. A disk that is away for a moment changes nothing, because the two sources
cut the log at other offsets: if each mount changed the source, the segment at each change would be copied twice. A
move of the leadership does the same as between two brokers with directories: the next segment of the new source is
taken whole.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager

from include.tiering.kafka.cluster.contract import Brokers
from include.tiering.kafka.fetch_api.contract import DIRECTORY_ID
from include.tiering.kafka.log_dirs.contract import (
    LogSegment,
    LogSource,
    OpenSegment,
    Replica,
    ReplicaId,
    ScanError,
    ScanReport,
    UnfinishedTransaction,
    go_on_always,
    matches,
)
from include.tiering.kafka.log_dirs.rules import merged
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import TopicIdPartition


class OtherLeaders:
    """The logs of leaders whose brokers have no entry in `log_dirs`. Thread-safe.

    Args:
        brokers: of the cluster.
        with_log_dirs: the ids of the brokers that have an entry.
        source: returns the source without the logs of these brokers. Only called if other brokers lead a partition,
            because it needs the database.
    """

    def __init__(self, brokers: Brokers, with_log_dirs: frozenset[int], source: Callable[[], LogSource]) -> None:
        self._brokers = brokers
        self._with_log_dirs = with_log_dirs
        self.source = source

    def lead(self, topics: Collection[str] | None) -> bool:
        """Return whether they lead a partition of a topic that matches one of the patterns (None: of any topic).

        Raises:
            BrokersError: the brokers do not answer.
        """
        found = self._brokers.topic_leaders()
        leaders = {leader for name, of_topic in found.items() if matches(name, topics) for leader in of_topic}
        return any(leader >= 0 for leader in leaders - self._with_log_dirs)

    def scan(self, topics: Collection[str] | None) -> list[ScanReport]:
        """Return the scan of the topics that match one of the patterns; nothing if these brokers lead none of them.

        Raises:
            BrokersError: the brokers do not answer.
            MetadataUnavailableError: they lead one, and the database cannot be read.
        """
        return [self.source().scan(topics=topics)] if self.lead(topics) else []


class LogDirsAndLeaders:
    """`LogSource` over both. Thread-safe, as they are.

    Args:
        log_dirs: all log directories of the settings.
        others: what is beside them.
    """

    def __init__(self, log_dirs: LogSource, others: OtherLeaders) -> None:
        self._log_dirs = log_dirs
        self.others = others

    def scan(self, *, topics: Collection[str] | None = None, deep: bool = False) -> ScanReport:
        return merged([self._log_dirs.scan(topics=topics, deep=deep), *self.others.scan(topics)])

    def find_segments(
        self,
        *,
        topics: Collection[str] | None,
        copied_to: Callable[[TopicIdPartition], int | None],
        go_on: Callable[[str], None],
    ) -> Sequence[ScanError]:
        if not self.others.lead(topics):
            return ()
        return self.others.source().find_segments(topics=topics, copied_to=copied_to, go_on=go_on)

    def replica(self, replica_id: ReplicaId) -> Replica:
        return self._of(replica_id).replica(replica_id)

    def leader_epochs(self, replica: Replica) -> LeaderEpochs:
        return self._of(replica.replica_id).leader_epochs(replica)

    def size_doubts(self, replica_id: ReplicaId, segments: Sequence[LogSegment]) -> Mapping[int, str]:
        return self._of(replica_id).size_doubts(replica_id, segments)

    def leading_compacted(self, replica_id: ReplicaId, segments: Sequence[LogSegment]) -> Sequence[LogSegment]:
        return self._of(replica_id).leading_compacted(replica_id, segments)

    def unfinished_transactions(self, replica_id: ReplicaId) -> Sequence[UnfinishedTransaction]:
        return self._of(replica_id).unfinished_transactions(replica_id)

    def open_segment(
        self, replica_id: ReplicaId, base_offset: int, *, go_on: Callable[[], object] = go_on_always
    ) -> AbstractContextManager[OpenSegment]:
        return self._of(replica_id).open_segment(replica_id, base_offset, go_on=go_on)

    def _of(self, replica_id: ReplicaId) -> LogSource:
        return self.others.source() if replica_id.directory_id == DIRECTORY_ID else self._log_dirs
