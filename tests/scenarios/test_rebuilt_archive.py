"""An archive with a hole that somebody decided about loses its database. The decision is nowhere in the store; without
one the quality gate would fail the segment behind the hole, and nothing could ever mend that."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from include.tiering.cli.app import cli
from include.tiering.cli.command import author
from include.tiering.model.histories import OffsetRange
from include.tiering.verification.suites import PARTITION_RULES
from include.tiering.verification.verify_partitions import verify_partitions
from include.tiering.verification.verify_segments import verify_segments
from tests.doubles.archive import Archive
from tests.doubles.plain_evaluator import PlainEvaluator

pytestmark = pytest.mark.integration


def test_holes_are_decisions_of_the_rebuild_and_the_archive_goes_on(tmp_path: Path) -> None:
    archive = Archive.of(tmp_path)
    while len(archive.offsets(0)) < 2:
        archive.copy(limit_bytes=1)
    archive.raise_broker_log_start(0, 664)
    with archive.open() as app:
        app.copying.skip_offsets(app.copying.plan_skip("orders", 0), reason="agreed", author="test")
    archive.copy()
    before = archive.remote()

    archive.config.write_text(archive.config.read_text().replace("metadata.sqlite", "new.sqlite"))

    arguments = ["--config", str(archive.config), "rebuild", "--approve", "--json"]
    done = CliRunner().invoke(cli, arguments, prog_name="./tiering")
    report = json.loads(done.stdout)
    holes = {(one["topic"], one["partition"]): one["holes"] for one in report["partitions"] if one["holes"]}
    assert (done.exit_code, holes) == (1, {("orders", 0): [{"first_offset": 188, "last_offset": 663}]})
    with archive.open() as app:
        parts: dict[str, Any] = {"quotas": app.adapters.quotas, "clock": app.adapters.clock}
        assert (
            verify_segments(app.adapters.stores.metadata, app.adapters.storage, PlainEvaluator(), **parts).failed == ()
        )
        evaluator = PlainEvaluator(PARTITION_RULES)
        assert (
            verify_partitions(app.adapters.stores.metadata, evaluator, app.adapters.stores.metadata.partitions()).failed
            == ()
        )
        (partition,) = [one for one in before if one.partition == 0]
        (decision,) = app.adapters.stores.metadata.skipped_offsets(partition)
        assert (decision.offsets, decision.author) == (OffsetRange(188, 663), author())
    assert {partition: [one.start_offset for one in found] for partition, found in archive.remote().items()} == {
        partition: [one.start_offset for one in found] for partition, found in before.items()
    }
    assert archive.copy().partitions == ()
    archive.require_served()
    archive.require_no_other_objects()
