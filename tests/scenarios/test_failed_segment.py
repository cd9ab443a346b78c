"""A stored object is damaged: verification finds it, a new copy takes the segment's place while the source has it, and
the old one is held, then deleted. Where no source has it, it is a loss, until somebody decides."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update
from typer.testing import CliRunner

from include.tiering.cli.app import cli
from include.tiering.cli.command import author
from include.tiering.copying.plan import HeldBack
from include.tiering.database.schema import segments
from include.tiering.model.segments import RemoteLogSegmentId, RemoteLogSegmentState, TopicIdPartition, Verdict
from include.tiering.reading.fetch import FetchedRecords, PartitionFetch
from include.tiering.units import MIB
from include.tiering.verification.verify_segments import VerifyReport, verify_segments
from tests.doubles.archive import Archive
from tests.doubles.plain_evaluator import PlainEvaluator

pytestmark = pytest.mark.integration

DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
GONE = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED
BASES = [0, 96, 188, 282, 664, 808]
WHY = "no copy of it anywhere, agreed in OPS-13"

Command = Callable[..., tuple[int, Any]]


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """All is copied and passed."""
    archive = Archive.of(tmp_path)
    archive.copy()
    assert verified(archive).failed == ()
    return archive


@pytest.fixture
def app(archive: Archive) -> Command:
    """Runs a command with --json; returns its exit code and what it said."""

    def run(*arguments: str) -> tuple[int, Any]:
        options = ["--config", str(archive.config), *arguments, "--json"]
        done = CliRunner().invoke(cli, options, prog_name="./tiering")
        return done.exit_code, json.loads(done.stdout)

    return run


def verified(archive: Archive, run_id: str | None = None) -> VerifyReport:
    """What a run copied, again; without a run all that has not passed."""
    with archive.open() as opened:
        return verify_segments(
            opened.adapters.stores.metadata,
            opened.adapters.storage,
            PlainEvaluator(),
            run_id=run_id,
            quotas=opened.adapters.quotas,
            clock=opened.adapters.clock,
        )


def partition_0(archive: Archive) -> TopicIdPartition:
    (partition,) = [one for one in archive.remote() if one.partition == 0]
    return partition


def segment_at(archive: Archive, start: int) -> RemoteLogSegmentId:
    (one,) = [one for one in archive.remote()[partition_0(archive)] if one.start_offset == start]
    return one.remote_log_segment_id


def damage(archive: Archive, segment_id: RemoteLogSegmentId) -> None:
    """One byte of its log, in the store."""
    with archive.open() as opened:
        row = opened.adapters.stores.metadata.segment(segment_id)
        assert row is not None
        log = max(opened.adapters.storage.stat_log_segment(row.metadata), key=lambda thing: thing.size_bytes)
    path = archive.directory / "store" / log.key
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x40
    path.write_bytes(content)


def states(archive: Archive, segment_id: RemoteLogSegmentId) -> tuple[RemoteLogSegmentState, Verdict]:
    with archive.open() as opened:
        row = opened.adapters.stores.metadata.segment(segment_id)
        assert row is not None
        return row.metadata.state, row.verdict


def fetched(archive: Archive, offset: int) -> FetchedRecords:
    with archive.open() as opened:
        (answer,) = opened.reading.fetch_records([PartitionFetch(partition_0(archive), offset, MIB)])
    return answer


def test_a_damaged_segment_is_replaced_held_and_then_deleted(archive: Archive, app: Command) -> None:
    old = segment_at(archive, 188)
    damage(archive, old)
    assert {finding.start_offset for finding in verified(archive, "copy-1").failed} == {188}
    assert fetched(archive, 188).error is not None

    code, plan = app("plan", "--topic", "orders")
    assert code == 0
    (planned,) = plan["partitions"]
    assert [(one["base_offset"], one["supersedes"]) for one in planned["segments"]] == [(188, str(old.id))]
    assert app("doctor", "orders")[1]["partitions"][0]["tiers"]
    archive.copy()
    assert states(archive, old) == (DELETING, Verdict.FAILED)
    assert archive.offsets(0) == BASES
    assert fetched(archive, 188).error is not None
    assert (verified(archive).segments, verified(archive).failed) == (1, ())
    answer = fetched(archive, 188)
    assert (answer.error, answer.base_offset) == (None, 188)
    archive.require_served()
    archive.require_no_other_objects()

    run, _ = archive.expire()
    assert (run.items, [(one.segments, one.topic_id_partition.partition) for one in run.held]) == ([], [(1, 0)])
    assert states(archive, old)[0] is DELETING
    archive.set_default(tiering_superseded_hold_ms=0)
    run, _ = archive.expire(approved=False)
    assert [(item.planned.segment_id, item.planned.reason) for item in run.items] == [(old, "superseded")]
    assert (states(archive, old)[0], run.held, run.needs_approval) == (GONE, (), False)
    archive.require_no_other_objects()
    archive.require_served()


def test_where_no_source_has_it_it_is_lost_until_somebody_decides(archive: Archive, app: Command) -> None:
    old = segment_at(archive, 188)
    damage(archive, old)
    verified(archive, "copy-1")
    archive.raise_broker_log_start(0, 664)
    (held,) = archive.copy().held_back
    assert (held.reason, [loss.offsets for loss in held.lost]) == (HeldBack.LOST, [(188, 281)])
    code, plan = app("plan", "--topic", "orders")
    assert (code, [(one["start_offset"], one["end_offset"]) for one in plan["held_back"][0]["lost"]]) == (
        1,
        [(188, 281)],
    )
    line = app("doctor", "orders")[1]["partitions"][0]
    assert "offsets 188..281" in line["finding"]
    assert "the source's log starts at 664" in line["finding"]
    assert "./tiering skip orders --partition 0" in line["advice"]
    archive.set(retention_ms=0)
    run, _ = archive.expire()
    stopped = [one.detail for one in run.waiting if one.topic_id_partition.partition == 0]
    assert [detail.endswith("lost: the source's log starts at 664") for detail in stopped] == [True]
    archive.set(retention_ms=None)

    arguments = ("skip", "orders", "--partition", "0", "--reason", WHY)
    code, refused = app(*arguments)
    assert (code, refused["refusal"]) == (1, "without a terminal it needs --approve")
    assert [one["start_offset"] for one in refused["lost"]] == [188]
    code, recorded = app(*arguments, "--approve")
    assert (code, [one["author"] for one in recorded["recorded"]]) == (0, [author()])
    assert archive.copy().held_back == ()
    assert states(archive, old) == (RemoteLogSegmentState.COPY_SEGMENT_FINISHED, Verdict.FAILED)
    assert f"188..281 were skipped by {author()} ({WHY}); go on at offset 282" in str(fetched(archive, 188).error)
    assert fetched(archive, 282).error is None
    assert app("doctor", "orders")[1]["tiers"]

    archive.set(retention_bytes=1)
    run, _ = archive.expire()
    assert old in {item.planned.segment_id for item in run.items}
    assert archive.offsets(0) == []


def lose_the_row(archive: Archive, segment_id: RemoteLogSegmentId) -> None:
    """As somebody with a hand in the database, or a store from which the metadata had to be rebuilt."""
    with archive.open() as opened, opened.adapters.engine.begin() as connection:
        state = {"state": int(GONE)}
        connection.execute(update(segments).where(segments.c.segment_id == str(segment_id.id)).values(state))


def test_what_fails_by_what_is_missing_before_it_is_not_copied_anew(archive: Archive, app: Command) -> None:
    lose_the_row(archive, segment_at(archive, 188))
    assert {(one.start_offset, one.rule) for one in verified(archive, "copy-1").failed} == {(282, "Q301")}
    (held,) = archive.copy().held_back
    assert (held.reason, held.hole) == (HeldBack.HOLE, (188, 281))
    code, recorded = app("skip", "orders", "--partition", "0", "--reason", WHY, "--approve")
    assert (code, recorded["recorded"][0]["first_offset"], recorded["recorded"][0]["last_offset"]) == (0, 188, 281)
    assert verified(archive).failed == ()
    assert archive.copy().held_back == ()
    assert fetched(archive, 282).error is None
    assert "go on at offset 282" in str(fetched(archive, 188).error)
