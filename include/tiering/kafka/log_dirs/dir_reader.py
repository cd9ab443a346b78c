"""All replicas in one log directory, or one of them. Damage of one never hides another."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from os import DirEntry
from typing import Final

from include.tiering.errors import (
    HostileNameError,
    SourceError,
    SourceUnreadableError,
    SourceVanishedError,
)
from include.tiering.kafka.log_dirs.contract import ScanError
from include.tiering.kafka.log_dirs.dirs import Checkpoints, DirIdentity, read_checkpoints
from include.tiering.kafka.log_dirs.files import BrokerDirectory
from include.tiering.kafka.log_dirs.found_replica import FoundReplica, UnreadReplica
from include.tiering.kafka.log_dirs.names import (
    NOT_PARTITIONS,
    DirectoryState,
    PartitionDirectoryName,
    is_harmless,
    parse_partition_directory,
)
from include.tiering.kafka.log_dirs.partition_reader import PartitionReader
from include.tiering.kafka.log_dirs.rolled_segments import KnownTimestamps
from include.tiering.kafka.log_dirs.scan_errors import scan_error
from include.tiering.kafka.log_dirs.topic_patterns import matches

_ATTEMPTS: Final = 3
"""So often a partition is listed when files vanish between listing and opening."""


@dataclass(frozen=True, slots=True)
class DirReader:
    """Reads the replicas of the log directory `root`, which is `identity`'s; what is wrong with the directory itself
    goes to `on_error`."""

    root: BrokerDirectory
    identity: DirIdentity
    checkpoints: Checkpoints
    on_error: Callable[[SourceError], None]
    known: KnownTimestamps

    @classmethod
    def of(
        cls,
        root: BrokerDirectory,
        identity: DirIdentity,
        on_error: Callable[[SourceError], None],
        known: KnownTimestamps | None = None,
    ) -> "DirReader":
        """Reads the checkpoints first: what is listed later can only be newer than they are."""
        return cls(root, identity, read_checkpoints(root, on_error), on_error, known or KnownTimestamps())

    def replicas(self, topics: Collection[str] | None, *, deep: bool) -> Iterator[FoundReplica | UnreadReplica]:
        """Those whose topic matches a pattern, in the order of directory names.

        Raises:
            SourceError: the log directory cannot be listed.
        """
        for entry in sorted(self.root.entries(), key=lambda entry: entry.name):
            name = self._partition_name(entry)
            if name is None or not matches(name.topic, topics):
                continue
            try:
                yield self._read(entry.name, name, deep)[0]
            except SourceError as error:
                # A replica on its way out may go at any time.
                if name.state is DirectoryState.LIVE or not isinstance(error, SourceVanishedError):
                    yield UnreadReplica(self.identity, name, self._error_of(error, name))

    def replica(self, directory_name: str, name: PartitionDirectoryName, *, deep: bool = False) -> FoundReplica:
        """One replica. If a file vanishes meanwhile, all of it is read again. Its errors go to `on_error` as well.

        Raises:
            SourceError: it cannot be read.
        """
        found, errors = self._read(directory_name, name, deep)
        for error in errors:
            self.on_error(error)
        return found

    def _read(
        self, directory_name: str, name: PartitionDirectoryName, deep: bool
    ) -> tuple[FoundReplica, list[SourceError]]:
        for attempt in range(1, _ATTEMPTS + 1):
            errors: list[SourceError] = []
            reader = PartitionReader(
                self.root, self.identity, self.checkpoints, deep=deep, on_error=errors.append, known=self.known
            )
            try:
                found = reader.read(directory_name, name)
            except SourceVanishedError:
                if attempt == _ATTEMPTS:
                    raise
            else:
                listed = tuple(self._error_of(error, name) for error in errors)
                return replace(found, errors=listed), errors
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _error_of(self, error: SourceError, name: PartitionDirectoryName) -> ScanError:
        return scan_error(error, self.identity.path, f"{name.topic}-{name.partition}")

    def _partition_name(self, entry: DirEntry[str]) -> PartitionDirectoryName | None:
        """None for what holds no replica; names that no broker writes, or that are no directory, are reported."""
        path = self.root.path_of(entry.name)
        name = parse_partition_directory(entry.name)
        if entry.is_dir(follow_symlinks=False):
            if name is None and entry.name not in NOT_PARTITIONS:
                self.on_error(HostileNameError(path, "no broker writes a directory of this name"))
            return None if entry.name in NOT_PARTITIONS else name
        if entry.is_symlink():
            self.on_error(HostileNameError(path, "a symbolic link, which is not followed"))
        elif name is not None:
            self.on_error(SourceUnreadableError(path, "not a directory"))
        elif not is_harmless(entry.name):
            self.on_error(HostileNameError(path, "no broker writes a file of this name"))
        return None
