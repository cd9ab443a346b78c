"""The contracts over a directory."""

from pathlib import Path

import pytest

from include.tiering.clock import SystemClock
from include.tiering.remote_storage.file import FileObjectStore
from include.tiering.remote_storage.layouts.aiven import AivenLayout
from include.tiering.remote_storage.marker import MARKER_KEY, GuardedStorage
from include.tiering.remote_storage.segment_storage import SegmentStorage
from tests.contract.object_store_contract import ObjectStoreContract
from tests.contract.remote_storage_contract import MARKER, RemoteStorageContract, SegmentContract
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


class BackdoorPastTheMarker(DirectoryBackdoor):
    def raw_keys(self) -> set[str]:
        return super().raw_keys() - {MARKER_KEY}


class TestGuardedStorage(SegmentContract):
    """With the right marker in place the gate is not noticed."""

    @pytest.fixture
    def storage(self, store: FileObjectStore) -> GuardedStorage:
        owned = SegmentStorage(store, AivenLayout())
        owned.create_marker(MARKER)
        return GuardedStorage(owned, MARKER, SystemClock())

    @pytest.fixture
    def backdoor(self, root: Path) -> BackdoorPastTheMarker:
        return BackdoorPastTheMarker(root)
