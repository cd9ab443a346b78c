"""The database is restored from a backup of before a publication: brokers know segments that it has no journal of."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from include.tiering.app import App
from include.tiering.kafka.metadata_topic.contract import OffsetBounds
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.segments import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    Uuid,
)
from include.tiering.segments.ingestion_contract import IngestPage, MetadataTopicIdentity
from tests.doubles.archive import Archive, Command, document
from tests.doubles.orphans import stored_files

pytestmark = pytest.mark.integration


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """Nothing was copied since the backup, so no audit sees that the database was set back."""
    archive = Archive.of(tmp_path)
    archive.copy()
    archive.set(retention_bytes=0)
    shutil.copy(tmp_path / "metadata.sqlite", tmp_path / "backup.sqlite")
    with archive.open() as opened:
        opened.ownership.claim()
    for file in tmp_path.glob("metadata.sqlite*"):
        file.unlink()
    shutil.copy(tmp_path / "backup.sqlite", tmp_path / "metadata.sqlite")
    return archive


def ingested(opened: App, published: Sequence[RemoteLogSegmentMetadata]) -> Sequence[str]:
    """Ingest STARTED and FINISHED of each segment, as brokers have them after the lost publication."""
    events: list[RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate] = []
    for segment in published:
        events += [
            replace(segment, state=RemoteLogSegmentState.COPY_SEGMENT_STARTED),
            RemoteLogSegmentMetadataUpdate(
                segment.remote_log_segment_id, RemoteLogSegmentState.COPY_SEGMENT_FINISHED, 1, segment.broker_id
            ),
        ]
    ingestion = opened.adapters.stores.ingestion
    ingestion.record_bounds(MetadataTopicIdentity(Uuid(bytes(range(16))), 1), {0: OffsetBounds(0, len(events))})
    if events:
        ingestion.apply(IngestPage(0, 0, len(events), tuple(enumerate(events))))
    return ingestion.take_over(author="test")


def test_nothing_expires_before_it_was_read_what_brokers_know_and_that_stays(
    archive: Archive, app: Command, store: Path
) -> None:
    taken = app("take-over-store", "--approve")
    assert "nothing expires before ./tiering ingest" in taken.output
    before = stored_files(store)
    refused = app("expire", "--approve")
    assert refused.exit_code == 1
    assert all(word in refused.output for word in ("guard unread-records", "./tiering ingest", "--nothing-published"))
    assert "guard unread-records" in document(app("expire", "--dry-run", "--json"), 1)["refusal"]
    assert stored_files(store) == before

    with archive.open() as opened:
        metadata = opened.adapters.stores.metadata
        known, unknown = metadata.partitions()[:2]
        published = [row.metadata for row in metadata.list_segments(known)]
        assert published
        assert "the guard unread-records is cleared" in ingested(opened, published)[-1]
        assert opened.adapters.stores.registry.owner(known.topic_id) is TopicOwner.PLATFORM
        plan = opened.expiration.plan("after")
    partitions = {expiration.topic_id_partition for expiration in plan.expirations}
    assert known not in partitions
    assert unknown in partitions
    assert [wait.topic_id_partition for wait in plan.waiting] == [known]


def test_a_person_declares_that_nothing_was_published(archive: Archive, app: Command, store: Path) -> None:
    """No handover, no bootstrap servers: there is nothing to ingest."""
    document(app("take-over-store", "--approve", "--json"))
    assert app("expire", "--approve").exit_code == 1
    unconfirmed = app("take-over-store", "--nothing-published", "--json")
    assert (unconfirmed.exit_code, "without a terminal it needs --approve" in unconfirmed.output) == (1, True)
    assert app("expire", "--approve").exit_code == 1
    document(app("take-over-store", "--nothing-published", "--approve", "--json"))
    before = stored_files(store)
    assert app("expire", "--approve").exit_code == 0
    assert stored_files(store) < before


def test_a_rebuilt_database_waits_as_well(archive: Archive, app: Command, tmp_path: Path) -> None:
    for file in tmp_path.glob("metadata.sqlite*"):
        file.unlink()
    app("rebuild", "--approve")
    assert "was rebuilt from the store" in app("expire", "--approve").output
