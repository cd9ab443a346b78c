"""Scans of the log directories in the settings, and of leaders without one, and the check of their cluster.

Log dirs that only the workers of an Airflow queue can read are scanned by such a worker, which stores its report
(`report_queue`). A scan on a host that can read none of a queue's log dirs takes the stored report in their place. A
report that is too old, or about other topics, is not used: the scan then names the log dirs as unreadable, with their
queue, and nothing of them is planned. What needs the files themselves (a copy, or the local bytes that an expiration
counts) reads only files of the host on which it runs.
"""

import shutil
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from include.tiering.errors import (
    ClusterMetadataError,
    ForeignClusterError,
    SettingError,
    SourceError,
    SourceUnreadableError,
)
from include.tiering.kafka.cluster.contract import Brokers
from include.tiering.kafka.log_dirs.contract import LogSource, ScanError, ScanReport, matches
from include.tiering.kafka.log_dirs.dirs import LogDirLocation, identify
from include.tiering.kafka.log_dirs.rules import merged
from include.tiering.model.segments import TopicIdPartition
from include.tiering.runs.contract import ANYWHERE, Placement
from include.tiering.settings import LogDir, TieringSettings
from include.tiering.units import format_utc

if TYPE_CHECKING:
    from include.tiering.runs.sql_queue_scans import SqlQueueScans

MOST_AGE_MS: Final = 15 * 60 * 1000
"""The highest age of a report that is used. A run plans some seconds after its tasks have stored the reports."""
_PATTERN: Final = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class KnownLogDir:
    """An entry of the setting `log_dirs`. `directory_id` is None if `error` says why it cannot be identified."""

    broker_id: int
    path: str
    directory_id: str | None
    error: str | None = None


def known_log_dir(log_dir: LogDir) -> KnownLogDir:
    """Identify a log dir on this host."""
    found = KnownLogDir(log_dir.broker_id, str(log_dir.path), None)
    try:
        return replace(found, directory_id=identify(LogDirLocation(log_dir.broker_id, log_dir.path)).directory_id)
    except (SourceError, ClusterMetadataError) as error:
        return replace(found, error=f"{type(error).__name__}: {error}")


def is_here(log_dir: LogDirLocation) -> bool:
    """Return whether this host has the log dir. A log dir of another broker at the same path does not count."""
    with suppress(SourceError, ClusterMetadataError):
        identify(log_dir)
        return True
    return False


@dataclass(frozen=True, slots=True)
class QueueScan:
    """What a worker of a queue found: its log dirs, and the scan of them for topics that match one of `topics`.

    `run_id` is that of the DAG run that scanned, `scanned_at_ms` the database's time.
    """

    queue: str
    run_id: str
    host: str
    topics: tuple[str, ...]
    log_dirs: tuple[KnownLogDir, ...]
    report: ScanReport
    scanned_at_ms: int = 0

    def why_not(self, topics: Collection[str] | None, now_ms: int) -> str | None:
        """Return why the report cannot be used for these topics (None: all topics) now; None if it can."""
        reported = f"a worker of queue {self.queue} last reported it at {format_utc(self.scanned_at_ms)}"
        if now_ms - self.scanned_at_ms > MOST_AGE_MS:
            return f"{reported}, more than {MOST_AGE_MS // 60_000} minutes ago: does a worker of that queue run?"
        if not all(self._has(topic) for topic in (("*",) if topics is None else topics)):
            return f"{reported}, and only for the topics {', '.join(self.topics)}"
        return None

    def _has(self, topic: str) -> bool:
        return topic in self.topics or "*" in self.topics or (not _PATTERN & set(topic) and matches(topic, self.topics))

    def report_of(self, topics: Collection[str] | None) -> ScanReport:
        """Return the report without replicas of other topics, and without errors and notes about their partitions."""

        def is_asked(error: ScanError) -> bool:
            return not error.partition or matches(error.partition.rpartition("-")[0], topics)

        found = (replica for replica in self.report.replicas if matches(replica.topic_id_partition.topic, topics))
        errors, notes = (tuple(filter(is_asked, each)) for each in (self.report.errors, self.report.notes))
        return replace(self.report, replicas=tuple(found), errors=errors, notes=notes)


