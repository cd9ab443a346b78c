"""The metadata store."""

from include.tiering.errors.root import TieringError


class RemoteMetadataError(TieringError):
    """The metadata store refused an operation."""


class IllegalTransitionError(RemoteMetadataError):
    """Not an edge of the segment state machine."""


class StateConflictError(RemoteMetadataError):
    """The segment is not in the state that the caller expected."""


class HistoryChangedError(StateConflictError):
    """A person decided to follow another history of the partition since the caller read what it works by."""

    retriable = True


class UnknownSegmentError(RemoteMetadataError):
    """No segment with this remote log segment id."""


class OffsetOutOfRangeError(RemoteMetadataError):
    """No served segment holds the offset under the leader epoch that was asked for."""


class MetadataUnavailableError(RemoteMetadataError):
    """The database is locked, unreachable, or its schema is not at the expected revision."""

    retriable = True
