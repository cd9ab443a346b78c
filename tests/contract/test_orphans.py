"""What of a store no metadata knows: looked at and removed, in a directory and in a bucket that keeps versions (moto:
control flow only)."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import boto3
import pytest

from include.tiering.errors import ForeignStoreError, ObjectKeyError, RemoteResourceNotFoundError
from include.tiering.model.segments import RemoteLogSegmentState
from include.tiering.quotas.contract import UnlimitedBytes
from include.tiering.remote_storage.file.store import FileObjectStore
from include.tiering.remote_storage.layouts.aiven import AivenLayout
from include.tiering.remote_storage.object_store import BytesSource, ObjectStore, crc32c_of
from include.tiering.remote_storage.orphan_objects import Orphan, OrphanKind, StoredOrphans
from include.tiering.remote_storage.s3.store import S3ObjectStore
from include.tiering.remote_storage.segment_storage import SegmentStorage
from tests.doubles.s3_server import CREDENTIALS, MotoServer, moto_server
from tests.doubles.stored_log import some_metadata

LOG, INDEXES, MANIFEST = (key for _, key in AivenLayout().keys(some_metadata(10)))
_BUCKETS = itertools.count(1)


@pytest.fixture(scope="module")
def server() -> Iterator[MotoServer]:
    with moto_server() as started:
        yield started


@pytest.fixture(params=["file", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    if request.param == "file":
        return FileObjectStore(tmp_path / "store")
    return request.getfixturevalue("versioned")[0]


@pytest.fixture
def versioned(server: MotoServer, monkeypatch: pytest.MonkeyPatch) -> tuple[S3ObjectStore, Callable[[], set[Any]]]:
    """A store whose bucket keeps versions, and what versions there are: (key, version id, is a delete marker)."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    bucket = f"versioned-{next(_BUCKETS)}"
    server.make_bucket(bucket)
    client = boto3.client("s3", endpoint_url=server.endpoint_url, region_name="us-east-1")
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})

    def versions() -> set[Any]:
        answer = client.list_object_versions(Bucket=bucket)
        return {(one["Key"], one["VersionId"], False) for one in answer.get("Versions", ())} | {
            (one["Key"], one["VersionId"], True) for one in answer.get("DeleteMarkers", ())
        }

    return S3ObjectStore(bucket, "", endpoint_url=server.endpoint_url), versions


def orphans_of(store: ObjectStore, require_ours: Callable[[], None] = lambda: None) -> StoredOrphans:
    return StoredOrphans(store, AivenLayout(), require_ours)


def put(store: ObjectStore, key: str, content: bytes = b"x") -> None:
    store.put(key, BytesSource(content), crc32c_of(content), limiter=UnlimitedBytes(), on_sent=lambda _: None)


def begin_upload(store: ObjectStore, key: str) -> None:
    if isinstance(store, FileObjectStore):
        put(store, key)
        path = store._root / key
        path.rename(path.with_name(f"{path.name}.~0011223344556677"))
    else:
        assert isinstance(store, S3ObjectStore)
        store._client.create_multipart_upload(Bucket=store._bucket, Key=key)


def keys(store: ObjectStore) -> set[str]:
    return {found.key for found in store.list_objects()}


def test_an_attempt_is_all_that_its_keys_name(store: ObjectStore) -> None:
    other = LOG.replace("0" * 20, "0" * 19 + "1")
    for key, content in ((LOG, b"log"), (MANIFEST, b"manifest"), (other, b"")):
        put(store, key, content)
    for key in (LOG, INDEXES, MANIFEST):
        found = orphans_of(store).attempt(key)
        assert {sibling: seen.size_bytes for sibling, seen in found.items()} == {LOG: 3, MANIFEST: 8}
    assert orphans_of(store).manifest(MANIFEST) == b"manifest"


def test_objects_go_and_absent_ones_are_fine(store: ObjectStore) -> None:
    put(store, LOG)
    put(store, MANIFEST)
    orphans = orphans_of(store)
    assert orphans.remove([Orphan(OrphanKind.OBJECT, LOG), Orphan(OrphanKind.OBJECT, INDEXES)]) == ()
    assert keys(store) == {MANIFEST}
    assert orphans.remove([]) == ()


