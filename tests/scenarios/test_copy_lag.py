"""A topic that delays its copies: what is planned, what is said, what counts as lag, and what a hole before it says."""

from pathlib import Path

import pytest

from include.tiering.copying.plan import HeldBack
from include.tiering.copying.run_scope import RunScope
from include.tiering.kafka.log_dirs.contract import IneligibleReason
from tests.doubles.archive import EVERYTHING, Archive, document
from tests.doubles.tiered_topic import config_record

pytestmark = pytest.mark.integration
YEAR_MS = 366 * 24 * 60 * 60 * 1000


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """Its brokers keep everything, and say so of the topic."""
    archive = Archive.of(tmp_path)
    for broker in (1, 2):
        kept = (config_record("orders", name, "-1") for name in ("retention.ms", "retention.bytes"))
        archive.append_metadata(broker, *kept)
    return archive


def segments_planned(archive: Archive) -> int:
    with archive.open() as app:
        return app.copying.plan(archive.run_id("plan"), scope=RunScope(("orders",)), dry_run=True).segments


def test_nothing_is_copied_before_it_is_due_and_everything_afterwards(archive: Archive) -> None:
    everything = segments_planned(archive)
    assert everything == sum(map(len, EVERYTHING.values()))
    archive.set_default(**{"log.remote.copy.lag.ms": 100 * YEAR_MS})
    assert segments_planned(archive) == 0
    assert document(archive.command("plan", "--json"))["segments"] == 0
    said = archive.command("doctor", "orders").stdout
    assert str(IneligibleReason.COPY_DELAYED) in said
    assert "remote.copy.lag" in said
    archive.copy()
    assert not any(archive.left().values())
    archive.set(**{"remote.copy.lag.ms": 0})
    archive.copy()
    assert archive.left() == EVERYTHING


def test_newer_bytes_make_a_segment_due_before_its_time(archive: Archive) -> None:
    archive.set(**{"remote.copy.lag.ms": 100 * YEAR_MS, "remote.copy.lag.bytes": 1})
    assert segments_planned(archive) > 0
    archive.set(**{"remote.copy.lag.bytes": 10**12})
    assert segments_planned(archive) == 0


def test_what_is_delayed_is_no_backlog(archive: Archive) -> None:
    def lag_bytes() -> int:
        with archive.open() as app:
            tiers = app.sizes.report().tiers
        assert tiers is not None
        return sum(lag.size_bytes for lag in tiers.copy_lags)

    assert lag_bytes() > 0
    archive.set(**{"remote.copy.lag.ms": 100 * YEAR_MS})
    assert lag_bytes() == 0


def test_without_the_brokers_retention_nothing_is_delayed(tmp_path: Path) -> None:
    archive = Archive.of(tmp_path)
    archive.set(**{"remote.copy.lag.ms": 100 * YEAR_MS})
    archive.copy()
    assert archive.left() == EVERYTHING


def test_a_hole_before_a_delayed_segment_is_said_at_once(archive: Archive) -> None:
    while len(archive.offsets(0)) < 2:
        archive.copy(limit_bytes=1)
    archive.set(**{"remote.copy.lag.ms": 100 * YEAR_MS})
    archive.raise_broker_log_start(0, 664)
    with archive.open() as app:
        plan = app.copying.plan("later", dry_run=True)
    (held,) = [held for held in plan.held_back if held.topic_id_partition.partition == 0]
    assert held.reason is HeldBack.HOLE
    with archive.open() as app:
        assert app.copying.plan_skip("orders", 0).hole is not None


def test_a_plan_of_a_handover_takes_what_is_delayed(archive: Archive) -> None:
    archive.set(**{"remote.copy.lag.ms": 100 * YEAR_MS})
    with archive.open() as app:
        assert app.copying.plan("handover", dry_run=True).segments == 0
        assert app.copying.plan("handover", dry_run=True, at_once=True).segments > 0
