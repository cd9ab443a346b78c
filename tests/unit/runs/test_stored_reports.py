"""A scan report as bytes, and back."""

import json
import zlib
from dataclasses import replace
from pathlib import Path

from include.tiering.kafka.cluster.metadata_log import MetadataLog
from include.tiering.kafka.log_dirs.contract import IneligibleReason, ScanError
from include.tiering.kafka.log_dirs.dirs import LogDirLocation
from include.tiering.kafka.log_dirs.source import LogDirSource
from include.tiering.runs.sql_queue_scans import report_of_bytes, report_to_bytes
from local.sample_data import broker_log_dirs, unpack


def test_the_report_of_real_brokers_comes_back_as_it_was(tmp_path: Path) -> None:
    dirs = broker_log_dirs(unpack("public", tmp_path) / "stopped")
    located = [LogDirLocation(broker_id, path) for broker_id, path in dirs.items()]
    scanned = LogDirSource(located, MetadataLog(list(dirs.values()))).scan(deep=True)
    first, *others = scanned.replicas
    marked = tuple(replace(segment, reason=IneligibleReason.COMPACTED_SEGMENT) for segment in first.segments)
    report = replace(
        scanned,
        replicas=(replace(first, segments=marked), *others),
        errors=(
            *scanned.errors,
            ScanError("/a", 7, "CorruptFileError", "böse", "orders-0"),
            ScanError("/b", None, "", ""),
        ),
        notes=(ScanError("/c", None, "SourceError", "note", ""),),
    )
    assert len(report.replicas) > 10
    assert any(segment.batch_count for replica in report.replicas for segment in replica.segments)
    stored = report_to_bytes(report)
    found = report_of_bytes(stored)
    assert found == report
    # `partition` of an error is not compared.
    assert found is not None
    assert [error.partition for error in found.errors] == [error.partition for error in report.errors]


def test_what_another_version_stored_in_another_form_is_not_read() -> None:
    assert report_of_bytes(zlib.compress(json.dumps({"form": 2}).encode())) is None
