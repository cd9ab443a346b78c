"""Restores of segments that overlap, as after a change of the leader, while the earlier one expires."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import google_crc32c
import pyarrow.parquet as pq
import pytest

from include.tiering.app import App
from include.tiering.app.recovery import other_storage
from include.tiering.errors import SettingError
from include.tiering.formats import checkpoints
from include.tiering.formats.rebuilt_files import ProducerStates, SegmentFilesBuilder
from include.tiering.model.segments import LogSegmentData, RemoteLogSegmentMetadata, TopicIdPartition, Verdict
from include.tiering.reading.plan_scan import Bound, BoundKind, ScanPlan
from include.tiering.reading.scan import batches_of
from include.tiering.remote_storage.object_store import BytesSource
from include.tiering.restoring.forms import RestoreForm
from include.tiering.restoring.plan import RestoreRequest
from include.tiering.restoring.report import RestoreReport
from include.tiering.restoring.restore_segments import LOG_STARTS
from include.tiering.restoring.target import MANIFEST, RestoreStep
from tests.doubles.broker_data import broker_data
from tests.doubles.record_batches import record_batch
from tests.doubles.segments import delete, finish, partition_of, planned, segment_of
from tests.doubles.whole_logs import copy, deployment, finish_all

pytestmark = pytest.mark.integration

ORDERS = partition_of()
EARLIER, LATER, NEXT = (0, 129), (100, 229), (230, 299)
"""First and last offsets. The second one was led by another broker."""


def planted(
    app: App, number: int, offsets: tuple[int, int], partition: TopicIdPartition = ORDERS
) -> RemoteLogSegmentMetadata:
    """A segment of these offsets in the store, ten records in a batch."""
    start, end = offsets
    log = b"".join(record_batch(base, count=10, timestamp_ms=1_700_000_000_000) for base in range(start, end, 10))
    files = SegmentFilesBuilder(start, 100, ProducerStates())
    for position, header, _ in batches_of([log], 0):
        files.append(position, header, None)
    rebuilt = files.files()
    data = LogSegmentData(
        BytesSource(log),
        google_crc32c.value(log),
        rebuilt.offset_index,
        rebuilt.time_index,
        rebuilt.producer_snapshot,
        checkpoints.serialize_leader_epochs(segment_of(partition, number, start, end, {0: 0}).segment_leader_epochs),
    )
    segment = replace(segment_of(partition, number, start, end, size_bytes=len(log)), txn_index_empty=True)
    copy(app, segment, data)
    return segment


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    log_dirs = {1: broker_data("public") / "stopped" / "broker-1"}
    with deployment(tmp_path, log_dirs, (tmp_path / "store").as_uri()) as (app, _):
        segments = [planted(app, number, each) for number, each in enumerate((EARLIER, LATER, NEXT))]
        finish_all(app, segments, 0)
        yield app


def forget(target: Path, *base_offsets: int) -> None:
    """Make a target that of a restore that was killed before it had these parts."""
    begin, *lines = (target / MANIFEST).read_text().splitlines(keepends=True)
    kept = [line for line in lines if json.loads(line)["base_offset"] not in base_offsets]
    for name in (name for line in lines if line not in kept for name in json.loads(line)["files"]):
        (target / name).unlink()
    (target / MANIFEST).write_text("".join([begin, *kept]))


def expire(app: App, log_start_offset: int) -> None:
    app.adapters.stores.metadata.raise_log_start(ORDERS, log_start_offset, reason="retention", author="test")


def restored(app: App, target: Path, form: RestoreForm) -> RestoreReport:
    return app.restoring.run(RestoreRequest((ORDERS,), form=form), target)


def offsets_in(target: Path, form: RestoreForm) -> list[int]:
    if form is RestoreForm.PARQUET:
        files = sorted(target.glob("date=*/*.parquet"))
        return sorted(each for path in files for each in pq.read_table(path).column("offset").to_pylist())
    logs = [path.read_bytes() for path in sorted((target / "orders-0").glob("*.log"))]
    return [
        offset
        for log in logs
        for _, header, _ in batches_of([log], 0)
        for offset in range(header.base_offset, header.last_offset + 1)
    ]


@pytest.mark.parametrize("form", [RestoreForm.SEGMENTS, RestoreForm.PARQUET])
def test_what_is_in_the_target_is_not_restored_again_under_another_name(
    app: App, tmp_path: Path, form: RestoreForm
) -> None:
    """The restore had the later segment, from offset 130 on, and not yet the earlier one, which expires."""
    target = tmp_path / "target"
    assert restored(app, target, form).is_complete
    assert offsets_in(target, form) == list(range(300))
    forget(target, EARLIER[0], NEXT[0])
    expire(app, EARLIER[1] + 1)
    report = restored(app, target, form)
    assert any("offset 0 is outside" in sentence for sentence in report.plan.said)
    assert report.plan.cost.segments == 1
    assert offsets_in(target, form) == list(range(130, 300))


@pytest.mark.parametrize("form", [RestoreForm.SEGMENTS, RestoreForm.PARQUET])
def test_a_part_that_would_begin_earlier_than_the_target_has_it_is_refused(
    app: App, tmp_path: Path, form: RestoreForm
) -> None:
    """The earlier segment is not served any more, so the later one is read from its begin on."""
    target, metadata = tmp_path / "target", app.adapters.stores.metadata
    restored(app, target, form)
    forget(target, EARLIER[0])
    metadata.record_verdict(metadata.list_segments(ORDERS)[0].metadata.remote_log_segment_id, Verdict.FAILED)
    with pytest.raises(SettingError, match="has other segments by now"):
        restored(app, target, form)
    assert offsets_in(target, form) == list(range(130, 300))


@pytest.mark.parametrize("form", [RestoreForm.SEGMENTS, RestoreForm.PARQUET])
def test_what_is_served_only_later_is_not_restored_beside_the_same_offsets(
    app: App, tmp_path: Path, form: RestoreForm
) -> None:
    """The target has the later segment from its begin on."""
    target, metadata = tmp_path / "target", app.adapters.stores.metadata
    first = metadata.list_segments(ORDERS)[0].metadata.remote_log_segment_id
    metadata.record_verdict(first, Verdict.NONE)
    assert not restored(app, target, form).is_complete
    metadata.record_verdict(first, Verdict.PASSED)
    with pytest.raises(SettingError, match="has other segments by now"):
        restored(app, target, form)
    assert offsets_in(target, form) == list(range(100, 300))


@pytest.mark.parametrize("form", [RestoreForm.SEGMENTS, RestoreForm.PARQUET])
def test_a_segment_of_which_a_part_is_wanted_and_that_is_absent_is_named(
    app: App, tmp_path: Path, form: RestoreForm
) -> None:
    """As one that is wanted whole: all others are restored."""
    later = app.adapters.stores.metadata.list_segments(ORDERS)[1].metadata
    for path in (tmp_path / "store").rglob(f"*{later.remote_log_segment_id.id}*"):
        path.unlink()
    target = tmp_path / "target"
    report = restored(app, target, form)
    assert [failed.part.segment for failed in report.failed] == [later]
    assert offsets_in(target, form) == [*range(EARLIER[1] + 1), *range(NEXT[0], NEXT[1] + 1)]


@pytest.mark.parametrize("end", [300, 250])
@pytest.mark.parametrize("lost", ["*", "*.rsm-manifest", "*.indexes"])
def test_a_segment_behind_one_that_is_lost_is_restored(app: App, tmp_path: Path, lost: str, end: int) -> None:
    """Although that one had the producers before it."""
    later = app.adapters.stores.metadata.list_segments(ORDERS)[1].metadata
    for path in (tmp_path / "store").rglob(f"*{later.remote_log_segment_id.id}{lost}"):
        path.unlink()
    wanted = RestoreRequest((ORDERS,), Bound(BoundKind.OFFSET, NEXT[0]), Bound(BoundKind.OFFSET, end))
    report = app.restoring.run(wanted, tmp_path / "target")
    assert report.is_complete, report
    assert offsets_in(tmp_path / "target", RestoreForm.SEGMENTS) == list(range(NEXT[0], end))


def test_all_partitions_are_those_with_which_the_restore_began(app: App, tmp_path: Path) -> None:
    """One has expired as a whole since, another one came."""
    gone, new = partition_of(partition=1), partition_of(partition=2)
    segment = planted(app, 10, (0, 49), gone)
    finish_all(app, [segment], 0)
    target, stores = tmp_path / "target", app.adapters.stores
    assert app.restoring.run(app.restoring.requested("orders"), target).is_complete
    forget(target, NEXT[0])
    stores.metadata.raise_log_start(gone, 50, reason="retention", author="test")
    stores.work.save_plan("expire", [planned(gone)])
    lease = stores.work.claim("expire", "batch", lease_ms=600_000)
    assert lease is not None
    delete(stores.metadata, segment, lease.fence)
    finish_all(app, [planted(app, 11, (0, 49), new)], 0)
    assert stores.metadata.partitions() == [ORDERS, new]
    wanted = app.restoring.requested("orders")
    for report in (app.restoring.plan(wanted, target), app.restoring.run(wanted, target).plan):
        assert (report.cost.segments, report.said) == (1, ())
    assert app.restoring.run(wanted, target).is_complete
    starts = checkpoints.parse_offset_checkpoint((target / LOG_STARTS).read_bytes())
    assert starts == {("orders", 0): 0, ("orders", 1): 0}


def test_a_segment_that_is_served_while_a_restore_is_planned(
    app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan_scan, stores = app.reading.plan_scan, app.adapters.stores

    def meanwhile(*arguments: Any) -> ScanPlan:
        stores.work.save_plan("later", [planned(ORDERS)])
        lease = stores.work.claim("later", "batch", lease_ms=600_000)
        assert lease is not None
        later = planted(app, 12, (300, 349))
        finish(stores.metadata, later, lease.fence)
        stores.metadata.record_verdict(later.remote_log_segment_id, Verdict.PASSED)
        monkeypatch.undo()
        return plan_scan(*arguments)

    monkeypatch.setattr(app.reading, "plan_scan", meanwhile)
    assert restored(app, tmp_path / "target", RestoreForm.SEGMENTS).is_complete
    assert offsets_in(tmp_path / "target", RestoreForm.SEGMENTS) == list(range(350))


class Died(BaseException):
    """In place of a SIGKILL."""


def test_nothing_is_left_of_a_part_that_expires_while_it_is_written(app: App, tmp_path: Path) -> None:
    """Spark takes each file in a directory of a date for one of the table, whatever its suffix."""
    target = tmp_path / "target"

    def die(_: RestoreStep) -> None:
        raise Died

    wanted = RestoreRequest((ORDERS,), form=RestoreForm.PARQUET)
    with pytest.raises(Died):
        app.restoring.run(wanted, target, observe=die)
    assert list(target.glob(f"date=*/*{EARLIER[0]:020d}-0.parquet.partial"))
    expire(app, EARLIER[1] + 1)
    restored(app, target, RestoreForm.PARQUET)
    assert not list(target.rglob("*.partial"))
    assert offsets_in(target, RestoreForm.PARQUET) == list(range(130, 300))


def test_another_storage_gets_a_segment_that_overlaps_an_expired_one(app: App, tmp_path: Path) -> None:
    config, target = tmp_path / "other.toml", tmp_path / "work"
    config.write_text(f'[remote_storage]\nurl = "{(tmp_path / "elsewhere").as_uri()}"\n')
    other = other_storage(config, {})
    wanted = RestoreRequest((ORDERS,), form=RestoreForm.STORAGE, place=other.place)
    assert app.restoring.run(wanted, target, other=other).is_complete
    forget(target, LATER[0], NEXT[0])
    expire(app, EARLIER[1] + 1)
    report = app.restoring.run(wanted, target, other=other)
    assert report.is_complete, report
    assert report.plan.cost.segments == 2
