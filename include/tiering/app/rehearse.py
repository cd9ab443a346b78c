"""A hand-over rehearsed: a sample of the topic on a throw-away broker, with a platform of its own beside it.

The deployment whose topic it is gives bytes of its log directories and the topic's configs, and is asked for nothing
else: database, store and quotas of the rehearsal lie in its temporary directory.

step        a crash right after it leaves                        cleaned up by
sampled     nothing                                              -
directory   the temporary directory, with copies of records      the block's end; after kill -9 a person: its path was
                                                                 told first
broker      the same, and a broker on loopback                   the same: its pid is told as well
"""

import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from include.tiering.app.app import App
from include.tiering.app.rehearse_on import Watcher, rehearse_on
from include.tiering.broker_process.kafka_home import KafkaHome
from include.tiering.broker_process.sample import PartitionSample, require_room, samples_of, size_of
from include.tiering.broker_process.throw_away import prepared_broker
from include.tiering.errors import ClusterFactsError, SettingError, SourceError, SourceVanishedError
from include.tiering.handover.rehearsal import Rehearsal
from include.tiering.kafka.cluster.contract import ClusterFacts
from include.tiering.kafka.cluster.facts import MissedFacts, UnknownFacts
from include.tiering.kafka.log_dirs.contract import ReplicaId
from include.tiering.kafka.log_dirs.dirs import identify
from include.tiering.kafka.log_dirs.source import LogDirSource
from include.tiering.model.ids import is_legal_topic_name
from include.tiering.presentation import count
from include.tiering.runs.cluster_log_dirs import named_log_dirs
from include.tiering.units import format_bytes

RETENTION_CONFIGS: Final = ("retention.ms", "retention.bytes", "local.retention.ms", "local.retention.bytes")
"""What of a topic's configs decides about its records while nobody writes: these are the rehearsed topic's too."""
_PREFIX: Final = "tiering-rehearsal-"


def rehearse(
    app: App, topic: str, kafka: KafkaHome, watcher: Watcher, *, max_bytes: int, keep: bool = False
) -> Rehearsal:
    """Hand a sample of the topic over on a broker of the release `kafka`, and read it back.

    Args:
        max_bytes: of each partition, in whole segments; see `samples_of`.
        keep: leave the temporary directory. The broker is ended all the same.

    Raises:
        SettingError: no log directories, or no topic name.
        UnknownTopicError, RehearsalError, SourceError, BrokersError: it did not come to a hand-over.
    """
    samples, configs = _sampled(app, topic, max_bytes)
    sources = _sources(app, samples)
    size_bytes = size_of(samples)
    parent = _parent(app)
    require_room(size_bytes, shutil.disk_usage(parent).free, parent)
    with _directory(parent, keep=keep) as root:
        watcher.told(f"{format_bytes(size_bytes)} of {count(len(samples), 'partition')} are copied into {root}")
        with watcher.counting("copying", size_bytes) as on_bytes:
            broker = prepared_broker(
                root,
                kafka,
                samples,
                sources,
                clock=app.adapters.clock,
                random_bytes=secrets.token_bytes,
                on_bytes=on_bytes,
            )
        with broker.running():
            watcher.told(f"Kafka {kafka.version} runs at {broker.process.bootstrap}, pid {broker.process.pid}")
            rehearsal = rehearse_on(broker, samples, configs, watcher, kafka.version)
        return replace(rehearsal, kept=root) if keep else rehearsal


def _sampled(app: App, topic: str, max_bytes: int) -> tuple[tuple[PartitionSample, ...], dict[str, str]]:
    if not is_legal_topic_name(topic):
        raise SettingError(f"not the name of a topic: {topic!r}")
    cluster = _facts(app)
    brokers = app.adapters.brokers if app.adapters.has_brokers else None
    source = LogDirSource(named_log_dirs(app.settings), cluster, named_topics=[topic], brokers=brokers)
    facts = cluster.topic_named(topic)
    samples = samples_of(topic, source.scan(topics=[topic]), facts, max_bytes)
    known: Mapping[str, str] = {} if facts is None else facts.configs
    return samples, {key: known[key] for key in RETENTION_CONFIGS if key in known}


def _facts(app: App) -> ClusterFacts:
    """Where nobody tells facts, nothing is asked of what the database remembers: it may not be there yet."""
    facts = app.adapters.facts
    return UnknownFacts() if isinstance(facts, MissedFacts) else facts


def _sources(app: App, samples: Sequence[PartitionSample]) -> dict[ReplicaId, Path]:
    """The log directory of each sample. Raises SourceVanishedError: one went away since it was scanned."""
    paths: dict[tuple[int, str], Path] = {}
    for log_dir in named_log_dirs(app.settings):
        with suppress(SourceError, ClusterFactsError):
            identity = identify(log_dir)
            paths[identity.broker_id, identity.directory_id] = log_dir.path
    found = {one.replica_id: paths.get((one.replica_id.broker_id, one.replica_id.directory_id)) for one in samples}
    sources = {replica_id: path for replica_id, path in found.items() if path is not None}
    if gone := found.keys() - sources.keys():
        raise SourceVanishedError(str(min(gone, key=str)), "its log directory went away while it was looked at")
    return sources


def _parent(app: App) -> Path:
    """The directory for temporary ones. Raises SettingError if it is a broker's."""
    parent = Path(tempfile.gettempdir()).resolve()
    for log_dir in named_log_dirs(app.settings):
        if parent.is_relative_to(log_dir.path.resolve()):
            raise SettingError(
                f"TMPDIR leads into the log directory {log_dir.path}, where nothing is written: change it"
            )
    return parent


@contextmanager
def _directory(parent: Path, *, keep: bool) -> Iterator[Path]:
    root = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    try:
        yield root
    finally:
        if not keep:
            shutil.rmtree(root)
