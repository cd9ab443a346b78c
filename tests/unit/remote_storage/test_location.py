"""URLs name a place and nothing else."""

from pathlib import Path
from typing import Any

import pytest

from include.tiering.errors import SettingError
from include.tiering.remote_storage.location import FileLocation, S3Location, StoreAccess, open_storage, parse_location


@pytest.mark.parametrize(
    ("url", "location"),
    [
        ("file:///srv/tiered", FileLocation(Path("/srv/tiered"))),
        ("file:///srv/tiered/", FileLocation(Path("/srv/tiered"))),
        ("file://localhost/srv", FileLocation(Path("/srv"))),
        ("file:///srv/with%20space", FileLocation(Path("/srv/with space"))),
        ("s3://bucket-1", S3Location("bucket-1", "")),
        ("s3://bucket-1/", S3Location("bucket-1", "")),
        ("s3://bucket.name/a/b", S3Location("bucket.name", "a/b/")),
        ("s3://bucket-1/a/b/", S3Location("bucket-1", "a/b/")),
    ],
)
def test_accepted(url: str, location: FileLocation | S3Location) -> None:
    assert parse_location(url) == location


@pytest.mark.parametrize(
    "url",
    [
        "",
        "/srv/tiered",
        "http://bucket/x",
        "s3:/bucket",
        "file:srv",
        "file://host/srv",
        "file://srv",
        "file:///",
        "file:///..",
        "file:///srv/../etc",
        "file:///srv/%2e%2e/etc",
        "file:///srv/%00",
        "file:///srv?x=1",
        "file:///srv#x",
        "s3://",
        "s3:///prefix",
        "s3://B",
        "s3://Bucket-Name",
        "s3://bucket-1/a/../b",
        "s3://bucket-1/a//b",
        "s3://bucket-1/./a",
        "s3://bucket-1/a b",
        "s3://bucket-1/a%2Fb",
        "s3://bucket-1/a?versionId=1",
        "s3://bucket-1/" + "a" * 600,
        "s3://[bucket",
    ],
)
def test_refused(url: str) -> None:
    with pytest.raises(SettingError, match=r"remote_storage\.url"):
        parse_location(url)


@pytest.mark.parametrize("url", ["s3://AKIAKEY:s3cr3t@bucket-1/p", "s3://s3cr3t@bucket-1", "file://s3cr3t@host/x"])
def test_credentials_are_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(SettingError) as raised:
        parse_location(url)
    assert "s3cr3t" not in str(raised.value)
    assert "AKIAKEY" not in str(raised.value)
    assert raised.value.__cause__ is None


def test_opening_touches_nothing(tmp_path: Path) -> None:
    open_storage((tmp_path / "absent").as_uri())
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_layout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="aiven"):
        open_storage(tmp_path.as_uri(), layout="other")


@pytest.mark.parametrize(
    ("options", "environment"),
    [
        ({"region": "us east"}, {}),
        ({"endpoint_url": "http://a b:1"}, {}),
        ({}, {"AWS_PROFILE": "nobody-has-this-one"}),
    ],
)
def test_what_the_sdk_refuses_is_a_setting(
    options: dict[str, Any], environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SettingError, match="AWS_PROFILE"):
        open_storage("s3://bucket-1/p", StoreAccess(**options))


@pytest.mark.parametrize("endpoint", ["ftp://host", "host:7070", "http://", "http://user:s3cr3t@host:7070"])
def test_an_unusable_endpoint_is_refused(endpoint: str) -> None:
    with pytest.raises(SettingError, match="endpoint_url") as raised:
        open_storage("s3://bucket-1/p", StoreAccess(endpoint))
    assert "s3cr3t" not in str(raised.value)
