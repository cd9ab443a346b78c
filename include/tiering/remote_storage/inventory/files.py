"""Where the files of an inventory are: in the bucket that S3 writes them to, or in a copy of it on this host."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from include.tiering.errors import RemoteResourceNotFoundError
from include.tiering.quotas.contract import UnlimitedBytes
from include.tiering.remote_storage.object_store import ObjectStore, checked_key


class InventoryFiles(Protocol):
    """Files by the keys that a manifest gives them."""

    def describe(self) -> str: ...

    def read(self, key: str) -> Iterator[bytes]:
        """Blocks of a file.

        Raises:
            RemoteResourceNotFoundError: no such file.
            ObjectKeyError: no key of a file.
        """
        ...


class BucketFiles:
    """Files in the destination bucket of the inventory."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def describe(self) -> str:
        return self._store.describe().rstrip("/")

    def read(self, key: str) -> Iterator[bytes]:
        return self._store.read(key, limiter=UnlimitedBytes())


class LocalFiles:
    """Files of a copy. The manifest is in `directory`; keys begin where the bucket would, which is one of the
    directories above it: the nearest that has the file. `store_at` opens one of these."""

    def __init__(self, directory: Path, store_at: Callable[[Path], ObjectStore]) -> None:
        self._directory = directory
        self._store_at = store_at

    def describe(self) -> str:
        return self._directory.as_uri()

    def read(self, key: str) -> Iterator[bytes]:
        checked_key(key)
        for root in (self._directory, *self._directory.parents):
            if (root / key).is_file():
                return self._store_at(root).read(key, limiter=UnlimitedBytes())
        raise RemoteResourceNotFoundError(f"{key} is neither in {self._directory} nor below a directory above it")
