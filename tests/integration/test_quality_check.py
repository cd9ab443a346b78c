"""The gate over what a real copy left: SQL metadata, files, Great Expectations."""

from pathlib import Path

import pytest

from include.tiering.app import App, open_app
from include.tiering.model.segments import Verdict
from include.tiering.segments.contract import SegmentRow
from tests.doubles.archive import RUN_ID, planned_run, settings_of


@pytest.fixture
def config(tmp_path: Path) -> Path:
    config = planned_run(tmp_path)
    with open_app(settings_of(config)) as app:
        assert not app.copying.run_batch(RUN_ID, "inline").failed
    return config


def rows_of(app: App, topic: str) -> list[SegmentRow]:
    (partition,) = (
        each for each in app.adapters.stores.metadata.partitions() if each.topic == topic and each.partition == 0
    )
    return list(app.adapters.stores.metadata.list_segments(partition))


def test_a_damaged_object_fails_its_segment_stops_its_partition_and_nothing_else(config: Path, tmp_path: Path) -> None:
    with open_app(settings_of(config)) as app:
        victim = rows_of(app, "payments.v1-eu")[1]
        segment_id = victim.metadata.remote_log_segment_id
        (log,) = (tmp_path / "store").rglob(f"*{segment_id.id}.log")
        content = log.read_bytes()
        middle = len(content) // 2
        log.write_bytes(content[:middle] + bytes([content[middle] ^ 0x10]) + content[middle + 1 :])

        report = app.verification.verify_run(RUN_ID)
        (finding,) = report.failed
        assert (finding.segment_id, finding.rule, finding.level) == (str(segment_id.id), "Q102", "object")
        assert str(victim.log_crc32c) in finding.message

        partition = victim.metadata.topic_id_partition
        assert partition in {
            p for p in app.adapters.stores.metadata.partitions() if app.adapters.stores.metadata.stopped_reason(p)
        }
        assert all(
            (row.verdict is Verdict.FAILED) == (row.metadata.remote_log_segment_id == segment_id)
            for each in app.adapters.stores.metadata.partitions()
            for row in app.adapters.stores.metadata.list_segments(each)
        )
        (result,) = app.adapters.stores.metadata.quality_results(segment_id)
        assert (result.rule, result.passed) == ("Q102", False)

        again = app.verification.verify_run()
        assert (again.segments, again.failed) == (1, report.failed)


def test_a_copy_repaired_by_hand_passes_when_it_is_verified_again(config: Path, tmp_path: Path) -> None:
    with open_app(settings_of(config)) as app:
        victim = rows_of(app, "payments.v1-eu")[1].metadata
        (indexes,) = (tmp_path / "store").rglob(f"*{victim.remote_log_segment_id.id}.indexes")
        content = indexes.read_bytes()
        indexes.unlink()
        assert {finding.segment_id for finding in app.verification.verify_run(RUN_ID).failed} == {
            str(victim.remote_log_segment_id.id)
        }
        indexes.write_bytes(content)
        assert app.verification.verify_run().failed == ()
        assert app.adapters.stores.metadata.stopped_reason(victim.topic_id_partition) is None
        assert all(
            result.passed for result in app.adapters.stores.metadata.quality_results(victim.remote_log_segment_id)
        )
