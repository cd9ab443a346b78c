"""Alert rules in a real Prometheus that scrapes real platforms: each alert fires once its state was brought about.

Four platforms work in this process: an archive, a tiny one, one that observes brokers, and one with a handover. Each
has an endpoint of its own. States come from what the platforms do, or from what happens to their files and rows behind
their back (for a time that passes, times in rows are set back); no value is recorded by this test. In two things it
cannot be as patient as the rules are: `for` is left out, and the rules in `SHORTENED` have a second copy with a lower
limit, because their states need hours or months. `test_alert_rules.py` has the rules as they are, over days of a
simulated clock.
"""

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from sqlalchemy import delete, update

from include.tiering.app.recovery import record_drill
from include.tiering.clock import SystemClock
from include.tiering.database.metric_series import SETTLED_MS
from include.tiering.database.schema import handovers, segments, size_counters
from include.tiering.handover.contract import LocalRetention
from include.tiering.handover.rules import HandoverState
from include.tiering.handover.store import SqlHandoverStore
from include.tiering.model.segments import Uuid, Verdict
from include.tiering.operations import monitoring
from include.tiering.operations.exporters import MetricsServer
from include.tiering.recovery.drill import DrillReport, RecoveryNeeds
from include.tiering.units import KIB
from local import processes
from local.cluster import prometheus
from local.cluster.programs import ProgramMissingError, prometheus_directory
from local.cluster.prometheus import Prometheus
from plugins.tiering_airflow.sizes import duplicate_bytes, finding_lines
from tests.doubles.archive import Archive
from tests.doubles.orphans import TinyCopies, plant_orphan
from tests.doubles.patience import PATIENCE_SECONDS, eventually
from tests.doubles.scrapes import serving
from tests.doubles.segments import CLUSTER_ID
from tests.doubles.spark import NO_JAVA, submit_command, submit_environment
from tests.doubles.tiered_topic import config_record
from tests.doubles.tiny_deployment import PARTITION, ObservedCluster, TinyDeployment
from tests.unit.app.test_handover import _FIRST, Deployment

pytestmark = [pytest.mark.integration, NO_JAVA]

RULES: Final[list[dict[str, Any]]] = yaml.safe_load(prometheus.ALERTS.read_text())["groups"][0]["rules"]
SHORTENED: Final = {
    "TieringNoCopy": ("> 10800", "> 1"),
    "TieringNoExpiration": ("> 10800", "> 1"),
    "TieringNoSizes": ("> 10800", "> 1"),
    "TieringNoVerification": ("> 172800", "> 1"),
    "TieringNoAudit": ("> 172800", "> 1"),
    "TieringNoHandoverWatch": ("> 7200", "> 1"),
    "TieringNoIngest": ("> 3600", "> 1"),
    "TieringQuotaInUse": ("> 0.95", "> 0.001"),
}
"""Limits by alert, as they are and as they are here: seconds, and the share of a quota in use for five minutes."""
NEVER: Final = {"TieringNoCopy", "TieringNoExpiration", "TieringNoSizes", "TieringNoVerification", "TieringNoAudit"}
"""Alerts that fire, as they are, before the first run of a kind."""
QUOTA: Final = 64 * KIB
HOUR_MS: Final = 60 * 60 * 1000
YEARS_MS: Final = 100 * 366 * 24 * 60 * 60 * 1000
DAY_MS: Final = 24 * 60 * 60 * 1000


class PresentMinute(SystemClock):
    """Of an endpoint: the newest whole minute, which it shows, is the one that is under way."""

    def now_ms(self) -> int:
        return super().now_ms() + SETTLED_MS + 60_000


@dataclass
class Watched:
    """The server, and the endpoints by platform."""

    server: Prometheus
    endpoints: dict[str, MetricsServer]
    began: float = 0.0

    def scraped(self) -> None:
        """Wait until each endpoint was scraped after what was done so far."""
        now = time.time()
        eventually(
            lambda: len(self.server.query(f"timestamp(up) > {now}")) == len(self.endpoints), "a scrape of each endpoint"
        )

    def settle(self) -> None:
        """Wait until the rules were evaluated, too: as often as endpoints are scraped."""
        self.scraped()
        self.scraped()

    def fired(self, limits: str) -> set[str]:
        """The alerts that fired since the last `begin`, of the rules with these limits."""
        self.settle()
        seconds = max(1, round(time.time() - self.began))
        found = self.server.query(f'count_over_time(ALERTS{{alertstate="firing",limits="{limits}"}}[{seconds}s])')
        return {labels["alertname"] for labels, _ in found}

    def begin(self) -> None:
        self.settle()
        self.began = time.time()


