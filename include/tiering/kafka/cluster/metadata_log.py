"""Topic facts without a connection: the replicas of `__cluster_metadata-0` in brokers' log directories.

Every broker keeps one in its metadata log directory. Of several, the one with the highest log end speaks: a replica may
lag, and each is a consistent view of some moment. Values of records are never logged.
"""

import logging
from collections.abc import Collection, Sequence
from pathlib import Path

from include.tiering.errors import ClusterFactsError, SourceError, printable
from include.tiering.kafka.cluster.contract import TopicFacts
from include.tiering.kafka.cluster.image import ClusterImage
from include.tiering.kafka.cluster.metadata_replica import MetadataReplica
from include.tiering.kafka.log_dirs.names import METADATA_LOG
from include.tiering.model.ids import Uuid

_LOG = logging.getLogger(__name__)


class MetadataLog:
    """`ClusterFacts` over log directories. Reads at the first question or `refresh`, never at construction.

    After a `refresh` that failed nothing is known, until one succeeds: old facts could hide that a topic was deleted.

    Args:
        log_dirs: log directories of one cluster; those without a metadata log are passed over.
    """

    def __init__(self, log_dirs: Sequence[Path]) -> None:
        self._replicas = [MetadataReplica(str(path)) for path in log_dirs]
        self._newest: MetadataReplica | None = None
        self._was_refreshed = False

    @staticmethod
    def is_in(log_dirs: Sequence[Path]) -> bool:
        """Whether any of the directories holds a metadata log, or may hold one that cannot be seen from here."""
        return any(_may_hold_metadata(path) for path in log_dirs)

    def refresh(self) -> None:
        self._was_refreshed = True
        readable = []
        refused: list[tuple[MetadataReplica, SourceError | ClusterFactsError]] = []
        for replica in self._replicas:
            try:
                replica.refresh()
                readable.append(replica)
            except (SourceError, ClusterFactsError) as error:
                refused.append((replica, error))
        if not readable:
            self._newest = None
            raise self._nothing_readable(refused)
        for _, refusal in refused:
            _LOG.debug("metadata log passed over: %s", refusal)
        self._newest = max(readable, key=lambda replica: replica.log_end_offset)

    def cluster_id(self) -> str | None:
        self._image()
        return self._newest.cluster_id if self._newest else None

    def topic(self, topic_id: Uuid) -> TopicFacts | None:
        return self._image().topic(topic_id)

    def topic_named(self, name: str) -> TopicFacts | None:
        return self._image().topic_named(name)

    def topic_names(self) -> Collection[str]:
        return self._image().topic_names()

    def is_removed(self, topic_id: Uuid) -> bool:
        return self._image().is_removed(topic_id)

    def removal_evidence(self, topic_id: Uuid) -> str | None:
        if self._image().topic(topic_id) is not None or self._newest is None:
            return None
        where = f"{METADATA_LOG} of {printable(self._newest.log_dir)}"
        if self._image().is_removed(topic_id):
            return f"RemoveTopicRecord in {where}, below offset {self._newest.log_end_offset}"
        offset = self._newest.find_removal(topic_id)
        return None if offset is None else f"RemoveTopicRecord in {where}, in the batch at offset {offset}"

    @property
    def log_end_offset(self) -> int:
        """First offset (exclusive) that these facts do not cover."""
        self._image()
        return self._newest.log_end_offset if self._newest else 0

    def _image(self) -> ClusterImage:
        if not self._was_refreshed:
            self.refresh()
        return self._newest.image if self._newest else ClusterImage()

    def _nothing_readable(
        self, refused: Sequence[tuple[MetadataReplica, SourceError | ClusterFactsError]]
    ) -> ClusterFactsError:
        if not refused:
            return ClusterFactsError("no log directory given that could hold a metadata log")
        dirs = ", ".join(printable(replica.log_dir) for replica, _ in refused)
        error = ClusterFactsError(f"no readable metadata log in {dirs}: {refused[0][1]}")
        error.__cause__ = refused[0][1]
        return error


def _may_hold_metadata(log_dir: Path) -> bool:
    try:
        return (log_dir / METADATA_LOG).is_dir()
    except OSError:
        return True
