"""Alert rules: each alert fires on what was scraped from a database in the state that it names.

A database is filled through the functions with which the use cases publish their metrics, scraped over HTTP every five
minutes of a few days of a simulated clock, and promtool evaluates the rules over these scrapes.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from sqlalchemy import Engine

from include.tiering.app.metrics import METRICS
from include.tiering.audit.finding import FindingKind
from include.tiering.audit.metrics import AUDIT_FINDING_BYTES, AUDIT_FINDINGS, AUDIT_REFUSALS
from include.tiering.copying.metrics import COPY_ERRORS
from include.tiering.copying.service import count_failed
from include.tiering.database.engine import open_engine
from include.tiering.database.metric_series import MetricSeries
from include.tiering.database.migrations import upgrade
from include.tiering.errors import MetadataUnavailableError
from include.tiering.expiration.metrics import DELETE_ERRORS, DELETE_REQUESTS
from include.tiering.handover.metrics import publish_handovers
from include.tiering.handover.rules import HandoverState, HandoverStep
from include.tiering.metadata_sync.metrics import publish_ingest
from include.tiering.model.segments import Verdict, VerdictTotal
from include.tiering.model.sizes import PartitionLag
from include.tiering.operations.monitoring import MetricValues, MonitoringService
from include.tiering.quotas.contract import QuotaKind, QuotaLevel, Scope
from include.tiering.quotas.metrics import QuotaMetrics
from include.tiering.recovery.metrics import DRILL_FAILED
from include.tiering.segments.failed_copies import FAILED_SEGMENTS, LOST_OFFSETS
from include.tiering.segments.ingestion_contract import IngestPosition
from include.tiering.sizes.metrics import SizeGauges
from include.tiering.telemetry.metrics import MetricsRecorder, RunKind
from include.tiering.verification.metrics import publish_verdicts
from tests.doubles.manual_clock import ManualClock
from tests.doubles.scrapes import Samples, get, samples_of, serving
from tests.doubles.segments import partition_of
from tests.doubles.source_tree import ROOT

ALERTS: Final = ROOT / "monitoring" / "alerts.yaml"
RULES: Final[list[dict[str, Any]]] = yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]
ORDERS: Final = partition_of("orders")
HOUR: Final = 3600
INTERVAL: Final = 300
DAYS: Final = 3
needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="needs promtool, of the Debian package prometheus"
)


@dataclass
class World:
    """A database, the recorder of one process that works on it, and every scrape of the endpoint so far."""

    engine: Engine
    clock: ManualClock = field(default_factory=lambda: ManualClock(now_ms=0))
    scrapes: list[Samples | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.series = MetricSeries(self.engine, "cluster-1", now_ms=lambda _: self.clock.now_ms())
        self.recorder = MetricsRecorder(self.clock)
        self.quotas = QuotaMetrics(self.recorder)
        self.is_database_down = False
        self.service = MonitoringService(
            series=self.series,
            metrics=METRICS,
            windows=lambda: {QuotaKind.COPY: (61, 1_000), QuotaKind.FETCH: (11, 1_000)},
            clock=self.clock,
        )

    def values(self) -> tuple[MetricValues, ...]:
        if self.is_database_down:
            raise MetadataUnavailableError("the database is away")
        return tuple(self.service.values())

    def live(self, work: Callable[["World"], None], intervals: int = DAYS * 24 * HOUR // INTERVAL) -> None:
        """Let the time of the world pass; call `work` in each interval."""
        with serving(self.values) as server:
            for _ in range(intervals):
                work(self)
                self.series.write(self.recorder.drain())
                status, text = get(server)
                self.scrapes.append(samples_of(text) if status == 200 else None)
                self.clock.advance(INTERVAL)


def healthy(world: World) -> None:
    """Every kind of run takes place, copies copy, and nothing is wrong; two handovers are under way."""
    recorder, gauges = world.recorder, SizeGauges(world.recorder)
    for kind in RunKind:
        recorder.ended(kind)
    gauges.copy_lags([PartitionLag(ORDERS, 5_000, 2, 60.0)])
    gauges.delete_lags([], ["orders"])
    gauges.duplicates("remote", {"orders": 70})
    gauges.recount(milliseconds=50.0, differences=0)
    publish_verdicts(recorder, [VerdictTotal(verdict, number, 9, 5) for verdict, number in _PASSED.items()])
    recorder.show(FAILED_SEGMENTS, {("orders",): 0})
    recorder.show(LOST_OFFSETS, {("orders", "no"): 0, ("orders", "yes"): 10})
    recorder.show(AUDIT_FINDINGS, {(kind.value,): 0 for kind in FindingKind})
    recorder.show(AUDIT_FINDING_BYTES, {(kind.value,): 0 for kind in FindingKind})
    recorder.set(AUDIT_REFUSALS, 0)
    recorder.set(DRILL_FAILED, 0, "orders")
    publish_handovers(recorder, [(HandoverState.ACTIVE, HandoverStep.PUBLISH)] * 2, 0)
    publish_ingest(recorder, [IngestPosition(0, next_offset=9, end_offset=9, bounds_read_at_ms=1)], {})
    world.quotas.in_force({Scope(QuotaKind.COPY, QuotaLevel.TOTAL): 1_000_000})
    world.quotas.granted(QuotaKind.COPY, "orders", 9_000_000)
    world.quotas.throttled(QuotaKind.COPY, "orders", 100, 0.5)
    recorder.add(DELETE_REQUESTS, 1, "orders")


_PASSED: Final = {Verdict.PASSED: 20, Verdict.NONE: 0, Verdict.FAILED: 0, Verdict.EXPIRED: 0}


def sick(world: World) -> None:
    """Runs ended long ago or never, everything that can be wrong is, and half of it gets worse."""
    recorder, gauges, age = world.recorder, SizeGauges(world.recorder), len(world.scrapes)
    if not age:
        recorder.ended(RunKind.INGEST)
        recorder.ended(RunKind.HANDOVER_WATCH)
        recorder.ended(RunKind.AUDIT)
        recorder.ended(RunKind.COPY)
    gauges.copy_lags([PartitionLag(ORDERS, 5_000 + age, 2, 7_200.0)], [partition_of("audit")])
    gauges.delete_lags([PartitionLag(ORDERS, 100, 2, 5.0)], ["orders"])
    gauges.duplicates("remote", {"orders": 70 + age})
    gauges.recount(milliseconds=50.0, differences=2)
    publish_verdicts(recorder, [VerdictTotal(verdict, 1, 9, 92 * 86_400_000) for verdict in Verdict])
    recorder.show(FAILED_SEGMENTS, {("orders",): 1})
    recorder.show(LOST_OFFSETS, {("orders", "no"): 10, ("orders", "yes"): 10})
    recorder.show(AUDIT_FINDINGS, {(FindingKind.DANGLING_REFERENCE.value,): 3})
    recorder.show(AUDIT_FINDING_BYTES, {(FindingKind.ORPHAN.value,): 100 * age})
    recorder.set(AUDIT_REFUSALS, 1)
    recorder.set(DRILL_FAILED, 1, "orders")
    publish_handovers(recorder, [(HandoverState.ACTIVE, HandoverStep.PUBLISH)] * 2, 1)
    stopped = IngestPosition(0, next_offset=9, end_offset=19, bounds_read_at_ms=1, stopped="a record is missing")
    publish_ingest(recorder, [stopped], {})
    # The whole minute that the next scrape shows is the one before.
    world.clock.advance(-120)
    world.quotas.in_force({Scope(QuotaKind.COPY, QuotaLevel.TOTAL): 1_000})
    world.quotas.granted(QuotaKind.COPY, "orders", 60_000)
    world.clock.advance(120)
    world.quotas.throttled(QuotaKind.FETCH, "orders", 100, 5.0)
    recorder.add(DELETE_REQUESTS, 1, "orders")
    recorder.add(COPY_ERRORS, 0, "payments")
    recorder.add(DELETE_ERRORS, 0, "orders")
    if age == _LAST_HOUR:
        count_failed(recorder, "payments", "CorruptFileError")
        recorder.add(DELETE_ERRORS, 1, "orders")


_LAST_HOUR: Final = DAYS * 24 * HOUR // INTERVAL - 8


@pytest.fixture(scope="module")
def new_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], World]]:
    engines: list[Engine] = []

    def new() -> World:
        engines.append(open_engine(f"sqlite:///{tmp_path_factory.mktemp('world') / 'tiering.sqlite'}"))
        upgrade(engines[-1])
        return World(engines[-1])

    yield new
    for engine in engines:
        engine.dispose()


def firing(world: World, directory: Path) -> set[str]:
    """Let promtool evaluate all rules over the scrapes; return the alerts that fire at the last one."""
    lines: dict[tuple[str, tuple[tuple[str, str], ...]], list[str]] = {}
    for number, scrape in enumerate(world.scrapes):
        for key, value in {**(scrape or {}), ("up", (("job", "tiering"),)): float(scrape is not None)}.items():
            line = lines.setdefault(key, ["_"] * number)
            line += ["stale" if number and line[-1] != "stale" else "_"] * (number - len(line))
            line.append(repr(value))
    for line in lines.values():
        line += ["_"] * (len(world.scrapes) - len(line))
    at = f"{(len(world.scrapes) - 1) * INTERVAL}s"
    test = {
        "rule_files": [str(ALERTS)],
        "evaluation_interval": f"{INTERVAL}s",
        "tests": [
            {
                "interval": f"{INTERVAL}s",
                "input_series": [
                    {"series": _series(*key), "values": " ".join(line).replace("inf", "+Inf")}
                    for key, line in lines.items()
                ],
                "promql_expr_test": [{"expr": 'ALERTS{alertstate="firing"}', "eval_time": at, "exp_samples": []}],
            }
        ],
    }
    file = directory / "test.yaml"
    file.write_text(yaml.safe_dump(test))
    done = subprocess.run(["promtool", "test", "rules", str(file)], capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    assert "parse" not in said, said
    return set(re.findall(r'alertname="(\w+)"', said))


def _series(name: str, labels: tuple[tuple[str, str], ...]) -> str:
    return f"{name}{{{','.join(f'{label}={json.dumps(value)}' for label, value in labels)}}}"


@needs_promtool
def test_no_alert_fires_while_all_is_well(new_world: Callable[[], World], tmp_path: Path) -> None:
    world = new_world()
    world.live(healthy)
    assert firing(world, tmp_path) == set()


@needs_promtool
def test_each_alert_fires_in_the_state_that_it_names(new_world: Callable[[], World], tmp_path: Path) -> None:
    world = new_world()
    world.live(sick)
    assert firing(world, tmp_path) == {rule["alert"] for rule in RULES} - {"TieringMetricsMissing"}


@needs_promtool
def test_a_database_that_does_not_answer_is_an_alert_of_its_own(new_world: Callable[[], World], tmp_path: Path) -> None:
    world = new_world()
    world.live(healthy, 12)
    world.is_database_down = True
    world.live(healthy, 3)
    assert firing(world, tmp_path) == {"TieringMetricsMissing"}


@needs_promtool
def test_errors_of_long_ago_fire_no_alert_after_a_gap(new_world: Callable[[], World], tmp_path: Path) -> None:
    def failing(world: World) -> None:
        healthy(world)
        count_failed(world.recorder, "payments", "CorruptFileError")
        world.recorder.add(DELETE_ERRORS, 1, "orders")

    world = new_world()
    world.live(failing, 12)
    world.is_database_down = True
    world.live(healthy, 3 * HOUR // INTERVAL)
    world.is_database_down = False
    world.live(healthy, 3)
    assert firing(world, tmp_path) & {"TieringCopyErrors", "TieringDeleteErrors"} == set()


@needs_promtool
def test_promtool_accepts_the_rules() -> None:
    done = subprocess.run(["promtool", "check", "rules", str(ALERTS)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
