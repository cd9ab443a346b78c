"""Two brokers on hosts of their own, both with their log dir at the same path, and a scheduler that has neither."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import update

from include.tiering.app import App, open_app
from include.tiering.copying.plan import HeldBack
from include.tiering.database.schema import queue_scans
from include.tiering.errors import ClusterMetadataError, SettingError, SourceError
from include.tiering.kafka.log_dirs.contract import ScanReport
from include.tiering.kafka.log_dirs.dirs import LogDirLocation
from include.tiering.model.segments import Uuid
from include.tiering.operations.readiness import NotReady
from include.tiering.runs import cluster_log_dirs
from include.tiering.runs.cluster_log_dirs import MOST_AGE_MS
from include.tiering.runs.contract import Placement
from include.tiering.settings import load_settings
from tests.doubles.log_dirs import BrokerLogDir

pytestmark = pytest.mark.integration

RACK_A, RACK_B = Placement("rack-a"), Placement("rack-b")
TOPICS = {"orders": Uuid(b"orders-topic-id0"), "clicks": Uuid(b"clicks-topic-id0")}


class Hosts:
    """What a process sees depends on the host that it is on: `data` exists there as the broker's log dir, or not."""

    def __init__(self, root: Path) -> None:
        self._root, self.data = root, root / "data"
        for broker_id, (topic, topic_id) in enumerate(TOPICS.items(), 1):
            log_dir = BrokerLogDir(root / f"of-broker-{broker_id}", broker_id=broker_id)
            for leader, (name, other_id) in enumerate(TOPICS.items(), 1):
                log_dir.create_topic(name, other_id, leader=leader)
            log_dir.partition(f"{topic}-0", topic_id).filled(0, 10, 20)
            log_dir.all_current({f"{topic}-0": 20})
        self._config = root / "tiering.toml"
        self._config.write_text(
            f"""metadata.url = "sqlite:///{root / "metadata.sqlite"}"
remote_storage.url = "{(root / "store").as_uri()}"
topics.include = ["orders", "clicks"]
[[log_dirs]]
broker_id = 1
path = "{self.data}"
queue = "rack-a"
[[log_dirs]]
broker_id = 2
path = "{self.data}"
queue = "rack-b"
"""
        )

    @contextmanager
    def scheduler(self) -> Iterator[App]:
        assert not self.data.exists()
        with open_app(load_settings(self._config, environ={"HOME": str(self._root)})) as app:
            yield app

    @contextmanager
    def host_of(self, broker_id: int) -> Iterator[App]:
        away = self._root / f"of-broker-{broker_id}"
        away.rename(self.data)
        try:
            with open_app(load_settings(self._config, environ={"HOME": str(self._root)})) as app:
                yield app
        finally:
            self.data.rename(away)

    def report(self, broker_id: int, run_id: str = "run") -> ScanReport:
        with self.host_of(broker_id) as app:
            return app.copying.report_queue(f"rack-{'ab'[broker_id - 1]}", run_id)


@pytest.fixture
def hosts(tmp_path: Path) -> Hosts:
    made = Hosts(tmp_path)
    with made.host_of(1) as app:
        app.set_up.migrate()
    return made


def planned(app: App, run_id: str) -> dict[str, Placement]:
    plan = app.copying.plan(run_id)
    return {partition.replica_id.topic_id_partition.topic: partition.placement for partition in plan.partitions}


def test_the_whole_story_without_a_log_dir_on_the_host_of_the_scheduler(hosts: Hosts) -> None:
    assert [replica.chosen for replica in hosts.report(1).replicas] == [True]
    hosts.report(2)
    with hosts.scheduler() as app:
        readiness = app.operations.ready(pool="remote_log_copier")
        assert readiness.ready
        assert [partition.ready for partition in readiness.partitions] == [True, True]
        assert planned(app, "run") == {"orders": RACK_A, "clicks": RACK_B}
    for broker_id, placement in ((1, RACK_A), (2, RACK_B)):
        with hosts.host_of(broker_id) as app:
            result = app.copying.run_batch("run", f"run/{broker_id}", placement=placement)
        assert (len(result.copied), result.failed) == (2, ())
    with hosts.scheduler() as app:
        assert planned(app, "again") == {}
        sizes = app.sizes.report()
        assert [size.segments for size in sizes.sizes] == [2, 2]
        assert sizes.tiers is not None
        described, _ = app.sizes.describe_log_dirs(["orders", "clicks"])
        assert [(len(each.replicas), each.log_dir.error) for each in described] == [(1, None), (1, None)]
        of_all, _ = app.sizes.describe_log_dirs()
        assert ["only for the topics orders, clicks" in str(each.log_dir.error) for each in of_all] == [True, True]
        app.audit.run("audit")
        assert app.audit.findings("audit") == []


