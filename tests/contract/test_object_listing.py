"""Listings of a directory, and of buckets of versitygw with and without versions."""

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from include.tiering.errors import RemoteStorageError
from include.tiering.remote_storage.file.store import FileListing
from include.tiering.remote_storage.layouts.local_tiered_storage import STAGING_PREFIX
from include.tiering.remote_storage.object_store import KeyInterval
from include.tiering.remote_storage.s3.listing import S3Listing
from tests.contract.object_listing_contract import ObjectListingContract, keys, listed
from tests.doubles.s3_server import (
    CREDENTIALS,
    S3Server,
    raw_client,
    versitygw_or_skip,
)
from tests.doubles.storage_backdoor import Backdoor, DirectoryBackdoor

_BUCKETS = itertools.count(1)


class TestFileListing(ObjectListingContract):
    @pytest.fixture
    def backdoor(self, tmp_path: Path) -> Backdoor:
        return DirectoryBackdoor(tmp_path)

    @pytest.fixture
    def listing(self, tmp_path: Path) -> FileListing:
        return FileListing(tmp_path)

    @pytest.fixture
    def begin_upload(self, tmp_path: Path) -> Callable[[str], str]:
        def begin(key: str) -> str:
            path = tmp_path / f"{key}.~0123"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"12345")
            return path.name

        return begin

    def test_a_root_that_is_not_there_is_no_empty_store(self, tmp_path: Path) -> None:
        with pytest.raises(RemoteStorageError, match="mounted"):
            keys(FileListing(tmp_path / "nothing"))

    def test_links_and_names_that_are_no_text(self, tmp_path: Path) -> None:
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "secret").touch()
        root = tmp_path / "root"
        root.mkdir()
        (root / "link").symlink_to(outside)
        (root / "file").symlink_to(outside / "secret")
        os.mkfifo(root / "pipe")
        (root / os.fsdecode(b"odd-\xff")).mkdir()
        (root / os.fsdecode(b"odd-\xff") / "x").touch()
        assert keys(FileListing(root), 3) == ["odd-\\xff/x"]


class TestFileListingWithStaging(ObjectListingContract):
    """What is being written stands in a directory of its own."""

    many = 100

    @pytest.fixture
    def backdoor(self, tmp_path: Path) -> Backdoor:
        return DirectoryBackdoor(tmp_path)

    @pytest.fixture
    def listing(self, tmp_path: Path) -> FileListing:
        return FileListing(tmp_path, STAGING_PREFIX)

    @pytest.fixture
    def begin_upload(self, tmp_path: Path) -> Callable[[str], str]:
        def begin(key: str) -> str:
            path = tmp_path / STAGING_PREFIX / f"{key}.~0123"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"12345")
            return path.name

        return begin


@pytest.mark.integration
class TestVersityListing(ObjectListingContract):
    """Pages are small, so that few objects fill some."""

    many = 100
    prefix = "a/prefix/"

    @pytest.fixture(scope="class")
    def server(self, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
        with versitygw_or_skip(tmp_path_factory.mktemp("versitygw"), versioning=True) as started:
            yield started

    @pytest.fixture
    def bucket(self, server: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
        for name, value in CREDENTIALS.items():
            monkeypatch.setenv(name, value)
        bucket = f"bucket-{next(_BUCKETS)}"
        server.make_bucket(bucket)
        return bucket

    @pytest.fixture(scope="class")
    def client(self, server: S3Server) -> Any:
        return raw_client(server.endpoint_url)

    @pytest.fixture
    def listing(self, server: S3Server, bucket: str) -> S3Listing:
        return S3Listing(bucket, self.prefix, endpoint_url=server.endpoint_url, page_keys=7)

    @pytest.fixture
    def backdoor(self, server: S3Server, bucket: str) -> Backdoor:
        return server.backdoor(bucket, self.prefix)

    @pytest.fixture
    def begin_upload(self, client: Any, bucket: str) -> Callable[[str], str]:
        def begin(key: str) -> str:
            answer = client.create_multipart_upload(Bucket=bucket, Key=self.prefix + key)
            return str(answer["UploadId"])

        return begin

    def test_what_is_beside_the_prefix_is_not_listed(self, listing: S3Listing, client: Any, bucket: str) -> None:
        for key in ("other/x", "a/prefix-2/x", "a/prefix/in"):
            client.put_object(Bucket=bucket, Key=key, Body=b"")
            client.create_multipart_upload(Bucket=bucket, Key=f"{key}-begun")
        assert keys(listing, 3) == ["in"]
        uploads = itertools.chain.from_iterable(listing.open_uploads())
        assert [upload.key for upload in uploads] == ["in-begun"]

    def test_a_bucket_that_is_not_there(self, server: S3Server, bucket: str) -> None:
        missing = S3Listing("no-such-bucket", "", endpoint_url=server.endpoint_url)
        with pytest.raises(RemoteStorageError, match="no-such-bucket"):
            list(missing.pages(KeyInterval()))

    def test_every_version_and_marker_is_listed_where_they_are_kept(
        self, listing: S3Listing, client: Any, bucket: str
    ) -> None:
        def put(key: str, content: bytes) -> str:
            return str(client.put_object(Bucket=bucket, Key=self.prefix + key, Body=content).get("VersionId"))

        put("t/0/before", b"1")
        client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
        first, second = put("t/0/twice", b"12"), put("t/0/twice", b"123")
        put("u/gone", b"1234")
        marker = client.delete_object(Bucket=bucket, Key=f"{self.prefix}u/gone")["VersionId"]
        client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Suspended"})
        for parts in (1, 2):
            found = {(one.key, one.version_id): one for one in listed(listing, parts)}
            assert listing.properties().shows_versions
            assert len(found) == 5
            assert [found["t/0/twice", version].is_latest for version in (first, second)] == [False, True]
            assert found["t/0/twice", second].size_bytes == 3
            assert found["t/0/before", "null"].is_current
            assert found["u/gone", marker].is_delete_marker
            assert not found["u/gone", marker].is_current
            assert sorted(one.key for one in found.values() if one.is_current) == ["t/0/before", "t/0/twice"]

    def test_many_versions_of_one_key_are_many_pages(self, listing: S3Listing, client: Any, bucket: str) -> None:
        client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
        for key in ("a/0/x", *["b/0/x"] * 30, "c/0/x"):
            client.put_object(Bucket=bucket, Key=self.prefix + key, Body=b"")
        for parts in (1, 3):
            found = [(one.key, one.version_id) for one in listed(listing, parts)]
            assert len(found) == len(set(found)) == 32
