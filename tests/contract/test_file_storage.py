"""The contracts over a directory."""

from pathlib import Path

import pytest

from include.tiering.remote_storage.file import FileObjectStore
from include.tiering.remote_storage.layouts.aiven import AivenLayout
from include.tiering.remote_storage.segment_storage import SegmentStorage
from tests.contract.object_store_contract import ObjectStoreContract
from tests.contract.remote_storage_contract import RemoteStorageContract
from tests.doubles.storage_backdoor import DirectoryBackdoor


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "store"


@pytest.fixture
def store(root: Path) -> FileObjectStore:
    return FileObjectStore(root)


@pytest.fixture
def storage(store: FileObjectStore) -> SegmentStorage:
    return SegmentStorage(store, AivenLayout())


@pytest.fixture
def backdoor(root: Path) -> DirectoryBackdoor:
    return DirectoryBackdoor(root)


class TestFileObjectStore(ObjectStoreContract):
    pass


class TestFileStorage(RemoteStorageContract):
    pass
