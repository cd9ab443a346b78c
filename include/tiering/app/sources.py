"""Where segments are read: the log directories and the leaders of the settings.

| `log_dirs` | `cluster.bootstrap_servers` | segments come from |
|---|---|---|
| set | not set | the log directories |
| not set | set | the leaders |
| set | set | the log directories of brokers that have an entry, and the leaders elsewhere |
"""

import tempfile
from collections.abc import Collection, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from include.tiering.runs.cluster_log_dirs import configured_log_dirs

if TYPE_CHECKING:
    from include.tiering.app.adapters import Adapters
    from include.tiering.kafka.fetch_api.beside_log_dirs import OtherLeaders
    from include.tiering.kafka.fetch_api.source import FetchSource
    from include.tiering.kafka.log_dirs.contract import LogSource, ScanReport
    from include.tiering.kafka.log_dirs.dirs import LogDirLocation
    from include.tiering.kafka.log_dirs.source import LogDirSource


def log_source(adapters: "Adapters") -> "LogSource":
    """Return the source of all segments, see the table above.

    Raises:
        SettingError: there are neither log_dirs nor bootstrap servers.
        MetadataUnavailableError: there are no log_dirs, and the database is not set up.
    """
    if adapters.has_brokers and not adapters.settings.log_dirs:
        return _leaders(adapters)
    log_dirs = source_of(adapters, configured_log_dirs(adapters.settings))
    if not adapters.has_brokers:
        return log_dirs
    from include.tiering.kafka.fetch_api.beside_log_dirs import LogDirsAndLeaders

    return LogDirsAndLeaders(log_dirs, _other_leaders(adapters))


def scan_beside(adapters: "Adapters", topics: Collection[str] | None) -> "Sequence[ScanReport]":
    """Return the scan of leaders without a log directory in the settings; see `OtherLeaders.scan`."""
    from include.tiering.kafka.fetch_api.beside_log_dirs import LogDirsAndLeaders

    source = adapters.source
    return source.others.scan(topics) if isinstance(source, LogDirsAndLeaders) else ()


def source_of(adapters: "Adapters", log_dirs: "Sequence[LogDirLocation]") -> "LogDirSource":
    """Return a source of some of the log directories."""
    from include.tiering.kafka.log_dirs.found_replica import cache_names
    from include.tiering.kafka.log_dirs.source import LogDirSource

    return LogDirSource(
        log_dirs,
        adapters.cluster_metadata,
        named_topics=adapters.settings.topics.include,
        recorded=cache_names(lambda topic_id: adapters.stores.registry.recorded_name(topic_id)),
        brokers=adapters.brokers if adapters.has_brokers else None,
    )


def _other_leaders(adapters: "Adapters") -> "OtherLeaders":
    from include.tiering.kafka.fetch_api.beside_log_dirs import OtherLeaders

    with_log_dirs = frozenset(log_dir.broker_id for log_dir in adapters.settings.log_dirs)
    return OtherLeaders(adapters.brokers, with_log_dirs, cache(lambda: _leaders(adapters, leaves_out=with_log_dirs)))


def _leaders(adapters: "Adapters", *, leaves_out: Collection[int] = ()) -> "FetchSource":
    from include.tiering.kafka.cluster.cluster_metadata import AdminClusterMetadata, UnknownClusterMetadata
    from include.tiering.kafka.fetch_api.source import FetchLimits, FetchSource
    from include.tiering.kafka.fetch_api.spool import Spool

    leaders = adapters.settings.leaders
    return FetchSource(
        adapters.brokers,
        # Of its own: a source that refreshes it must not change what another one reads at the same time.
        AdminClusterMetadata(adapters.brokers, UnknownClusterMetadata()),
        adapters.leader_logs,
        adapters.stores.fetched_ranges,
        Spool(Path(leaders.spool_directory or tempfile.gettempdir()), leaders.spool_max_bytes, adapters.clock),
        limits=FetchLimits(find_bytes=leaders.find_bytes, settle_ms=leaders.settle_ms),
        leaves_out=leaves_out,
    )
