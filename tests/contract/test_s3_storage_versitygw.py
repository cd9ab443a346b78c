"""The contracts over versitygw, an S3 server that refuses wrong checksums; what it holds is looked at on its disk."""

from collections.abc import Iterator

import pytest

from include.tiering.remote_storage.layouts.aiven import AivenLayout
from include.tiering.remote_storage.s3.store import S3ObjectStore
from include.tiering.remote_storage.segment_storage import SegmentStorage
from tests.contract.object_store_contract import ObjectStoreContract
from tests.contract.remote_storage_contract import RemoteStorageContract
from tests.doubles.s3_server import (
    VersityGateway,
    bucket_of_its_own,
    versitygw_or_skip,
)
from tests.doubles.storage_backdoor import Backdoor

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VersityGateway]:
    with versitygw_or_skip(tmp_path_factory.mktemp("versitygw")) as started:
        yield started


@pytest.fixture
def bucket(server: VersityGateway, monkeypatch: pytest.MonkeyPatch) -> str:
    return bucket_of_its_own(server, monkeypatch)


@pytest.fixture
def store(server: VersityGateway, bucket: str) -> S3ObjectStore:
    return S3ObjectStore(bucket, "", endpoint_url=server.endpoint_url)


@pytest.fixture
def storage(store: S3ObjectStore) -> SegmentStorage:
    return SegmentStorage(store, AivenLayout())


@pytest.fixture
def backdoor(server: VersityGateway, bucket: str) -> Backdoor:
    return server.backdoor(bucket, "")


class TestVersityObjectStore(ObjectStoreContract):
    confirms_writes = True


class TestVersityStorage(RemoteStorageContract):
    pass