def _of_cluster(cluster_id: str, report: ScanReport) -> ScanReport:
    """Return the report. Raises SettingError if it is of another cluster."""
    if report.cluster_id not in (None, cluster_id):
        raise SettingError(f"log_dirs belong to cluster {report.cluster_id}, the database serves cluster {cluster_id}")
    return report


def configured_log_dirs(settings: TieringSettings) -> list[LogDirLocation]:
    """Return the entries of the setting `log_dirs`.

    Raises:
        SettingError: `log_dirs` is empty.
    """
    if not settings.log_dirs:
        raise SettingError("log_dirs is empty: name the brokers' log directories ({broker_id, path})")
    return [LogDirLocation(log_dir.broker_id, log_dir.path) for log_dir in settings.log_dirs]


class ClusterLogDirs:
    """Scans log directories, and checks that they and the brokers belong to the cluster that the database serves.

    Args:
        settings: the settings.
        cluster_id: returns the id of the cluster that the database serves.
        source: opens all log directories, with the leaders beside them; without any, the leaders.
        source_of: opens the given log directories.
        beside: scans the logs of leaders without a log directory in the settings, by patterns of topics.
        queue_scans: opens the store of the reports of queues.
        brokers: connects to the brokers; None if the settings have no bootstrap servers.
    """

    def __init__(
        self,
        *,
        settings: TieringSettings,
        cluster_id: Callable[[], str],
        source: Callable[[], LogSource],
        source_of: Callable[[Sequence[LogDirLocation]], LogSource],
        beside: Callable[[Collection[str] | None], Sequence[ScanReport]],
        queue_scans: "Callable[[], SqlQueueScans]",
        brokers: Callable[[], Brokers] | None,
    ) -> None:
        self._settings = settings
        self._cluster_id = cluster_id
        self._source = source
        self._source_of = source_of
        self._beside = beside
        self._queue_scans = queue_scans
        self._brokers = brokers

    @property
    def are_configured(self) -> bool:
        return bool(self._settings.log_dirs)

    @property
    def reads_leaders(self) -> bool:
        """Whether segments are read from the leaders, as there are bootstrap servers and no log dirs."""
        return self._brokers is not None and not self.are_configured

    def require_configured(self) -> None:
        """Raise SettingError if `log_dirs` is empty: then segments are read from the leaders, or not at all."""
        configured_log_dirs(self._settings)

    def find_and_scan(
        self,
        topics: Collection[str],
        *,
        copied_to: Callable[[TopicIdPartition], int | None],
        go_on: Callable[[str], None],
    ) -> ScanReport:
        """Find segments that are not known yet (`LogSource.find_segments`), then scan; errors of finding come first."""
        self.require_cluster()
        errors = self._source().find_segments(topics=topics, copied_to=copied_to, go_on=go_on)
        report = self.scan(topics)
        return replace(report, errors=(*errors, *report.errors))

    def scan(self, topics: Collection[str]) -> ScanReport:
        """Scan the replicas of the topics whose names match one of the shell-style patterns `topics`.

        Raises:
            SettingError: there are neither log dirs nor bootstrap servers, or the log dirs belong to another cluster
                than the database.
            MetadataUnavailableError, BrokersError: as for `require_cluster`.
        """
        self.require_cluster()
        cluster_id = self._cluster_id()
        return _of_cluster(cluster_id, self.scan_all(topics=topics))

    def scan_files(self, topics: Collection[str]) -> ScanReport:
        """Scan as `scan`, and leave out what is read over the network: which files it has on a disk is not known."""
        report = self.scan(topics)
        return replace(report, replicas=tuple(replica for replica in report.replicas if replica.found_to is None))

    def report_queue(
        self, queue: str, run_id: str, topics: Sequence[str], marked: Callable[[ScanReport], ScanReport]
    ) -> ScanReport:
        """Scan the log dirs of a queue on a worker of this queue, and store the report for scans on other hosts.

        Args:
            queue: the queue of Airflow, as `log_dirs` names it.
            run_id: the id of the DAG run that the scan belongs to.
            topics: shell-style patterns of topic names.
            marked: adds to the report what can only be found in the files.

        Raises:
            SettingError: no log dir has this queue, or its log dirs belong to another cluster than the database.
            SourceError, ClusterMetadataError: none of the queue's log dirs can be identified on this host.
            MetadataUnavailableError, BrokersError: as for `require_cluster`.
        """
        self.require_cluster()
        log_dirs = self._by_queue().get(queue)
        if not log_dirs:
            raise SettingError(
                f"no entry of log_dirs on {socket.gethostname()} has the queue {queue}: correct log_dirs"
            )
        known = [known_log_dir(log_dir) for log_dir in self._settings.log_dirs if log_dir.queue == queue]
        if not any(log_dir.directory_id for log_dir in known):
            identify(log_dirs[0])
        report = marked(_of_cluster(self._cluster_id(), self._source_of(log_dirs).scan(topics=topics)))
        self._queue_scans().save(QueueScan(queue, run_id, socket.gethostname(), tuple(topics), tuple(known), report))
        return report

    def _by_queue(self) -> Mapping[str, Sequence[LogDirLocation]]:
        by_queue: dict[str, list[LogDirLocation]] = {}
        for log_dir in self._settings.log_dirs:
            if log_dir.queue is not None:
                by_queue.setdefault(log_dir.queue, []).append(LogDirLocation(log_dir.broker_id, log_dir.path))
        return by_queue

    def elsewhere(self) -> Mapping[str, Sequence[LogDirLocation]]:
        """Return, by queue, the log dirs of each queue of whose log dirs this host can read none."""
        return {queue: log_dirs for queue, log_dirs in self._by_queue().items() if not any(map(is_here, log_dirs))}

    def free_bytes(self) -> Mapping[tuple[int, str], int | None]:
        """Return the free bytes of the disk of each log directory, by broker and path; None if it cannot be read.

        An empty mount point is another disk. Log directories that only other hosts can read are left out.
        """
        elsewhere = {str(log_dir.path) for log_dirs in self.elsewhere().values() for log_dir in log_dirs}
        found: dict[tuple[int, str], int | None] = {}
        for log_dir in self._settings.log_dirs:
            key = log_dir.broker_id, str(log_dir.path)
            if is_here(LogDirLocation(log_dir.broker_id, log_dir.path)):
                with suppress(OSError):
                    found[key] = shutil.disk_usage(log_dir.path).free
            elif key[1] not in elsewhere:
                found[key] = None
        return found

    def not_scanned_in(self, run_id: str) -> Sequence[str]:
        """Return the queues whose log dirs are elsewhere and were not reported in this run.

        Raises:
            MetadataUnavailableError: the database is locked or unreachable.
        """
        elsewhere = self.elsewhere()
        runs = self._queue_scans().runs() if elsewhere else {}
        return [queue for queue in elsewhere if runs.get(queue) != run_id]

    def reported(self, topics: Collection[str] | None = ()) -> tuple[Sequence[QueueScan], Mapping[str, str]]:
        """Return the usable reports of log dirs elsewhere, and by queue why the other queues have none.

        Args:
            topics: the topics that a report has to cover, as shell-style patterns; None for all topics.

        Raises:
            MetadataUnavailableError: the database is locked or unreachable.
        """
        return self._reported(self.elsewhere(), topics)

    def _reported(
        self, queues: Collection[str], topics: Collection[str] | None
    ) -> tuple[Sequence[QueueScan], Mapping[str, str]]:
        found: list[QueueScan] = []
        missing: dict[str, str] = {}
        if queues:
            scans, now_ms = self._queue_scans().all(), self._queue_scans().now_ms()
            for queue in queues:
                scan = scans.get(queue)
                if scan is None:
                    missing[queue] = f"no worker of queue {queue} has reported it: does a worker of that queue run?"
                elif (why_not := scan.why_not(topics, now_ms)) is not None:
                    missing[queue] = why_not
                else:
                    found.append(scan)
        return found, missing

    def scan_all(self, *, topics: Collection[str] | None = None, deep: bool = False) -> ScanReport:
        """Scan without a check to which cluster the log directories belong.

        Needs no database, unless only workers of a queue can read a log directory, or leaders are scanned.

        Args:
            topics: shell-style patterns of topic names; None for all topics.
            deep: read and check every record batch, see `LogSource.scan`; of log directories on this host only.
        """
        elsewhere = self.elsewhere()
        if not elsewhere:
            return self._source().scan(topics=topics, deep=True) if deep else self._source().scan(topics=topics)
        found, missing = ((), {}) if deep else self._reported(elsewhere, topics)
        if deep:
            missing = {queue: f"a deep scan reads it only on a worker of queue {queue}" for queue in elsewhere}
        away = {log_dir for log_dirs in elsewhere.values() for log_dir in log_dirs}
        here = self._source_of([log_dir for log_dir in configured_log_dirs(self._settings) if log_dir not in away])
        report = here.scan(topics=topics, deep=deep)
        errors = tuple(
            ScanError(str(log_dir.path), None, SourceUnreadableError.__name__, why)
            for queue, why in missing.items()
            for log_dir in elsewhere[queue]
        )
        reported = (scan.report_of(topics) for scan in found)
        return merged([replace(report, errors=(*report.errors, *errors)), *reported, *self._beside(topics)])

    def require_cluster(self) -> None:
        """Check that the brokers belong to the database's cluster; without bootstrap servers this is not checked.

        Raises:
            MetadataUnavailableError: the database cannot be read, or serves no cluster.
            ForeignClusterError: the brokers belong to another cluster than the database.
            BrokersError: another error of the brokers.
        """
        expected = self._cluster_id()
        if self._brokers is not None and (found := self._brokers().cluster_id()) != expected:
            raise ForeignClusterError(
                f"cluster.bootstrap_servers lead to cluster {found}, the database serves cluster {expected}: correct "
                "one of cluster.bootstrap_servers and metadata.url"
            )

    def placements(self) -> dict[tuple[int, str], Placement]:
        """Return the placements of log dirs, by broker id and directory id.

        Log dirs without a placement, and those of which neither this host nor a worker of their queue knows the
        directory id, are absent: a scan reports them, and they are never planned.
        """
        placements = [Placement(log_dir.queue, log_dir.spark_resource) for log_dir in self._settings.log_dirs]
        if set(placements) <= {ANYWHERE}:
            return {}
        return {
            (log_dir.broker_id, log_dir.directory_id): placement
            for log_dir, placement in zip(self.known(), placements, strict=True)
            if log_dir.directory_id is not None and placement != ANYWHERE
        }

    def known(self, topics: Collection[str] = ()) -> list[KnownLogDir]:
        """Return every log dir of the settings with its directory id, or with the reason why it has none.

        Args:
            topics: the topics that reports of log dirs on other hosts have to cover, as shell-style patterns.

        Raises:
            MetadataUnavailableError: only workers of a queue can read a log dir, and the database cannot be read.
        """
        found, missing = self.reported(topics)
        reported = {(each.broker_id, each.path): each for scan in found for each in scan.log_dirs}
        known = []
        for log_dir in self._settings.log_dirs:
            broker_id, path = log_dir.broker_id, str(log_dir.path)
            if log_dir.queue is not None and log_dir.queue in missing:
                known.append(KnownLogDir(broker_id, path, None, missing[log_dir.queue]))
            else:
                known.append(reported.get((broker_id, path)) or known_log_dir(log_dir))
        return known

    def log_ends(self, topics: Collection[str]) -> Mapping[TopicIdPartition, int]:
        """Return the log end offsets (exclusive) of partitions of these topics, from the leaders' replicas.

        A partition is absent if its leader's replica is not found in the log dirs or cannot be read.
        """
        replicas = (replica for replica in self._source().scan(topics=topics).replicas if replica.found_to is None)
        return {replica.topic_id_partition: replica.log_end_offset for replica in replicas if replica.chosen}

    def first_cluster_id(self) -> str | None:
        """Return the cluster id in the first log dir that can be identified; None if no log dir can."""
        for log_dir in configured_log_dirs(self._settings) if self._settings.log_dirs else ():
            with suppress(SourceError, ClusterMetadataError):
                return identify(log_dir).cluster_id
        return None
