"""Scans of the log directories in the settings, or of the leaders, and the check that they belong to the cluster."""

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from include.tiering.errors import ClusterMetadataError, ForeignClusterError, SettingError, SourceError
from include.tiering.kafka.cluster.contract import Brokers
from include.tiering.kafka.log_dirs.contract import LogSource, ScanReport
from include.tiering.kafka.log_dirs.dirs import LogDirLocation, identify
from include.tiering.model.segments import TopicIdPartition
from include.tiering.runs.contract import ANYWHERE, Placement
from include.tiering.settings import TieringSettings


@dataclass(frozen=True, slots=True)
class KnownLogDir:
    """An entry of the setting `log_dirs`. `directory_id` is None if `error` says why it cannot be identified."""

    broker_id: int
    path: str
    directory_id: str | None
    error: str | None = None


def configured_log_dirs(settings: TieringSettings) -> list[LogDirLocation]:
    """Return the entries of the setting `log_dirs`.

    Raises:
        SettingError: `log_dirs` is empty.
    """
    if not settings.log_dirs:
        raise SettingError("log_dirs is empty: name the brokers' log directories ({broker_id, path})")
    return [LogDirLocation(log_dir.broker_id, log_dir.path) for log_dir in settings.log_dirs]


class ClusterLogDirs:
    """Scans log directories, and checks that they and the brokers belong to the cluster that the database serves."""

    def __init__(
        self,
        *,
        settings: TieringSettings,
        cluster_id: Callable[[], str],
        source: Callable[[], LogSource],
        brokers: Callable[[], Brokers] | None,
    ) -> None:
        self._settings = settings
        self._cluster_id = cluster_id
        self._source = source
        self._brokers = brokers

    @property
    def are_configured(self) -> bool:
        return bool(self._settings.log_dirs)

    @property
    def reads_leaders(self) -> bool:
        """Whether segments are read from the leaders, as there are bootstrap servers and no log dirs."""
        return self._brokers is not None and not self.are_configured

    def require_configured(self) -> None:
        """Raise SettingError if `log_dirs` is empty, so that segments are read from leaders, if at all."""
        configured_log_dirs(self._settings)

    def find_and_scan(
        self,
        topics: Collection[str],
        *,
        copied_to: Callable[[TopicIdPartition], int | None],
        go_on: Callable[[str], None],
    ) -> ScanReport:
        """Find segments that are not known yet, see `LogSource.find_segments`, and scan; their errors come first."""
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
        cluster_id, report = self._cluster_id(), self._source().scan(topics=topics)
        if report.cluster_id not in (None, cluster_id):
            raise SettingError(
                f"log_dirs belong to cluster {report.cluster_id}, the database serves cluster {cluster_id}"
            )
        return report

    def scan_all(self, *, topics: Collection[str] | None = None, deep: bool = False) -> ScanReport:
        """Scan without a check to which cluster the log directories belong, for which no database is needed.

        Args:
            topics: shell-style patterns of topic names; None for all topics.
            deep: read and check every record batch, see `LogSource.scan`.
        """
        return self._source().scan(topics=topics, deep=deep)

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

        Log dirs without a placement, and those that cannot be identified on this host, are absent.
        """
        placements = {}
        for log_dir in self._settings.log_dirs:
            placement = Placement(log_dir.queue, log_dir.spark_resource)
            if placement == ANYWHERE:
                continue
            # A log dir that is unreadable, or not what the settings say, is reported by the scan and never planned.
            with suppress(SourceError, ClusterMetadataError):
                identity = identify(LogDirLocation(log_dir.broker_id, log_dir.path))
                placements[identity.broker_id, identity.directory_id] = placement
        return placements

    def known(self) -> list[KnownLogDir]:
        """Return every log dir of the settings with its directory id, or with the reason why it has none."""
        known = []
        for log_dir in self._settings.log_dirs:
            found = KnownLogDir(log_dir.broker_id, str(log_dir.path), None)
            try:
                identity = identify(LogDirLocation(log_dir.broker_id, log_dir.path))
            except (SourceError, ClusterMetadataError) as error:
                known.append(replace(found, error=f"{type(error).__name__}: {error}"))
            else:
                known.append(replace(found, directory_id=identity.directory_id))
        return known

    def log_ends(self, topics: Collection[str]) -> Mapping[TopicIdPartition, int]:
        """Return the log end offsets (exclusive) of partitions of these topics, from the leaders' replicas.

        A partition is absent if its leader's replica is not found in the log dirs or cannot be read.
        """
        replicas = self._source().scan(topics=topics).replicas
        return {replica.topic_id_partition: replica.log_end_offset for replica in replicas if replica.chosen}

    def first_cluster_id(self) -> str | None:
        """Return the cluster id in the first log dir that can be identified; None if no log dir can."""
        for log_dir in configured_log_dirs(self._settings) if self._settings.log_dirs else ():
            with suppress(SourceError, ClusterMetadataError):
                return identify(log_dir).cluster_id
        return None
