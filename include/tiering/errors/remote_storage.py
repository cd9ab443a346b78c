"""One remote object, or the store."""

from include.tiering.errors.root import TieringError
from include.tiering.errors.work import SettingError


class RemoteStorageError(TieringError):
    """The remote store refused or failed an operation on one object."""


class RemoteResourceNotFoundError(RemoteStorageError):
    """No object under this key, or the object lacks the asked part."""


class RemoteObjectExistsError(RemoteStorageError):
    """A conditional write met an object that is already there."""


class RemoteChecksumError(RemoteStorageError):
    """Length or CRC-32C of an object differs from the source's."""


class RemoteStorageFullError(RemoteStorageError):
    """No space left, or a storage quota is exhausted."""


class RemoteStoreMissingError(RemoteStorageError):
    """There is no such bucket. One that is made now is empty: without our marker, without anything that was copied."""


class RemoteAccessDeniedError(RemoteStorageError):
    """The store has it and does not give it: credentials, an archive tier, owner and mode of a file. This says nothing
    about what is stored."""


class RemoteStorageUnavailableError(RemoteStorageError):
    """The store did not answer or asked to slow down."""

    retriable = True


class ObjectKeyError(RemoteStorageError):
    """A key that this layout would never write, or a name that would reach outside the prefix."""


class SegmentKeyError(SettingError):
    """A segment is encrypted for a key pair that is not at hand: this says nothing about what is stored."""


class StoredChunkError(RemoteStorageError):
    """A part of a compressed or encrypted segment is not what its manifest says: changed, cut, or sealed with another
    key."""


class CustomMetadataTooLargeError(RemoteStorageError):
    """Brokers would not take what they are to remember of a segment, delete the copy and stop copying the partition."""


class StoreInDoubtError(RemoteStorageError):
    """More is missing than is lost singly: the store has our marker, and not what was stored there."""


class ForeignStoreError(RemoteStorageError):
    """The store is not this database's: its marker names another cluster, store or generation, or keys lie in another
    place than the settings name. Nothing is written or deleted."""


class StorePlaceUnknownError(ForeignStoreError):
    """The database does not say where keys lie, as a version before this one left it: `./tiering migrate` records it.
    Nothing is written or deleted until then."""
