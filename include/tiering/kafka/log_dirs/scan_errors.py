"""Errors of a scan as it lists them."""

import socket

from include.tiering.errors import ClusterFactsError, SourceError, SourceUnreadableError, printable
from include.tiering.kafka.log_dirs.contract import ScanError


def scan_error(error: SourceError | ClusterFactsError, default_path: str, partition: str | None = None) -> ScanError:
    """Facts have no path of their own, but the file that broke them has. `partition`: see `ScanError`."""
    source = error if isinstance(error, SourceError) else error.__cause__
    if isinstance(source, SourceError):
        path, message = printable(source.path), printable(source.message)
        return ScanError(path, source.position, type(error).__name__, message, partition)
    return ScanError(printable(default_path), None, type(error).__name__, printable(str(error)), partition)


def with_host(error: SourceUnreadableError) -> SourceUnreadableError:
    host = f"on host {socket.gethostname()}"
    if error.message.endswith(host):
        return error
    return SourceUnreadableError(error.path, f"{error.message} {host}", error.position)