def rules_without_patience(directory: Path) -> Path:
    groups = []
    for limits in ("own", "shortened"):
        rules = []
        for rule in RULES:
            expression = rule["expr"]
            if limits == "shortened":
                if rule["alert"] not in SHORTENED:
                    continue
                own, shortened = SHORTENED[rule["alert"]]
                assert own in expression, rule["alert"]
                expression = expression.replace(own, shortened)
            rules.append({"alert": rule["alert"], "expr": expression, "labels": {"limits": limits}})
        groups.append({"name": limits, "rules": rules})
    file = directory / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": groups}))
    return file


@pytest.fixture
def platforms(tmp_path: Path) -> Iterator["Platforms"]:
    found = Platforms(tmp_path)
    yield found
    found.handed.engine.dispose()


@pytest.fixture
def watched(platforms: "Platforms", tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    """Prometheus asks every endpoint each second, and each answers with what is in its database then."""
    try:
        programs = prometheus_directory()
    except ProgramMissingError as error:
        pytest.skip(str(error))
    monkeypatch.setattr(monitoring, "FRESH_SECONDS", 0.0)
    home = tmp_path / "prometheus"
    pid_files = home / "running"
    with ExitStack() as stack:
        endpoints = {}
        for name, opened in platforms.opened.items():
            app = stack.enter_context(opened())
            app.adapters.clock = PresentMinute()
            endpoints[name] = stack.enter_context(serving(app.operations.monitoring.values))
        targets = [endpoint.address for endpoint in endpoints.values()]
        config = prometheus.configuration(targets, rules_without_patience(tmp_path), interval_seconds=1)
        try:
            server = prometheus.start(programs, home, config, pid_files=pid_files, log=home / "log")
            watched = Watched(server, endpoints)
            watched.begin()
            yield watched
        finally:
            processes.end(processes.recorded(pid_files).values(), patience_seconds=PATIENCE_SECONDS)


class Platforms:
    """Four platforms on which nothing was done yet."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        places = {name: directory / name for name in ("archive", "tiny", "observed", "handed")}
        for place in places.values():
            place.mkdir()
        self.archive = Archive.of(places["archive"])
        # The rate is that of five minutes, so that it matters little when a minute ends.
        window = "remote.log.manager.copy.quota.window.num = 300\n"
        self.archive.config.write_text(window + self.archive.config.read_text())
        for broker in (1, 2):
            kept = (config_record("orders", name, "-1") for name in ("retention.ms", "retention.bytes"))
            self.archive.append_metadata(broker, *kept)
        self.tiny = TinyDeployment(places["tiny"])
        self.observed = ObservedCluster(places["observed"])
        self.handed = Deployment(places["handed"])
        self.opened: dict[str, Callable[[], Any]] = {
            "archive": self.archive.open,
            "tiny": self.tiny.open,
            "observed": self.observed.opened,
            "handed": self.handed.open,
        }

    def recount(self) -> None:
        """A size run of the tiny platform, as its DAG does it: a Spark job, whose summary is published."""
        output, home = self.directory / "sizes", self.directory / "spark"
        home.mkdir(exist_ok=True)
        environment = submit_environment(home, **self.tiny.environ)
        command = submit_command("sizes.py", ["--output", str(output)], home)
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode in (0, 1), done.stderr
        found = json.loads((output / "summary.json").read_text())
        with self.tiny.open() as app:
            app.sizes.publish_recount(
                milliseconds=found["computation_ms"],
                differences=len(list(finding_lines(found))),
                duplicate_bytes=duplicate_bytes(found["overlaps"]),
            )

    def all_is_well(self, watched: Watched) -> None:
        """Each kind of run ends, two copies wait for a quota, and nothing waits afterwards."""
        archive = self.archive
        archive.set_default(
            **{
                "tiering.copy.total.max.bytes.per.second": QUOTA,
                "tiering.audit.min.age.ms": 0,
                "log.remote.copy.lag.ms": 0,
            }
        )
        for _ in range(2):
            archive.copy(limit_bytes=1)
            watched.scraped()
        archive.set_default(**{"log.remote.copy.lag.ms": YEARS_MS})
        verify(archive)
        with archive.open() as app:
            app.sizes.report()
            app.audit.run("audit-1")
        archive.expire()
        self.tiny.copied(2)
        with self.tiny.open() as app:
            app.audit.run("audit-1")
        self.recount()
        with self.observed.opened() as app:
            app.ingestion.run()
        store = SqlHandoverStore(self.handed.engine, CLUSTER_ID)
        store.begin(Uuid(bytes(16)), _FIRST.topic_id, "orders", LocalRetention(), author="ada")
        with self.handed.open() as app:
            app.handover.forgotten()

    def lose_a_database(self) -> None:
        """The endpoint of the observed cluster has an open connection; the tables are gone for it, too."""
        with self.observed.opened() as app, app.adapters.engine.begin() as connection:
            connection.exec_driver_sql("ALTER TABLE metric_series RENAME TO lost")

    def everything_goes_wrong(self) -> Iterator[None]:
        """Yield after each step, before the next one covers what it showed."""
        archive, store = self.archive, self.archive.directory / "store"
        # What was delayed is a backlog of years.
        archive.set_default(**{"log.remote.copy.lag.ms": 0})
        with archive.open() as app:
            app.sizes.report()
        yield
        # One of the next segments is damaged in the log dir; the others wait for the quota, and for a verdict.
        for replica in archive.brokers.rglob("orders-1/00000000000000000536.log"):
            damage(replica)
        archive.copy()
        with archive.open() as app:
            app.verification.publish_verdicts()
        yield
        # No quota is left; a verification reads, so that the quotas in force are known. One that it reads is damaged.
        archive.set_default(**{"tiering.copy.total.max.bytes.per.second": None})
        logs = sorted(store.rglob("orders-*/0/*.log"))
        damage(logs[-2])
        verify(archive)
        with archive.open() as app:
            app.copying.plan("a segment failed")
        yield
        # The broker deletes what could replace it.
        archive.raise_broker_log_start(0, 808)
        with archive.open() as app:
            app.copying.plan("the source is gone")
            app.sizes.report()
        yield
        # Three months pass: verdicts are old, then they expire.
        with archive.open() as app, app.adapters.engine.begin() as connection:
            passed = update(segments).where(segments.c.verdict == str(Verdict.PASSED))
            connection.execute(passed.values(verdict_at_ms=segments.c.verdict_at_ms - 92 * DAY_MS))
        with archive.open() as app:
            app.verification.publish_verdicts()
        yield
        with archive.open() as app:
            app.verification.expire_verdicts()
            app.verification.publish_verdicts()
        yield
        # One log is lost, two objects are nobody's.
        logs[-1].unlink()
        plant_orphan(store)
        with archive.open() as app:
            app.audit.run("audit-2")
        yield
        # Everything expires, but of one partition a log cannot be deleted, nor can it be by the next run.
        archive.set(retention_bytes=1)
        oldest = min(store.rglob("orders-*/1/*.log"))
        oldest.unlink()
        (oldest / "in the way").mkdir(parents=True)
        for _ in range(2):
            archive.expire()
            with archive.open() as app:
                app.sizes.report()
            yield
        # The disk with a partition's only replica that is named is gone.
        shutil.rmtree(archive.partition_dir(1, 0))
        with archive.open() as app:
            app.sizes.report()
        yield
        # Another copy has offsets that were copied, and somebody changes a counter.
        with self.tiny.open() as app:
            copies = TinyCopies.into(app, PARTITION, "again")
            copies.number = 50
            copies.copy(start=25)
            with app.adapters.engine.begin() as connection:
                connection.execute(update(size_counters).values(size_bytes=size_counters.c.size_bytes + 1_000))
        self.recount()
        yield
        # The rows of the tiny platform are gone.
        with self.tiny.open() as app, app.adapters.engine.begin() as connection:
            connection.execute(delete(segments))
        with self.tiny.open() as app:
            app.audit.run("no rows")
            # What a drill keeps that a damaged segment has failed; tests/integration/test_recovery_drill.py runs one.
            failed = DrillReport("orders", "3.9.2", (), (), ("orders-0: a segment",), RecoveryNeeds(1, 1, 1, 1.0))
            record_drill(app, failed, author="ada")
        yield
        self.observed.topic.append(0, b"no record")
        with self.observed.opened() as app:
            app.ingestion.run()
        # An hour passes in a handover whose driver is gone.
        with self.handed.engine.begin() as connection:
            connection.execute(
                update(handovers).values(
                    state=str(HandoverState.ACTIVE),
                    updated_at_ms=handovers.c.updated_at_ms - HOUR_MS,
                    driven_until_ms=0,
                )
            )
        with self.handed.open() as app:
            app.handover.forgotten()
        yield


def verify(archive: Archive) -> None:
    with archive.open() as app:
        app.verification.verify_run()
        app.verification.publish_verdicts()


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.chmod(0o600)
    path.write_bytes(content)


def test_each_alert_fires_once_its_state_was_brought_about(platforms: Platforms, watched: Watched) -> None:
    assert watched.fired("own") == NEVER
    platforms.all_is_well(watched)
    watched.begin()
    assert watched.fired("own") == set()
    watched.begin()
    for _ in platforms.everything_goes_wrong():
        watched.settle()
    fired = watched.fired("own")
    platforms.lose_a_database()
    eventually(lambda: "TieringMetricsMissing" in watched.fired("own"), "the alert of an endpoint without its database")
    everything = {rule["alert"] for rule in RULES}
    assert fired | watched.fired("shortened") | {"TieringMetricsMissing"} == everything
    assert not fired & SHORTENED.keys()
