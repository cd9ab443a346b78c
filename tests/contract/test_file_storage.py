"""The contracts over a directory, in each layout that directories have."""

from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from include.tiering.clock import SystemClock
from include.tiering.quotas.contract import UnlimitedBytes
from include.tiering.remote_storage.contract import ObjectKind, RemoteStorage
from include.tiering.remote_storage.file.store import FileObjectStore
from include.tiering.remote_storage.layouts.aiven import AivenLayout
from include.tiering.remote_storage.layouts.aiven_form import AivenForm
from include.tiering.remote_storage.layouts.key_ring import KeyRing
from include.tiering.remote_storage.layouts.local_tiered_storage import STAGING_PREFIX, LocalTieredStorageLayout
from include.tiering.remote_storage.segment_storage import GuardedStorage, SegmentStorage
from include.tiering.remote_storage.store_ownership import MARKER_KEY
from tests.contract.object_store_contract import ObjectStoreContract
from tests.contract.remote_storage_contract import (
    MARKER,
    ManifestContract,
    MarkerContract,
    RemoteStorageContract,
    SegmentContract,
)
from tests.doubles.generations import always
from tests.doubles.key_pairs import key_files
from tests.doubles.storage_backdoor import DirectoryBackdoor
from tests.doubles.stored_log import some_segment


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


class TestFileObjectStoreWithStaging(ObjectStoreContract):
    @pytest.fixture
    def store(self, root: Path) -> FileObjectStore:
        return FileObjectStore(root, staging_prefix=STAGING_PREFIX)


class TestFileStorage(RemoteStorageContract):
    pass


class BackdoorPastTheMarker(DirectoryBackdoor):
    def raw_keys(self) -> set[str]:
        return super().raw_keys() - {MARKER_KEY}


class TestGuardedStorage(SegmentContract, ManifestContract):
    """With the right marker in place the gate is not noticed."""

    @pytest.fixture
    def storage(self, store: FileObjectStore) -> GuardedStorage:
        owned = SegmentStorage(store, AivenLayout())
        owned.create_marker(MARKER)
        return owned.guarded(always(MARKER), SystemClock())

    @pytest.fixture
    def backdoor(self, root: Path) -> BackdoorPastTheMarker:
        return BackdoorPastTheMarker(root)


class TestLocalTieredStorage(SegmentContract, MarkerContract):
    kinds: ClassVar[tuple[ObjectKind, ...]] = (
        ObjectKind.LOG,
        ObjectKind.OFFSET_INDEX,
        ObjectKind.TIME_INDEX,
        ObjectKind.TRANSACTION_INDEX,
        ObjectKind.LEADER_EPOCH,
        ObjectKind.PRODUCER_SNAPSHOT,
    )

    @pytest.fixture
    def storage(self, root: Path) -> SegmentStorage:
        return SegmentStorage(FileObjectStore(root, staging_prefix=STAGING_PREFIX), LocalTieredStorageLayout())

    def test_there_is_no_manifest(self, storage: RemoteStorage) -> None:
        metadata, data = some_segment()
        storage.copy_log_segment(metadata, data, limiter=UnlimitedBytes(), on_sent=lambda _: None)
        assert storage.fetch_manifest(metadata) is None
        assert storage.open_log_segment(metadata, limiter=UnlimitedBytes()).manifest() is None


COMPRESSED, ENCRYPTED = AivenForm(30_000, compresses=True), AivenForm(30_000, encrypts=True)
FORMS = {
    "compressed": COMPRESSED,
    "encrypted": ENCRYPTED,
    "both": replace(ENCRYPTED, compresses=True),
    "both, below a prefix": replace(ENCRYPTED, compresses=True, key_prefix="tiered/of-"),
}


class TestTransformedSegments(SegmentContract, ManifestContract):
    """Compressed, encrypted, both: nobody who reads through the contract can tell."""

    is_plain = False

    @pytest.fixture(params=FORMS)
    def storage(self, request: pytest.FixtureRequest, root: Path, tmp_path: Path) -> SegmentStorage:
        keys = KeyRing([key_files(tmp_path, "one")], "one")
        return SegmentStorage(FileObjectStore(root), AivenLayout(FORMS[request.param], keys))
