"""Listings of S3."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ConnectionClosedError
from hypothesis import given
from hypothesis import strategies as st
from urllib3.exceptions import ProtocolError

from include.tiering.errors import RemoteStorageError, RemoteStorageUnavailableError
from include.tiering.quotas.contract import UnlimitedBytes
from include.tiering.remote_storage.object_store import (
    KeyInterval,
    ListedUpload,
    ObjectEntry,
    S3Credentials,
    milliseconds,
)
from include.tiering.remote_storage.s3 import listing as s3_listing
from include.tiering.remote_storage.s3.listing import S3Listing, parse_page
from include.tiering.remote_storage.s3.store import S3ObjectStore
from tests.doubles.s3_server import ACCESS_KEY, SECRET_KEY
from tests.doubles.scripted_servers import Answer, ScriptedS3, scripted_s3

# A listing is complete or an error: what a server may answer instead of the next page.


def page(*keys: str, token: str | None = None, truncated: bool | None = None, directories: str = "") -> bytes:
    entries = "".join(
        f"<Contents><Key>{key}</Key><Size>1</Size><LastModified>2026-11-21T20:41:52Z</LastModified></Contents>"
        for key in keys
    )
    more = token is not None if truncated is None else truncated
    named = "" if token is None else f"<NextContinuationToken>{token}</NextContinuationToken>"
    return (
        f"<ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>{named}{entries}{directories}"
        "</ListBucketResult>"
    ).encode()


ERROR = b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Signature=abc</Message></Error>"
WHOLE = KeyInterval()


Listed = Callable[..., tuple[list[str], list[dict[str, str]]]]


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedS3]:
    with scripted_s3() as started:
        yield started


@pytest.fixture(scope="module")
def listing(server: ScriptedS3) -> S3Listing:
    credentials = S3Credentials(ACCESS_KEY, SECRET_KEY)
    return S3Listing("bucket", "p/", endpoint_url=server.endpoint_url, credentials=credentials, max_attempts=2)


@pytest.fixture
def listed(server: ScriptedS3, listing: S3Listing) -> Listed:
    """Keys of a part, and what was asked for them."""

    def listed_part(part: KeyInterval, *script: Answer) -> tuple[list[str], list[dict[str, str]]]:
        server.play(script)
        return [one.key for found in listing.pages(part) for one in found], server.asked

    return listed_part


def test_pages_are_followed_by_their_token(listed: Listed) -> None:
    found, asked = listed(WHOLE, (200, page("p/a", token="t1")), (200, page(token="t2")), (200, page("p/b")))
    assert found == ["a", "b"]
    assert [parameters.get("continuation-token") for parameters in asked] == [None, "t1", "t2"]
    assert all(parameters["prefix"] == "p/" for parameters in asked)


def test_a_part_begins_after_its_border_and_ends_with_it(listed: Listed) -> None:
    part = KeyInterval("b", "d")
    found, asked = listed(part, (200, page("p/c", token="t")), (200, page("p/d", "p/e", token="never asked for")))
    assert found == ["c", "d"]
    assert [parameters.get("start-after") for parameters in asked] == ["p/b", None]


def test_a_server_that_names_the_border_again_does_not_end_the_part(listed: Listed) -> None:
    """An object may have the name of a "directory", and some servers begin with the key after which they should."""
    found, _ = listed(KeyInterval("b/", "d/"), (200, page("p/b/", "p/b/1", token="t")), (200, page("p/c", "p/e")))
    assert found == ["b/1", "c"]


def version_page(*versions: tuple[str, str], more: tuple[str, str] | None = None) -> Answer:
    """Keys with their version ids; `more` is where the next page begins."""
    entries = "".join(
        f"<Version><Key>{key}</Key><VersionId>{version}</VersionId><IsLatest>false</IsLatest><Size>1</Size>"
        "<LastModified>2026-11-21T20:41:52Z</LastModified></Version>"
        for key, version in versions
    )
    named = "" if more is None else f"<NextKeyMarker>{more[0]}</NextKeyMarker>"
    named += "" if more is None else f"<NextVersionIdMarker>{more[1]}</NextVersionIdMarker>"
    truncated = str(more is not None).lower()
    return (
        200,
        f"<ListVersionsResult><IsTruncated>{truncated}</IsTruncated>{named}{entries}</ListVersionsResult>".encode(),
    )


def test_all_versions_of_the_border_are_in_the_part_that_ends_with_it(server: ScriptedS3) -> None:
    """A "directory" may be an object itself, with versions in several pages."""
    credentials = S3Credentials(ACCESS_KEY, SECRET_KEY)
    versions = S3Listing("bucket", "p/", endpoint_url=server.endpoint_url, credentials=credentials, max_attempts=1)
    versions._keeps_versions = True
    server.play(
        [
            version_page(("p/a", "1"), ("p/b/", "3"), more=("p/b/", "3")),
            version_page(("p/b/", "2"), ("p/b/", "1"), more=("p/b/", "1")),
            version_page(("p/b/1", "1"), more=("never", "asked for")),
        ]
    )
    found = [(one.key, one.version_id) for listed in versions.pages(KeyInterval(None, "b/")) for one in listed]
    assert found == [("a", "1"), ("b/", "3"), ("b/", "2"), ("b/", "1")]
    markers = [(asked.get("key-marker"), asked.get("version-id-marker")) for asked in server.asked]
    assert markers == [(None, None), ("p/b/", "3"), ("p/b/", "1")]


@pytest.mark.parametrize(
    "script",
    [
        [(200, page("p/a", truncated=True))],
        [(200, page("p/a", token="t")), (200, page("p/b", token="t"))],
        [(200, page("p/a", "other/b"))],
        [(200, page("p/a").replace(b"<Size>1</Size>", b"<Size>many</Size>"))],
        [(200, page("p/a").replace(b"<Size>1</Size>", b""))],
        [(200, page("p/a").replace(b"2026", b"year"))],
        [(200, b"")],
        [(200, b"<html>a proxy's log-in</html>")],
        [(200, page(token=f"t{number}")) for number in range(6)],
    ],
    ids=["no token", "same token", "other prefix", "size", "no size", "time", "empty", "html", "empty pages"],
)
def test_a_listing_that_cannot_be_believed_is_an_error(
    listed: Listed, monkeypatch: pytest.MonkeyPatch, script: list[Answer]
) -> None:
    monkeypatch.setattr(s3_listing, "MOST_EMPTY_PAGES", 3)
    with pytest.raises(RemoteStorageError, match="s3://bucket/p/"):
        listed(WHOLE, *script)


@pytest.mark.parametrize("keys", [("p/a",), ("p/x", "p/c")])
def test_a_server_that_lists_out_of_order_is_no_use_in_parts(listed: Listed, keys: tuple[str, ...]) -> None:
    """Among these one that ignores where it was told to begin."""
    with pytest.raises(RemoteStorageError, match="order"):
        listed(KeyInterval("d", None), (200, page("p/e", "p/f", token="t")), (200, page(*keys)))
    assert listed(WHOLE, (200, page("p/e", token="t")), (200, page(*keys)))[0] == [
        "e",
        *(key.removeprefix("p/") for key in keys),
    ]


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """botocore sleeps before it tries again."""
    with monkeypatch.context() as patch:
        patch.setattr("botocore.endpoint.time", SimpleNamespace(sleep=lambda _: None))
        yield


@pytest.mark.parametrize(
    "trouble",
    [(503, ERROR), (500, ERROR), (200, ERROR), (200, page("p/a", "p/b"), 10_000), (429, ERROR)],
    ids=["503", "500", "error under 200", "cut off", "429"],
)
def test_passing_trouble_is_tried_again_and_lasting_trouble_is_typed(
    listed: Listed, no_waiting: None, trouble: Answer
) -> None:
    assert listed(WHOLE, trouble, (200, page("p/c")))[0] == ["c"]
    with pytest.raises(RemoteStorageUnavailableError) as raised:
        listed(WHOLE, trouble, trouble)
    assert "Signature" not in str(raised.value)


def test_an_endless_answer_is_not_taken(listed: Listed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_listing, "MAX_ANSWER_BYTES", 1_000)
    with pytest.raises(RemoteStorageError, match="too large for 1,000 keys"):
        listed(WHOLE, (200, page(*(f"p/{number}" for number in range(100)))))


def test_an_endless_answer_to_a_deletion_is_not_taken(server: ScriptedS3, monkeypatch: pytest.MonkeyPatch) -> None:
    """botocore reads it whole, so that spaces alone can fill the memory."""
    monkeypatch.setattr(s3_listing, "MAX_ANSWER_BYTES", 1_000)
    credentials = S3Credentials(ACCESS_KEY, SECRET_KEY)
    store = S3ObjectStore("bucket", "p/", endpoint_url=server.endpoint_url, credentials=credentials, max_attempts=2)
    failed = b"<DeleteResult><Error><Key>p/b</Key><Code>AccessDenied</Code></Error></DeleteResult>"
    server.play([(200, failed), (200, b" " * 2_000 + failed)])
    assert [failure.key for failure in store.delete(["a", "b"])] == ["b"]
    failures = store.delete(["a", "b"])
    assert [(failure.key, failure.retriable) for failure in failures] == [("a", False), ("b", False)]
    assert "too large for 1,000 keys" in failures[0].message


def test_denied_is_not_empty(listed: Listed) -> None:
    denied = b"<Error><Code>AccessDenied</Code></Error>"
    with pytest.raises(RemoteStorageError, match="AccessDenied"):
        listed(WHOLE, (403, denied))


def test_parts_lie_between_directories(server: ScriptedS3, listing: S3Listing) -> None:
    def directories(*names: str) -> tuple[int, bytes]:
        found = "".join(f"<CommonPrefixes><Prefix>p/{name}</Prefix></CommonPrefixes>" for name in names)
        return (200, page(directories=found))

    server.play([directories("b/", "a/"), directories("b/2/", "b/1/"), directories()])
    assert listing.parts(2) == (KeyInterval(None, "b/1/"), KeyInterval("b/1/", None))
    server.play([directories()])
    assert listing.parts(8) == (WHOLE,)


def test_pages_of_uploads_follow_each_other_by_key_and_id(server: ScriptedS3, listing: S3Listing) -> None:
    def uploads(*names: str, more: str = "<IsTruncated>false</IsTruncated>") -> tuple[int, bytes]:
        found = "".join(
            f"<Upload><Key>p/{name}</Key><UploadId>of-{name}</UploadId><Initiated>2023-11-14T22:13:20Z</Initiated></Upload>"
            for name in names
        )
        return (200, f"<ListMultipartUploadsResult>{more}{found}</ListMultipartUploadsResult>".encode())

    more = (
        "<IsTruncated>true</IsTruncated><NextKeyMarker>p/b</NextKeyMarker><NextUploadIdMarker>of-b</NextUploadIdMarker>"
    )
    server.play([uploads("a", "b", more=more), uploads("c")])
    found = [one for page_ in listing.open_uploads() for one in page_]
    assert found == [ListedUpload(name, f"of-{name}", 1_700_000_000_000) for name in "abc"]
    assert {one.size_bytes for one in found} == {0}, "S3 does not say what was sent so far"
    markers = [(asked.get("key-marker"), asked.get("upload-id-marker")) for asked in server.asked]
    assert markers == [(None, None), ("p/b", "of-b")]
    server.play([uploads("a", more=more), uploads("b", more=more)])
    with pytest.raises(RemoteStorageError, match="ends early"):
        list(listing.open_uploads())


# One page of a listing: the names of three kinds of answers, and answers that are none.

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


def test_an_answer_that_breaks_off_is_one_that_botocore_asks_for_again() -> None:
    def stream(_bytes: int) -> Iterator[bytes]:
        yield b"<List"
        raise ProtocolError("connection broken")

    answer: Any = SimpleNamespace(raw=SimpleNamespace(stream=stream), headers={})
    with pytest.raises(ConnectionClosedError, match="http://s3/bucket"):
        s3_listing._whole(answer, "http://s3/bucket")


@pytest.mark.parametrize(("declared", "is_whole"), [(None, True), ("5", True), ("6", False), ("4", False)])
def test_an_answer_of_another_length_than_it_says_is_asked_for_again(declared: str | None, is_whole: bool) -> None:
    headers = {} if declared is None else {"Content-Length": declared}
    answer: Any = SimpleNamespace(raw=SimpleNamespace(stream=lambda _bytes: iter((b"<Li", b"st"))), headers=headers)
    if is_whole:
        assert s3_listing._whole(answer, "place") == b"<List"
    else:
        with pytest.raises(ConnectionClosedError):
            s3_listing._whole(answer, "place")


HTML = b"<html><body>the proxy is not well</body></html>"


@pytest.fixture(scope="module")
def store(server: ScriptedS3) -> S3ObjectStore:
    credentials = S3Credentials(ACCESS_KEY, SECRET_KEY)
    return S3ObjectStore("bucket", "p/", endpoint_url=server.endpoint_url, credentials=credentials, max_attempts=2)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (page("p/a", truncated=True), "ends early"),
        (page("q/a"), "not below the prefix"),
        (page("p/a").replace(b"<Size>1", b"<Size>?"), "without a valid size"),
        (page("p/a").replace(b"<IsTruncated>", b"<KeyCount>2</KeyCount><IsTruncated>"), "has 1 keys"),
        (HTML, "whether it is the last"),
        (b"", "cannot be parsed"),
    ],
)
def test_a_rebuild_lists_completely_or_not_at_all(
    server: ScriptedS3, store: S3ObjectStore, answer: bytes, error: str
) -> None:
    server.play([(200, answer)])
    with pytest.raises(RemoteStorageError, match=error):
        list(store.list_objects())


@pytest.mark.parametrize(
    "answer", [HTML, b"", page(truncated=True), b"<A><IsTruncated>false</IsTruncated><Upload/></A>"]
)
def test_open_uploads_are_listed_completely_or_not_at_all(
    server: ScriptedS3, store: S3ObjectStore, answer: bytes
) -> None:
    server.play([(200, answer)])
    with pytest.raises(RemoteStorageError):
        list(store.list_open_uploads("a"))


def test_a_rebuild_lists_every_page(server: ScriptedS3, store: S3ObjectStore) -> None:
    server.play([(200, page("p/a/1", token="next")), (200, page("p/a/2"))])
    assert [*store.list_objects("a/")] == [ObjectEntry("a/1", 1), ObjectEntry("a/2", 1)]
    assert [asked["prefix"] for asked in server.asked] == ["p/a/", "p/a/"]


def test_a_page_of_a_proxy_is_no_object_and_deletes_nothing(server: ScriptedS3, store: S3ObjectStore) -> None:
    requests: tuple[Callable[[], object], ...] = (
        lambda: store.stat("a"),
        lambda: store.head("a"),
        lambda: list(store.read("a", limiter=UnlimitedBytes())),
        lambda: store.replace("a", b"marker"),
    )
    for request in requests:
        server.play([(200, HTML)])
        with pytest.raises(RemoteStorageError, match="the answer is not one of S3"):
            request()
    for answer in (HTML, b"", b"<ok/>"):
        server.play([(200, answer)])
        assert [failure.retriable for failure in store.delete(["a", "b"])] == [False, False]
    server.play([(200, b"<DeleteResult/>")])
    assert store.delete(["a", "b"]) == ()
