"""`meta.properties` says whose a log directory is, `partition.metadata` which topic a partition directory is of."""

import pytest

from include.tiering.errors import FormatError
from include.tiering.formats import checkpoints
from include.tiering.formats.checkpoints import MetaProperties
from include.tiering.model.segments import Uuid

DIRECTORY_ID = "DJNI-5vO8s7lKmEVGY24Tw"
TOPIC_ID = "DhwUnU7hQAGOf7zmLzw1Gg"


def test_version_1() -> None:
    data = b"#\n#Sat Nov 21 08:59:12 UTC 2026\nnode.id=1\ndirectory.id=" + DIRECTORY_ID.encode()
    data += b"\nversion=1\ncluster.id=12IO-UzuQxmrizG4BTlN8w\n"
    assert checkpoints.parse_meta_properties(data) == MetaProperties(
        1, "12IO-UzuQxmrizG4BTlN8w", 1, Uuid.parse(DIRECTORY_ID)
    )


@pytest.mark.parametrize("version", [b"version=0\n", b""])
def test_version_0_names_the_broker(version: bytes) -> None:
    assert checkpoints.parse_meta_properties(version + b"broker.id=12\n") == MetaProperties(0, None, 12, None)
    assert checkpoints.parse_meta_properties(version + b"broker.id=-1\ncluster.id=abc\n") == MetaProperties(
        0, "abc", None, None
    )


def test_an_empty_file_says_nothing() -> None:
    assert checkpoints.parse_meta_properties(b"") == MetaProperties(0, None, None, None)


@pytest.mark.parametrize(
    "line", [b"cluster.id = a:b", b"cluster.id: a\\:b", b"cluster.id a:b", b"  cluster.id=a:b  \r"]
)
def test_separators_and_escapes_of_java_properties(line: bytes) -> None:
    assert checkpoints.parse_meta_properties(b"! comment\n\n" + line + b"\n").cluster_id == "a:b"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"version=2\nnode.id=1\ncluster.id=a\n", "version '2'"),
        (b"version=\n", "version ''"),
        (b"version=1\nnode.id=1\n", "lacks"),
        (b"version=1\ncluster.id=a\n", "lacks"),
        (b"version=1\nbroker.id=1\ncluster.id=a\n", "lacks"),
        (b"version=1\nnode.id=2147483648\ncluster.id=a\n", "node id"),
        (b"version=1\nnode.id=x\ncluster.id=a\n", "node id"),
        (b"version=1\nnode.id=1\ncluster.id=a\ndirectory.id=short\n", "directory.id"),
        (b"=value\n", "not key=value"),
        (b"lonely\n", "not key=value"),
        (b"#" * 65_537, "at most 65536"),
    ],
)
def test_properties_that_no_broker_writes(data: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        checkpoints.parse_meta_properties(data)


@pytest.mark.parametrize(
    "form", ["version: 0\ntopic_id: {}", "version: 3\ntopic_id: {}\n", "version:0\r\ntopic_id:{}\r\n"]
)
def test_the_topic_id_of_a_partition(form: str) -> None:
    assert checkpoints.parse_partition_metadata(form.format(TOPIC_ID).encode()) == Uuid.parse(TOPIC_ID)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"version: 0\n",
        b"topic_id: DhwUnU7hQAGOf7zmLzw1Gg\nversion: 0",
        b"version: -1\ntopic_id: DhwUnU7hQAGOf7zmLzw1Gg",
        b"version: 0\ntopic_id: DhwUnU7hQAGOf7zmLzw1G",
        b"version: 0\ntopic_id: DhwUnU7hQAGOf7zmLzw1Gh",
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
        b"version: 0\ntopic_id: DhwUnU7hQAGOf7zmLzw1Gg\nmore: 1",
        b"version: 0\ntopic_id: ../../../../etc/passwd",
        b"version: 0\ntopic_id: DhwUnU7hQAGOf7zmLzw1Gg" + b" " * 2000,
    ],
)
def test_partition_metadata_that_no_broker_writes(data: bytes) -> None:
    with pytest.raises(FormatError):
        checkpoints.parse_partition_metadata(data)