def test_an_open_upload_goes(store: ObjectStore) -> None:
    begin_upload(store, LOG)
    begin_upload(store, INDEXES)
    (upload, other) = sorted(store.list_open_uploads(), key=lambda one: one.key, reverse=True)
    orphans = orphans_of(store)
    assert orphans.remove([Orphan(OrphanKind.UPLOAD, upload.key, upload.token)]) == ()
    assert [left.key for left in store.list_open_uploads()] == [other.key]
    assert orphans.remove([Orphan(OrphanKind.UPLOAD, upload.key, upload.token)]) == ()


def test_nothing_goes_from_a_store_that_is_not_ours(store: ObjectStore) -> None:
    def refuse() -> None:
        raise ForeignStoreError("not ours")

    put(store, LOG)
    with pytest.raises(ForeignStoreError):
        orphans_of(store, refuse).remove([Orphan(OrphanKind.OBJECT, LOG)])
    assert keys(store) == {LOG}


@pytest.mark.parametrize("key", ["_tiering-store.json", "../outside", "a/b.log", ""])
def test_a_key_that_no_segment_has_is_refused_with_all_others(store: ObjectStore, key: str) -> None:
    put(store, LOG)
    with pytest.raises(ObjectKeyError):
        orphans_of(store).remove([Orphan(OrphanKind.OBJECT, LOG), Orphan(OrphanKind.OBJECT, key)])
    assert keys(store) == {LOG}
    with pytest.raises(ObjectKeyError):
        orphans_of(store).attempt(key)


def test_only_a_manifest_is_read_whole(store: ObjectStore) -> None:
    put(store, LOG)
    with pytest.raises(ObjectKeyError):
        orphans_of(store).manifest(LOG)
    with pytest.raises(RemoteResourceNotFoundError):
        orphans_of(store).manifest(MANIFEST)


def test_a_directory_keeps_no_versions(tmp_path: Any) -> None:
    store = FileObjectStore(tmp_path / "store")
    put(store, LOG)
    (failure,) = orphans_of(store).remove([Orphan(OrphanKind.VERSION, LOG, "v")])
    assert (failure.orphan.key, failure.retriable) == (LOG, False)
    assert keys(store) == {LOG}


def test_an_object_goes_behind_a_marker_and_a_version_for_good(versioned: Any) -> None:
    store, versions = versioned
    put(store, LOG)
    (_, version, _), *_ = versions()
    seen = store.head(LOG)
    assert seen is not None
    assert seen.version_id == version
    orphans = orphans_of(store)
    orphans.remove([Orphan(OrphanKind.OBJECT, LOG)])
    (marker,) = (found for found in versions() if found[2])
    assert versions() == {(LOG, version, False), marker}
    assert orphans.remove([Orphan(OrphanKind.VERSION, LOG, version)]) == ()
    assert versions() == {marker}
    assert orphans.remove([Orphan(OrphanKind.VERSION, LOG, marker[1])]) == ()
    assert versions() == set()


def test_each_version_has_its_own_result(versioned: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store, versions = versioned
    put(store, LOG)
    store.delete([LOG])
    put(store, LOG, b"again")
    first, second = (version for key, version, is_marker in sorted(versions()) if not is_marker)
    answer = {"Errors": [{"Key": LOG, "VersionId": second, "Code": "AccessDenied"}]}
    monkeypatch.setattr(store._client, "delete_objects", lambda **_: answer)
    both = [Orphan(OrphanKind.VERSION, LOG, first), Orphan(OrphanKind.VERSION, LOG, second)]
    assert [failure.orphan.token for failure in orphans_of(store).remove(both)] == [second]
    del answer["Errors"][0]["VersionId"]
    assert len(orphans_of(store).remove(both)) == 2, "a store that does not say which"


def test_an_upload_beside_a_finished_segment_ends_with_it(server: MotoServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer that told its id was lost, and the object was sent by a second upload."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    bucket = f"uploads-{next(_BUCKETS)}"
    server.make_bucket(bucket)
    store = S3ObjectStore(bucket, "", endpoint_url=server.endpoint_url)
    put(store, LOG)
    begin_upload(store, LOG)
    begin_upload(store, LOG.replace("log", "log2"))
    finished = replace(some_metadata(10), state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
    assert SegmentStorage(store, AivenLayout()).delete_log_segments([finished]) == ()
    assert [upload.key for upload in store.list_open_uploads()] == [LOG.replace("log", "log2")]
