"""What the settings of a store mean: its place, its adapter, its layout, its credentials."""

from pathlib import Path
from typing import Any

import pytest

from include.tiering.errors import SettingError
from include.tiering.model.ownership import StorePlace
from include.tiering.remote_storage.file.store import FileListing
from include.tiering.remote_storage.location import (
    FileLocation,
    S3Location,
    StoreAccess,
    access_of,
    open_inventory,
    open_listing,
    open_storage,
    parse_location,
    place_of,
)
from include.tiering.remote_storage.object_store import S3Credentials
from include.tiering.settings import TieringSettings, load_settings


@pytest.mark.parametrize(
    ("url", "location"),
    [
        ("file:///srv/remote", FileLocation(Path("/srv/remote"))),
        ("s3://bucket", S3Location("bucket", "")),
        ("s3://bucket/", S3Location("bucket", "")),
        ("s3://bucket/a", S3Location("bucket", "a/")),
        ("s3://bucket/a/b/", S3Location("bucket", "a/b/")),
        (f"s3://bucket/{'a' * 512}", S3Location("bucket", f"{'a' * 512}/")),
    ],
)
def test_a_url_is_a_directory_or_a_bucket_with_a_prefix(url: str, location: object) -> None:
    assert parse_location(url) == location


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("relative/path", "remote_storage.url"),
        ("ftp://host/a", "remote_storage.url"),
        (f"s3://bucket/{'a' * 513}", "a prefix of 513 characters exceeds 512"),
        ("s3://bucket/a/../b", "are not allowed in it"),
    ],
)
def test_what_is_neither_is_refused(url: str, says: str) -> None:
    with pytest.raises(SettingError, match=says):
        parse_location(url)


@pytest.mark.parametrize(
    ("url", "canonical"),
    [
        ("file:///srv/remote/", "file:///srv/remote"),
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/a/", "s3://bucket/a"),
    ],
)
def test_a_place_has_one_spelling(url: str, canonical: str) -> None:
    assert place_of(url, "aiven", "tiered-") == StorePlace(canonical, "aiven", "tiered-")


def test_the_directories_of_brokers_are_no_bucket_and_an_unknown_layout_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="local_tiered_storage is for directories"):
        open_storage("s3://bucket/a", layout="local_tiered_storage")
    with pytest.raises(SettingError, match="'other' is unknown: it must be one of aiven, local_tiered_storage"):
        open_storage(tmp_path.as_uri(), layout="other")


@pytest.mark.parametrize("layout", ["aiven", "local_tiered_storage"])
def test_a_directory_is_listed(tmp_path: Path, layout: str) -> None:
    assert isinstance(open_listing(tmp_path.as_uri(), layout=layout), FileListing)


def test_an_inventory_is_that_of_a_bucket(tmp_path: Path) -> None:
    manifest = tmp_path / "manifest.json"
    with pytest.raises(SettingError, match="does not name one"):
        open_inventory(str(manifest), tmp_path.as_uri())
    for named in (str(manifest), manifest.as_uri()):
        listing: Any = open_inventory(named, "s3://bucket/kafka")
        assert (listing._bucket, listing._prefix) == ("bucket", "kafka/")


def settings(**values: str) -> TieringSettings:
    return load_settings(environ={f"TIERING_REMOTE_STORAGE__{name.upper()}": value for name, value in values.items()})


def test_credentials_are_those_of_the_settings_or_of_the_chain() -> None:
    assert access_of(settings().remote_storage) == StoreAccess()
    both = settings(access_key_id="id", secret_access_key="word", endpoint_url="http://localhost:1", region="eu-west-9")
    expected = StoreAccess("http://localhost:1", "eu-west-9", S3Credentials("id", "word", None))
    assert access_of(both.remote_storage) == expected
    session = settings(access_key_id="id", secret_access_key="word", session_token="once")
    assert access_of(session.remote_storage).credentials == S3Credentials("id", "word", "once")


@pytest.mark.parametrize("given", [{"access_key_id": "id"}, {"secret_access_key": "word"}])
def test_half_of_the_credentials_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(SettingError, match="must be set together"):
        access_of(settings(**given).remote_storage)
