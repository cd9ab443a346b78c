"""Objects that are replaced under a condition, deletions in groups, and waits between tries.

The server is a bucket in memory that answers as S3 does, or as a server that knows no conditions.
"""

import io
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError, HTTPClientError
from botocore.hooks import HierarchicalEmitter

from include.tiering.errors import RemoteAccessDeniedError, RemoteStorageError
from include.tiering.quotas.contract import UnlimitedBytes
from include.tiering.remote_storage.object_store import KeyFailure, crc32c_of
from include.tiering.remote_storage.s3.client import OwnRetries, is_retriable_code
from include.tiering.remote_storage.s3.store import S3ObjectStore, encoded_crc32c
from tests.doubles.partial import Partial


def refused(code: str, status: int) -> ClientError:
    return ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "Operation")


class Bucket(Partial):
    """Versions are numbers in quotes. `refuses` is raised by requests with a condition, if it is set."""

    def __init__(self, *, knows_conditions: bool = True) -> None:
        self.knows_conditions = knows_conditions
        self.refuses: ClientError | None = None
        self.objects: dict[str, bytes] = {}
        self.versions: dict[str, int] = {}
        self.deletes: list[list[dict[str, str]]] = []
        self.errors: list[dict[str, str]] = []

    def put_object(self, *, Bucket: str, Key: str, Body: bytes, ChecksumCRC32C: str, IfMatch: str | None = None) -> Any:  # noqa: N803
        assert (Bucket, ChecksumCRC32C) == ("bucket", encoded_crc32c(crc32c_of(Body)))
        if IfMatch is not None and self.refuses is not None:
            raise self.refuses
        if IfMatch is not None and self.knows_conditions and IfMatch != f'"{self.versions.get(Key, 0)}"':
            raise refused("PreconditionFailed", 412)
        self.objects[Key], self.versions[Key] = Body, self.versions.get(Key, 0) + 1
        return {"ETag": f'"{self.versions[Key]}"'}

    def get_object(self, *, Bucket: str, Key: str, Range: str = "") -> Any:  # noqa: N803
        if Key not in self.objects:
            raise refused("NoSuchKey", 404)
        content = self.objects[Key]
        if Range:
            first, last = Range.removeprefix("bytes=").split("-")
            content = content[int(first) : int(last) + 1 if last else None]
        return {"Body": io.BytesIO(content), "ContentLength": len(content), "ETag": f'"{self.versions[Key]}"'}

    def delete_objects(self, *, Bucket: str, Delete: Mapping[str, Any]) -> Any:  # noqa: N803
        assert Delete["Quiet"] is True
        self.deletes.append(list(Delete["Objects"]))
        for each in Delete["Objects"]:
            self.objects.pop(each["Key"], None)
        return {"Errors": self.errors} if self.errors else {}


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


@pytest.fixture(scope="module")
def opened() -> S3ObjectStore:
    return S3ObjectStore("bucket", "kafka/", endpoint_url="http://127.0.0.1:1", region="us-east-1")


@pytest.fixture
def store(opened: S3ObjectStore, bucket: Bucket) -> S3ObjectStore:
    opened._client = bucket
    return opened


def test_an_object_is_read_with_the_version_under_which_it_can_be_replaced(
    bucket: Bucket, store: S3ObjectStore
) -> None:
    assert store.read_version("marker", 100) is None
    assert store.replace("marker", b"one") is True
    content, version = store.read_version("marker", 3) or (b"", "")
    assert (content, bucket.objects) == (b"one", {"kafka/marker": b"one"})
    assert store.replace("marker", b"two", version=version) is True
    assert store.replace("marker", b"three", version=version) is False
    assert bucket.objects == {"kafka/marker": b"two"}


def test_what_is_larger_than_a_marker_is_refused_and_its_rest_is_not_read(store: S3ObjectStore) -> None:
    store.replace("marker", b"12345")
    assert (store.read_version("marker", 5) or (b"",))[0] == b"12345"
    with pytest.raises(RemoteStorageError, match="s3://bucket/kafka/marker: more than 4 bytes"):
        store.read_version("marker", 4)


@pytest.mark.parametrize(
    ("code", "status"), [("PreconditionFailed", 412), ("ConditionalRequestConflict", 409), ("NoSuchKey", 404)]
)
def test_a_condition_that_fails_replaces_nothing(bucket: Bucket, store: S3ObjectStore, code: str, status: int) -> None:
    bucket.refuses = refused(code, status)
    assert store.replace("marker", b"two", version='"0"') is False


def test_an_answer_that_is_about_something_else_is_an_error(bucket: Bucket, store: S3ObjectStore) -> None:
    bucket.refuses = refused("NoSuchBucket", 404)
    with pytest.raises(RemoteStorageError):
        store.replace("marker", b"two", version='"0"')
    bucket.refuses = refused("AccessDenied", 403)
    with pytest.raises(RemoteAccessDeniedError):
        store.replace("marker", b"two", version='"0"')


@pytest.mark.parametrize("heeds", [True, False])
def test_whether_a_server_heeds_conditions_is_tried_with_an_object_that_does_not_stay(
    bucket: Bucket, store: S3ObjectStore, heeds: bool
) -> None:
    bucket.knows_conditions = heeds
    assert store.replaces_conditionally("probe") is heeds
    assert bucket.objects == {}
    assert bucket.deletes == [[{"Key": "kafka/probe"}]]


