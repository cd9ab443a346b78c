"""Suspicions about stored segments are believed only if row and store say so when they are asked again."""

from dataclasses import replace
from pathlib import Path

import pytest

from include.tiering.errors import RemoteStorageUnavailableError
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState, Verdict
from include.tiering.quotas.contract import UnlimitedBytes
from include.tiering.remote_storage.file.store import FileObjectStore
from include.tiering.remote_storage.layouts.aiven import AivenLayout
from include.tiering.remote_storage.layouts.aiven_form import AivenForm
from include.tiering.remote_storage.location import open_storage
from include.tiering.remote_storage.segment_storage import SegmentStorage
from include.tiering.segments.contract import SegmentRow
from include.tiering.segments.stored_copies import Suspicion, explains_length, manifest_suspicion
from include.tiering.sizes.compare import settle_stored
from include.tiering.verification.suites import STORED_RULES
from tests.doubles.memory_metadata import MemoryMetadata
from tests.doubles.plain_evaluator import PlainEvaluator
from tests.doubles.storage_decorators import StorageDecorator
from tests.doubles.storage_segments import some_segment

FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def storage(root: Path) -> SegmentStorage:
    return SegmentStorage(FileObjectStore(root), AivenLayout())


@pytest.fixture
def stored(storage: SegmentStorage) -> RemoteLogSegmentMetadata:
    """One copied segment."""
    metadata, data = some_segment(2_000)
    storage.copy_log_segment(metadata, data, limiter=UnlimitedBytes(), on_sent=lambda _: None)
    return replace(metadata, state=FINISHED)


def rows(*segments: RemoteLogSegmentMetadata) -> MemoryMetadata:
    return MemoryMetadata(SegmentRow(segment, Verdict.PASSED, 0) for segment in segments)


def settled(segment: RemoteLogSegmentMetadata, suspicion: Suspicion, metadata, storage) -> list[tuple[str, str]]:
    """(rule, kind) of what is believed."""
    found = settle_stored([(segment.remote_log_segment_id, suspicion)], metadata, storage, PlainEvaluator(STORED_RULES))
    return [
        (broken.rule.rule_id, kind.value)
        for difference in found
        for broken, (_, kind) in zip(difference.broken, difference.segments, strict=True)
    ]


def only(root: Path, suffix: str) -> Path:
    (path,) = root.rglob(f"*.{suffix}")
    return path


@pytest.mark.parametrize("suspicion", list(Suspicion))
def test_a_segment_that_is_there_as_its_row_says_is_no_finding(stored, storage, suspicion) -> None:
    assert settled(stored, suspicion, rows(stored), storage) == []


@pytest.mark.parametrize("suffix", ["log", "indexes", "rsm-manifest"])
def test_a_missing_object_is_a_finding(root, stored, storage, suffix) -> None:
    only(root, suffix).unlink()
    assert settled(stored, Suspicion.MISSING, rows(stored), storage) == [("S201", "missing")]


def test_an_object_without_a_row_is_a_finding(stored, storage) -> None:
    assert settled(stored, Suspicion.UNKNOWN, rows(), storage) == [("S202", "unknown")]


def test_another_length_is_a_finding(root, stored, storage) -> None:
    with only(root, "log").open("ab") as log:
        log.write(b"more")
    assert settled(stored, Suspicion.OTHER_SIZE, rows(stored), storage) == [("S203", "other_size")]


def test_a_compressed_log_has_the_length_that_its_manifest_says(root) -> None:
    storage = SegmentStorage(FileObjectStore(root), AivenLayout(AivenForm(500, compresses=True)))
    metadata, data = some_segment(2_000)
    storage.copy_log_segment(metadata, data, limiter=UnlimitedBytes(), on_sent=lambda _: None)
    row = replace(metadata, state=FINISHED)
    assert only(root, "log").stat().st_size != 2_000
    assert settled(row, Suspicion.OTHER_SIZE, rows(row), storage) == []
    with only(root, "log").open("ab") as log:
        log.write(b"more")
    assert settled(row, Suspicion.OTHER_SIZE, rows(row), storage) == [("S203", "other_size")]


@pytest.mark.parametrize("manifest", [None, b"{"])
def test_without_a_manifest_another_length_is_not_explained(manifest: bytes | None) -> None:
    assert not explains_length(manifest, 100, 90)


def test_a_layout_without_manifests_has_its_objects_counted(root) -> None:
    storage = open_storage(root.as_uri(), layout="local_tiered_storage")
    metadata, data = some_segment(2_000)
    storage.copy_log_segment(metadata, data, limiter=UnlimitedBytes(), on_sent=lambda _: None)
    row = replace(metadata, state=FINISHED)
    for suspicion in Suspicion:
        assert settled(row, suspicion, rows(row), storage) == []
    only(root, "snapshot").unlink()
    assert settled(row, Suspicion.MISSING, rows(row), storage) == [("S201", "missing")]


def test_a_manifest_of_other_epochs_is_a_finding(stored, storage) -> None:
    epochs = LeaderEpochs.of([(7, stored.start_offset)])
    row = replace(stored, segment_leader_epochs=epochs)
    assert settled(row, Suspicion.OTHER_EPOCHS, rows(row), storage) == [("S204", "other_epochs")]


def test_a_manifest_that_cannot_be_read_is_a_finding(root, stored, storage) -> None:
    only(root, "rsm-manifest").write_bytes(b"{")
    found = settled(stored, Suspicion.UNREADABLE, rows(stored), storage)
    assert found == [("S205", "unreadable")]
    assert manifest_suspicion(stored, b"\xff") is Suspicion.UNREADABLE


@pytest.mark.parametrize("state", [state for state in RemoteLogSegmentState if state is not FINISHED])
def test_a_segment_that_is_being_copied_or_deleted_is_no_finding(root, stored, storage, state) -> None:
    only(root, "log").unlink()
    row = replace(stored, state=state)
    assert settled(row, Suspicion.MISSING, rows(row), storage) == []


class Away(StorageDecorator):
    def before(self, operation: str, detail: str) -> None:
        raise RemoteStorageUnavailableError("503")


def test_a_store_that_does_not_answer_is_no_finding_but_an_error(stored, storage) -> None:
    with pytest.raises(RemoteStorageUnavailableError):
        settled(stored, Suspicion.MISSING, rows(stored), Away(storage))


def test_a_listing_names_the_objects_of_segments_and_nothing_else(root, stored, storage) -> None:
    (root / "somebody-elses.txt").write_bytes(b"x")
    found = list(storage.list_segment_objects())
    assert {each.segment_id for each in found} == {stored.remote_log_segment_id}
    assert {each.kind.value: each.size_bytes for each in found} == {
        suffix: only(root, suffix).stat().st_size for suffix in ("log", "indexes", "rsm-manifest")
    }
