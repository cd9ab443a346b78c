"""Bytes and files of brokers that cannot be used."""

from include.tiering.errors.root import TieringError, printable


class FormatError(TieringError):
    """Bytes that break a format.

    Attributes:
        position: offset in bytes from the start of the buffer or file at which the rule broke.
        message: the rule and the number that broke it.
    """

    def __init__(self, message: str, position: int = 0) -> None:
        super().__init__(f"{message} (at byte {position})")
        self.message = message
        self.position = position


class OldMagicError(FormatError):
    """A record batch of magic 0 or 1: sound perhaps, but without leader epoch, so it can never be tiered."""


class BatchTooLargeError(FormatError):
    """A batch is larger, or more would come out of it, than is opened. Nothing says that it is damaged."""


class SourceError(TieringError):
    """One file or replica of a log source could not be used.

    Attributes:
        path: the file or directory, for a person; not to be opened again.
        position: byte in that file, or None if the whole of it is meant.
        message: what was expected and what was found.
    """

    def __init__(self, path: str, message: str, position: int | None = None) -> None:
        where = printable(path) if position is None else f"{printable(path)} at byte {position}"
        super().__init__(f"{where}: {message}")
        self.path = path
        self.position = position
        self.message = message


class SourceUnreadableError(SourceError):
    """Permission denied, an I/O error, or not a regular file."""


class SourceVanishedError(SourceError):
    """The file or directory went away, or was renamed, while we read."""

    retriable = True


class SourceChangedError(SourceError):
    """The replica is not what it was when the copy began: plan it anew."""

    retriable = True


class CorruptFileError(SourceError):
    """A file of the source breaks its format at `position`."""


class CompactedSegmentError(SourceError):
    """Offsets of a segment are gone by compaction: the file is as its broker wants it, and cannot be copied."""


class HostileNameError(SourceError):
    """A file or directory name that no broker writes, or a link that leads outside."""
