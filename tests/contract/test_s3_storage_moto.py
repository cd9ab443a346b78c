"""The contracts over moto: control flow only. It takes any checksum and returns none, so it proves no integrity."""

from collections.abc import Iterator

import pytest

from include.tiering.remote_storage.layouts.aiven import AivenLayout
from include.tiering.remote_storage.s3.store import S3ObjectStore
from include.tiering.remote_storage.segment_storage import SegmentStorage
from tests.contract.object_store_contract import ObjectStoreContract
from tests.contract.remote_storage_contract import RemoteStorageContract
from tests.doubles.s3_server import MotoServer, bucket_of_its_own, moto_server
from tests.doubles.storage_backdoor import Backdoor

PREFIX = "a/prefix/"


@pytest.fixture(scope="module")
def server() -> Iterator[MotoServer]:
    with moto_server() as started:
        yield started


@pytest.fixture
def bucket(server: MotoServer, monkeypatch: pytest.MonkeyPatch) -> str:
    return bucket_of_its_own(server, monkeypatch)


@pytest.fixture
def store(server: MotoServer, bucket: str) -> S3ObjectStore:
    return S3ObjectStore(bucket, PREFIX, endpoint_url=server.endpoint_url)


@pytest.fixture
def storage(store: S3ObjectStore) -> SegmentStorage:
    return SegmentStorage(store, AivenLayout())


@pytest.fixture
def backdoor(server: MotoServer, bucket: str) -> Backdoor:
    return server.backdoor(bucket, PREFIX)


class TestMotoObjectStore(ObjectStoreContract):
    computes_checksums = False


class TestMotoStorage(RemoteStorageContract):
    pass
