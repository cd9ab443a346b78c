"""One page of a listing: the names of three kinds of answers, and answers that are none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.tiering.errors import RemoteStorageError
from include.tiering.remote_storage.object_store import milliseconds
from include.tiering.remote_storage.s3.listing import parse_page

HEAD = b'<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
OBJECTS = (
    HEAD
    + b"<Name>b</Name><Prefix>p/</Prefix><KeyCount>3</KeyCount><IsTruncated>true</IsTruncated>"
    + b"<NextContinuationToken>1+2%3D</NextContinuationToken><EncodingType>url</EncodingType>"
    + b"<Contents><Key>p/a%26b+c</Key><LastModified>2026-11-21T20:41:52.125Z</LastModified>"
    + b"<ETag>&quot;9dd4&quot;</ETag><Size>17</Size><Owner><ID>x</ID></Owner></Contents>"
    + b"<Contents><Size>0</Size>\n  <Key>p/z</Key><LastModified>2026-11-21T20:41:52Z</LastModified></Contents>"
    + b"<CommonPrefixes><Prefix>p/d+e/</Prefix></CommonPrefixes></ListBucketResult>"
)
VERSIONS = (
    b"<ListVersionsResult><IsTruncated>true</IsTruncated><NextKeyMarker>a&lt;%41</NextKeyMarker>"
    b"<NextVersionIdMarker>v1</NextVersionIdMarker><EncodingType></EncodingType>"
    b"<DeleteMarker><Key>a&amp;%41</Key><VersionId>m</VersionId><IsLatest>true</IsLatest></DeleteMarker>"
    b"<Version><Key>a&amp;%41</Key><VersionId>null</VersionId><IsLatest>false</IsLatest><Size>5</Size></Version>"
    b"</ListVersionsResult>"
)


def test_objects_and_directories() -> None:
    page = parse_page(OBJECTS)
    assert page.entries == [
        ("Contents", {"Key": "p/a&b c", "Size": "17", "LastModified": "2026-11-21T20:41:52.125Z"}),
        ("Contents", {"Key": "p/z", "Size": "0", "LastModified": "2026-11-21T20:41:52Z"}),
    ]
    assert page.directories == ["p/d e/"]
    assert page.is_truncated
    assert page.marker("NextContinuationToken") == "1+2%3D"
    assert page.marker("NextKeyMarker") == ""


def test_keys_that_a_server_left_plain_stay_as_they_are() -> None:
    page = parse_page(VERSIONS)
    assert [(name, entry["Key"], entry["VersionId"]) for name, entry in page.entries] == [
        ("DeleteMarker", "a&%41", "m"),
        ("Version", "a&%41", "null"),
    ]
    assert page.marker("NextKeyMarker") == "a<%41"


def test_bytes_that_are_no_text_are_escaped_not_replaced() -> None:
    page = parse_page(OBJECTS.replace(b"p/z", b"p/%FF"))
    assert page.entries[1][1]["Key"] == "p/\\xff"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not xml",
        b"<html><body>down</body>",
        OBJECTS[:-20],
        OBJECTS.replace(b"<Key>p/z</Key>", b""),
        OBJECTS.replace(b"<KeyCount>3", b"<KeyCount>4"),
        OBJECTS.replace(HEAD, b'<!DOCTYPE x [<!ENTITY a "aaaa">]><ListBucketResult>'),
        OBJECTS.replace(HEAD, b'<!DOCTYPE x SYSTEM "file:///etc/passwd"><ListBucketResult>'),
        OBJECTS.replace(b"p/z", b"&unknown;"),
        OBJECTS.replace(b"UTF-8", b"no-such-encoding"),
        b"\xff\xfe" + OBJECTS[:100],
    ],
)
def test_what_is_no_page_is_refused(body: bytes) -> None:
    with pytest.raises(RemoteStorageError):
        parse_page(body)


def test_a_page_that_does_not_say_whether_it_is_the_last_is_not_believed() -> None:
    for said in (b"", b"<IsTruncated></IsTruncated>", b"<IsTruncated>perhaps</IsTruncated>"):
        with pytest.raises(RemoteStorageError, match="whether it is the last"):
            parse_page(OBJECTS.replace(b"<IsTruncated>true</IsTruncated>", said))


def test_many_nested_elements_are_a_page_without_entries() -> None:
    end = b"<IsTruncated>false</IsTruncated>"
    page = parse_page(b"<a>" * 200_000 + end + b"</a>" * 200_000)
    assert page.entries == []


@given(st.binary(max_size=40), st.integers(0, len(OBJECTS)))
def test_damage_gives_a_page_or_a_typed_error(noise: bytes, at: int) -> None:
    try:
        page = parse_page(OBJECTS[:at] + noise + OBJECTS[at + len(noise) :])
    except RemoteStorageError:
        return
    assert all("Key" in entry for _, entry in page.entries)


def test_times() -> None:
    assert milliseconds("2023-11-14T22:13:20.000Z") == 1_700_000_000_000
    assert milliseconds("2023-11-14T23:13:20.125+01:00") == 1_700_000_000_125
    for wrong in ("", "yesterday", "2023-11-14T22:13:20", "9" * 50):
        with pytest.raises(ValueError):
            milliseconds(wrong)
