"""The arguments of the audit job, an output that cannot be written, what a task tells when it cannot go on."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from include.tiering.audit.conclude_audit import SeenByAudit
from include.tiering.audit.finding import AuditFinding, AuditOutcome, FindingKind, PassedOver
from include.tiering.errors import RemoteStorageUnavailableError, SettingError
from include.tiering.model.segments import Uuid
from include.tiering.remote_storage.object_store import ListedObject, ListedUpload, ListingProperties
from spark_jobs import audit
from spark_jobs.audit import PARTS, attempt, parse_arguments, record
from spark_jobs.audit_frames import (
    FINDINGS_SCHEMA,
    LISTED_SCHEMA,
    SEGMENTS_SCHEMA,
    batch_of,
    finding_batches,
    finding_of,
    listed_row,
    object_of,
    upload_of,
    upload_row,
)
from spark_jobs.task_errors import telling

SEGMENT_KEY = "orders-AQIDBAUGBwgJCgsMDQ4PEA/3/00000000000000000042-__79_Pv6-fj39vX08_Lx8A.log"


def test_parts_have_a_default_and_are_read() -> None:
    assert parse_arguments(["--output", "d"]).parts == PARTS
    assert (
        parse_arguments(["--output", "d", "--parts", "1", "--inventory", "s3://b/m.json"]).inventory == "s3://b/m.json"
    )


@pytest.mark.parametrize("parts", ["0", "-1", "many"])
def test_unusable_parts_are_a_usage_error(parts: str) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_arguments(["--output", "d", f"--parts={parts}"])
    assert ended.value.code == 2


def test_an_output_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    options = parse_arguments(["--output", str(tmp_path / "file" / "audit")])
    no_session: Any = None
    refused = attempt(no_session, options)
    assert refused["exit_code"] == 2
    assert str(tmp_path / "file" / "audit") in refused["error"]


def test_listed_objects_and_uploads_come_back_from_their_columns() -> None:
    objects = [
        ListedObject(SEGMENT_KEY, 7, 1, "v", is_latest=False, is_delete_marker=True),
        ListedObject("odd &<ü>\n", 2**60, -1),
    ]
    uploads = [ListedUpload(SEGMENT_KEY, "token", 5, 9)]
    rows = batch_of([*map(listed_row, objects), *map(upload_row, uploads)], LISTED_SCHEMA).to_pylist()
    assert [object_of(row) for row in rows[:2]] == objects
    assert [upload_of(row) for row in rows[2:]] == uploads
    assert [row["segment_id"] for row in rows] == ["__79_Pv6-fj39vX08_Lx8A", None, "__79_Pv6-fj39vX08_Lx8A"]
    assert batch_of([], SEGMENTS_SCHEMA).num_rows == 0


def test_findings_come_back_from_their_columns_and_what_was_passed_over_is_added_up() -> None:
    finding = AuditFinding(
        kind=FindingKind.DANGLING_REFERENCE,
        key="k",
        message="m",
        size_bytes=1,
        segment_id=Uuid(bytes(range(16))),
        topic_id=Uuid(bytes(range(1, 17))),
        topic="orders",
        partition=3,
        start_offset=4,
        end_offset=5,
        last_modified_ms=6,
        version_id="v",
        upload_id="u",
    )
    bare = AuditFinding(kind=FindingKind.FOREIGN_OBJECT, key="x", message="")
    outcomes = [
        AuditOutcome((finding, bare), {PassedOver.YOUNG: 1}),
        AuditOutcome((), {PassedOver.YOUNG: 2, PassedOver.CHANGING: 4}),
    ]
    rows = [row for batch in finding_batches(outcomes) for row in batch.to_pylist()]
    assert [finding_of(row) for row in rows if row["kind"] is not None] == [finding, bare]
    counted = {row["passed_over"]: row["objects"] for row in rows if row["kind"] is None}
    assert counted == {"young": 3, "changing": 4}


@pytest.mark.parametrize(
    ("error", "exit_code"), [(RemoteStorageUnavailableError("503"), 3), (SettingError("no bucket"), 2)]
)
def test_a_typed_error_of_a_task_is_its_last_row(error: Exception, exit_code: int) -> None:
    def read(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from finding_batches([AuditOutcome((AuditFinding(kind=FindingKind.ORPHAN, key="k", message=""),))])
        raise error

    rows = [row for batch in telling(read, FINDINGS_SCHEMA)(iter(())) for row in batch.to_pylist()]
    assert [row["key"] for row in rows] == ["k", None]
    assert [row["exit_code"] for row in rows] == [None, exit_code]
    assert rows[1]["error"] == f"{type(error).__name__}: {error}"


def test_of_more_findings_than_are_recorded_the_guards_see_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy that the database lost shows that it was set back: without it the orphans could be removed."""
    monkeypatch.setattr(audit, "MOST_RECORDED", 4)
    orphans = [AuditFinding(kind=FindingKind.ORPHAN, key=f"orphan-{number}", message="") for number in range(6)]
    evidence = [
        AuditFinding(kind=kind, key=kind.value, message="")
        for kind in (FindingKind.DANGLING_REFERENCE, FindingKind.ADOPTABLE, FindingKind.DUPLICATE)
    ]
    (tmp_path / "findings").mkdir()
    table = pa.Table.from_batches([*finding_batches([AuditOutcome((*orphans, *evidence))])])
    pq.write_table(table, tmp_path / "findings" / "part-0.parquet")
    concluded: list[SeenByAudit] = []

    def conclude(seen: SeenByAudit) -> Any:
        concluded.append(seen)
        return SimpleNamespace(record=SimpleNamespace(findings=len(seen.findings), refusals=()))

    app: Any = SimpleNamespace(audit=SimpleNamespace(conclude=conclude))
    listing = ListingProperties(shows_versions=False, shows_open_uploads=True)
    recorded = record(
        app,
        "one",
        tmp_path,
        listing,
        began_at_ms=1,
        objects=9,
        rows=1,
        passed_over={},
        listing_ended_ms=1,
        rows_began_ms=2,
    )
    assert (recorded["recorded"], recorded["not_recorded"]) == (4, 5)
    assert {finding.kind.value for finding in concluded[0].findings} == {finding.key for finding in evidence} | {
        "orphan"
    }
    assert concluded[0].covers == frozenset()
