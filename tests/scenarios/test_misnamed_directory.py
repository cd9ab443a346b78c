"""A directory holds the topic id of another topic: a `partition.metadata` that was copied or mended by hand."""

import json
import shutil
from pathlib import Path

import pytest

from include.tiering.model.ownership import TopicOwner
from include.tiering.model.segments import Uuid
from tests.doubles.archive import ORDERS, Archive
from tests.doubles.tiered_topic import partition_record, topic_record

pytestmark = pytest.mark.integration

OTHER = Uuid(b"others-topic-id0")
ARCHIVED = Uuid(b"archived-topic-0")
CONTRADICTED = "cluster metadata contradicts what is on disk"


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """The cluster calls the id in the directories of `orders` by another name."""
    archive = Archive.of(tmp_path)
    for broker in (1, 2):
        archive.append_metadata(
            broker, topic_record("others", OTHER), *(partition_record(OTHER, number) for number in (0, 1))
        )
    archive.recreate_topic(str(OTHER))
    return archive


def test_nothing_of_it_is_copied_and_each_command_says_why(archive, app) -> None:
    copied = app("copy", "--json")
    assert copied.exit_code == 1
    document = json.loads(copied.stdout)
    assert document["copied"] == []
    assert document["errors"]
    assert all(one["message"].startswith(f"{CONTRADICTED}: its topic id is {OTHER}") for one in document["errors"])
    assert archive.remote() == {}
    with archive.open() as opened:
        assert opened.adapters.stores.registry.names_in_use() == {}
    scanned = json.loads(app("scan", "--topic", ORDERS, "--json").stdout)
    reasons = {segment["reason_message"] for one in scanned["partitions"] for segment in one["segments"]}
    assert reasons == {CONTRADICTED}
    for command in (("doctor", ORDERS), ("ready",)):
        said = " ".join(app(*command).output.split())
        assert CONTRADICTED in said, (command, said)


def test_without_topic_metadata_nothing_is_appended_to_the_archive_of_another_name(archive, app) -> None:
    """The id of an archived topic in the directories of another one, and no metadata log to ask."""
    archive.recreate_topic(str(ARCHIVED))
    for broker in (1, 2):
        shutil.rmtree(archive.brokers / f"broker-{broker}" / "__cluster_metadata-0")
    with archive.open() as opened:
        opened.adapters.stores.registry.set_owner(
            ARCHIVED, "archived", TopicOwner.PLATFORM, expected=TopicOwner.NONE, author="an earlier run"
        )
    copied = app("copy", "--json")
    assert copied.exit_code == 1
    document = json.loads(copied.stdout)
    assert document["copied"] == []
    assert {one["message"] for one in document["errors"]} == {
        f"{CONTRADICTED}: its topic id is {ARCHIVED}, which was archived as archived"
    }
    assert archive.remote() == {}
    with archive.open() as opened:
        assert opened.adapters.stores.registry.names_in_use() == {ARCHIVED: "archived"}
    for command in (("doctor", ORDERS), ("ready",)):
        said = " ".join(app(*command).output.split())
        assert CONTRADICTED in said, (command, said)