@pytest.mark.parametrize(("status", "knows"), [(400, False), (501, False), (403, None), (500, None)])
def test_a_server_that_refuses_conditions_does_not_know_them(
    bucket: Bucket, store: S3ObjectStore, status: int, knows: bool | None
) -> None:
    bucket.refuses = refused("Refused", status)
    if knows is None:
        with pytest.raises(RemoteStorageError):
            store.replaces_conditionally("probe")
    else:
        assert store.replaces_conditionally("probe") is knows
    assert bucket.objects == {}


@pytest.mark.parametrize(
    ("first", "last", "content"),
    [(0, None, b"0123456789"), (3, None, b"3456789"), (0, 0, b"0"), (2, 4, b"234"), (0, 9, b"0123456789")],
)
def test_a_range_is_read_to_its_last_byte(store: S3ObjectStore, first: int, last: int | None, content: bytes) -> None:
    store.replace("log", b"0123456789")
    assert b"".join(store.read("log", first, last, limiter=UnlimitedBytes())) == content


def test_a_range_beyond_the_end_is_not_there(store: S3ObjectStore) -> None:
    store.replace("log", b"0123456789")
    with pytest.raises(RemoteStorageError, match=r"bytes 8\.\.12 of an object of 10"):
        list(store.read("log", 8, 12, limiter=UnlimitedBytes()))


@pytest.mark.parametrize(
    ("keys", "groups"), [(0, []), (1, [1]), (999, [999]), (1_000, [999, 1]), (1_999, [999, 999, 1])]
)
def test_keys_are_deleted_in_groups_of_fewer_than_a_thousand(
    bucket: Bucket, store: S3ObjectStore, keys: int, groups: list[int]
) -> None:
    assert store.delete([f"log-{number}" for number in range(keys)]) == ()
    assert [len(request) for request in bucket.deletes] == groups
    assert sum(bucket.deletes, []) == [{"Key": f"kafka/log-{number}"} for number in range(keys)]  # noqa: RUF017


def test_versions_are_deleted_by_name(bucket: Bucket, store: S3ObjectStore) -> None:
    assert store.delete_versions([("a", "1"), ("b", "null")]) == ()
    assert bucket.deletes == [[{"Key": "kafka/a", "VersionId": "1"}, {"Key": "kafka/b", "VersionId": "null"}]]


def test_keys_that_were_refused_are_told_with_whether_to_try_again(bucket: Bucket, store: S3ObjectStore) -> None:
    bucket.errors = [
        {"Key": "kafka/a", "Code": "AccessDenied"},
        {"Key": "kafka/b", "Code": "SlowDown", "VersionId": "7"},
        {"Key": "kafka/c", "Code": "NoSuchKey"},
        {"Key": "kafka/d", "Code": "NoSuchVersion"},
    ]
    failures = store.delete(["a", "b", "c", "d"])
    assert [(each.key, each.retriable, each.version_id) for each in failures] == [
        ("a", False, None),
        ("b", True, "7"),
    ]
    assert "the store answered AccessDenied" in failures[0].message


def test_a_key_that_is_none_is_refused_without_a_request(bucket: Bucket, store: S3ObjectStore) -> None:
    (failure,) = store.delete_versions([("../a", "3")])
    assert isinstance(failure, KeyFailure)
    assert (failure.key, failure.retriable, failure.version_id, bucket.deletes) == ("../a", False, "3", [])


RETRIED: dict[str, bool] = {
    "SlowDown": True,
    "Throttling": True,
    "ThrottlingException": True,
    "TooManyRequests": True,
    "ConditionalRequestConflict": True,
    "IncompleteBody": True,
    "InternalError": True,
    "OperationAborted": True,
    "RequestTimeout": True,
    "ServiceUnavailable": True,
    "AccessDenied": False,
    "NoSuchKey": False,
    "": False,
}


@pytest.mark.parametrize(("code", "is_retried"), RETRIED.items())
def test_codes_of_s3_that_pass_by_themselves(code: str, is_retried: bool) -> None:
    assert is_retriable_code(code) is is_retried


def waits(attempts: int, *, status: int = 200, code: str = "", error: Exception | None = None) -> float | None:
    """How long the last handler of a client with six tries lets it wait, after so many tries."""
    events = HierarchicalEmitter()
    client: Any = SimpleNamespace(meta=SimpleNamespace(events=events))
    OwnRetries(client, 6)
    parsed = None if error else (None, {"ResponseMetadata": {"HTTPStatusCode": status}, "Error": {"Code": code}})
    ((_, seconds),) = events.emit(
        "needs-retry.s3.PutObject", response=parsed, attempts=attempts, caught_exception=error
    )
    assert seconds is None or isinstance(seconds, float)
    return seconds


def test_waits_between_tries_double_and_end_with_the_tries() -> None:
    assert [waits(attempts, status=503) for attempts in range(1, 7)] == [0.025, 0.05, 0.1, 0.2, 0.4, None]
    assert [waits(attempts, code="SlowDown") for attempts in range(1, 7)] == [0.5, 1.0, 2.0, 4.0, 8.0, None]
    assert waits(1, error=HTTPClientError(error="reset")) == 0.025
    assert [waits(1, status=status) for status in (500, 501, 502, 503, 504, 505)] == [
        0.025,
        None,
        0.025,
        0.025,
        0.025,
        None,
    ]
    assert waits(1, error=ValueError("no")) is None


def test_no_wait_is_longer_than_ten_seconds() -> None:
    events = HierarchicalEmitter()
    client: Any = SimpleNamespace(meta=SimpleNamespace(events=events))
    OwnRetries(client, 60)
    parsed = (None, {"ResponseMetadata": {"HTTPStatusCode": 503}, "Error": {"Code": "SlowDown"}})
    ((_, seconds),) = events.emit("needs-retry.s3.PutObject", response=parsed, attempts=50, caught_exception=None)
    assert seconds == 10.0