def test_what_no_worker_has_reported_is_not_planned_and_named_with_its_queue(hosts: Hosts) -> None:
    hosts.report(1)
    with hosts.scheduler() as app:
        plan = app.copying.plan("run")
        assert [partition.placement for partition in plan.partitions] == [RACK_A]
        (error,) = plan.errors
        assert error.path == str(hosts.data)
        assert "no worker of queue rack-b has reported it" in error.message


def test_an_old_report_counts_as_none(hosts: Hosts) -> None:
    hosts.report(1)
    hosts.report(2)
    with hosts.scheduler() as app:
        with app.adapters.engine.begin() as connection:
            older = queue_scans.c.scanned_at_ms - MOST_AGE_MS - 1000
            connection.execute(update(queue_scans).where(queue_scans.c.queue == "rack-b").values(scanned_at_ms=older))
        plan = app.copying.plan("run")
        assert [partition.placement for partition in plan.partitions] == [RACK_A]
        assert [error.message for error in plan.errors if "rack-b last reported it at" in error.message]
    hosts.report(2)
    with hosts.scheduler() as app:
        assert set(planned(app, "later").values()) == {RACK_A, RACK_B}


def test_a_run_does_not_wait_for_partitions_that_its_own_scans_will_report(hosts: Hosts) -> None:
    with hosts.scheduler() as app:
        readiness = app.operations.ready(pool="remote_log_copier")
        (log_dirs,) = (check for check in readiness.checks if check.name == "log dirs")
        assert readiness.ready, readiness.missing
        assert "2 read by workers of queue rack-a, rack-b" in str(log_dirs)


def test_a_partition_that_waits_on_its_host_holds_the_run_once_it_was_reported(hosts: Hosts) -> None:
    with hosts.host_of(1) as app:
        app.adapters.stores.work.pause("orders", author="test")
        app.adapters.stores.work.pause("clicks", author="test")
    hosts.report(1)
    hosts.report(2)
    with hosts.scheduler() as app:
        readiness = app.operations.ready(pool="remote_log_copier")
        assert {partition.reason for partition in readiness.partitions} == {NotReady.PAUSED}
        assert not readiness.ready


def test_topics_that_were_not_reported_are_not_taken_for_absent(hosts: Hosts) -> None:
    hosts.report(1)
    hosts.report(2)
    with hosts.scheduler() as app:
        assert app.log_dirs.scan_all(topics=["orders"]).errors == ()
        errors = app.log_dirs.scan_all().errors
        assert [bool(re.search("only for the topics orders, clicks", error.message)) for error in errors] == [True] * 2


def test_a_scan_looks_once_which_log_dirs_are_elsewhere(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[LogDirLocation] = []

    def is_here(log_dir: LogDirLocation) -> bool:
        looked.append(log_dir)
        return False

    monkeypatch.setattr(cluster_log_dirs, "is_here", is_here)
    with hosts.scheduler() as app:
        app.log_dirs.scan_all()
    assert [log_dir.broker_id for log_dir in looked] == [1, 2]


def test_a_worker_without_the_log_dirs_of_its_queue_reports_nothing(hosts: Hosts) -> None:
    with hosts.host_of(2) as app, pytest.raises((SourceError, ClusterMetadataError), match="broker 2"):
        app.copying.report_queue("rack-a", "run")
    with hosts.scheduler() as app:
        with pytest.raises(SourceError, match="on host"):
            app.copying.report_queue("rack-a", "run")
        with pytest.raises(SettingError, match="has the queue rack-c"):
            app.copying.report_queue("rack-c", "run")
        assert app.adapters.stores.queue_scans.all() == {}


def test_two_hosts_that_both_believe_to_lead_a_partition_copy_nothing_of_it(hosts: Hosts, tmp_path: Path) -> None:
    """The metadata log on each host names another leader of `orders`: one of them is out of date."""
    stale = BrokerLogDir(tmp_path / "stale", broker_id=2)
    stale.create_topic("orders", TOPICS["orders"], leader=2)
    stale.partition("orders-0", TOPICS["orders"]).filled(0, 10, 20)
    stale.all_current({"orders-0": 20})
    hosts.report(1)
    (tmp_path / "of-broker-2").rename(tmp_path / "before")
    (tmp_path / "stale").rename(tmp_path / "of-broker-2")
    hosts.report(2)
    with hosts.scheduler() as app:
        plan = app.copying.plan("run")
        assert plan.partitions == ()
        assert HeldBack.OUT_OF_SIGHT not in {held.reason for held in plan.held_back}
