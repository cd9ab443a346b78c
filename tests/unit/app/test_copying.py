"""The services of copies."""

import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from include.tiering.app import open_app
from include.tiering.app.app import App
from include.tiering.configs.config_store import ALL_BROKERS
from include.tiering.copying import copy_batch
from include.tiering.copying.copy_batch import BatchResult
from include.tiering.errors import SettingError
from include.tiering.model.segments import Uuid
from include.tiering.quotas.metrics import TOPIC_BYTES_IN
from include.tiering.quotas.topic_quotas import TOPIC_QUOTAS_ENABLE, MeterKind
from include.tiering.runs.batch import BatchEnd
from include.tiering.runs.contract import ANYWHERE, Placement
from include.tiering.settings import TieringSettings, load_settings
from tests.doubles.archive import RUN_ID, planned_run, settings_of
from tests.doubles.log_dirs import ORDERS, BrokerLogDir
from tests.doubles.memory_stores import MemoryPools
from tests.doubles.quotas import SameLimiter
from tests.doubles.recorded_metrics import stored_value, written_value

# The joined library: what only the parts together can refuse.


def settings(root: Path, log_dir: Path) -> TieringSettings:
    config = root / "tiering.toml"
    config.write_text(
        f"""log_dirs = [{{broker_id = 1, path = "{log_dir}"}}]
[metadata]
url = "sqlite:///{root / "metadata.sqlite"}"
[remote_storage]
url = "{(root / "store").as_uri()}"
[topics]
include = ["orders"]
"""
    )
    return load_settings(config, environ={"HOME": str(root)})


def orders(path: Path, cluster_id: str) -> Path:
    """A log directory with one eligible segment."""
    log_dir = BrokerLogDir(path, cluster_id=cluster_id)
    log_dir.create_topic()
    log_dir.partition().filled(0, 10)
    log_dir.all_current({"orders-0": 10})
    return log_dir.path


class ClosedPools(MemoryPools):
    """Counts how often it was closed: a client of HTTP keeps connections."""

    closed = 0

    def close(self) -> None:
        self.closed += 1


def test_what_was_opened_is_closed_and_nothing_else_is_opened(tmp_path: Path) -> None:
    with open_app(settings(tmp_path, orders(tmp_path / "ours", "cluster-of-the-tests-A"))) as app:
        app.set_up.migrate()
        connections: Any = app.adapters.engine.pool
        pools = ClosedPools()
        app.adapters.pools = pools
        assert (connections.checkedin(), pools.closed) == (1, 0)
    assert (connections.checkedin(), pools.closed) == (0, 1)
    with open_app(settings(tmp_path, tmp_path / "ours")) as app:
        pass
    assert not app.__dict__.keys() & {"pools", "engine", "storage"}


@pytest.mark.parametrize("dry_run", [True, False])
def test_segments_of_another_cluster_are_never_planned(tmp_path: Path, dry_run: bool) -> None:
    ours = orders(tmp_path / "ours", "cluster-of-the-tests-A")
    theirs = orders(tmp_path / "theirs", "cluster-of-the-tests-B")
    with open_app(settings(tmp_path, ours)) as app:
        app.set_up.migrate()
        assert app.copying.plan("run-1", dry_run=dry_run).segments == 1
    with (
        open_app(settings(tmp_path, theirs)) as app,
        pytest.raises(SettingError, match="cluster-of-the-tests-B"),
    ):
        app.copying.plan("run-2", dry_run=dry_run)


# The setting `tiering.copy.fairness.enable` reaches the batch.

PAYMENTS = Uuid(b"payments-topicid")


class Exhausted:
    """A limiter that every byte had to wait for."""

    waits_for = None

    def __init__(self) -> None:
        self.waited_seconds = 0.0

    def take(self, wanted_bytes: int) -> int:
        self.waited_seconds += 1.0
        return wanted_bytes


@pytest.mark.parametrize(
    ("environment", "order"),
    [
        ({}, ["orders", "payments", "orders", "payments"]),
        ({"TIERING_COPY__FAIRNESS__ENABLE": "false"}, ["orders", "orders", "payments", "payments"]),
    ],
    ids=["by default", "off"],
)
def test_partitions_take_turns_by_default(tmp_path, environment, order):
    log_dir = BrokerLogDir(tmp_path / "data")
    for topic, topic_id in {"orders": ORDERS, "payments": PAYMENTS}.items():
        log_dir.create_topic(topic, topic_id)
        log_dir.partition(f"{topic}-0", topic_id).filled(0, 10, 20)
    log_dir.all_current({"orders-0": 25, "payments-0": 25})
    environment = {"TIERING_COPIER__MAX__TRANSFERS": "1", **environment}
    with open_app(_settings(tmp_path, log_dir.path, environment), quotas=SameLimiter(Exhausted())) as app:
        app.set_up.migrate()
        app.copying.plan("run")
        copied = app.copying.run_batch("run", "run/0").copied
    assert [segment.segment_id.topic_id_partition.topic for segment in copied] == order


def test_a_batch_that_runs_reads_the_limits_of_its_transfers_again(tmp_path, monkeypatch):
    log_dir = BrokerLogDir(tmp_path / "data")
    read = []

    class ChangedMeanwhile:
        def __init__(self, *_args, limits_now, **_options):
            self._limits_now = limits_now

        def run(self) -> BatchResult:
            read.append(self._limits_now())
            names = ("tiering.copier.max.transfers", "tiering.copier.total.max.transfers", "queued.max.bytes")
            app.configs.alter(ALL_BROKERS, dict(zip(names, ("2", "30", "400"), strict=True)), author="test")
            read.append(self._limits_now())
            monkeypatch.setattr(app.copying, "_effective", refuse)
            read.append(self._limits_now())
            return BatchResult((), (), 0, 0.0, BatchEnd.NO_WORK)

    def refuse():
        raise SettingError("a later version has stored a value that this one does not accept")

    monkeypatch.setattr(copy_batch, "CopyBatch", ChangedMeanwhile)
    with open_app(_settings(tmp_path, log_dir.path, {"TIERING_COPIER__MAX__TRANSFERS": "9"})) as app:
        app.set_up.migrate()
        app.copying.run_batch("run", "run/0")
    assert [(each.transfers, each.total_transfers, each.queued_bytes) for each in read] == [
        (9, 256, -1),
        (2, 30, 400),
        (2, 30, 400),
    ]


def _settings(root: Path, log_dir: Path, environment: dict[str, str]):
    config = root / "tiering.toml"
    config.write_text(
        f"""log_dirs = [{{broker_id = 1, path = "{log_dir}"}}]
[metadata]
url = "sqlite:///{root / "metadata.sqlite"}"
[remote_storage]
url = "{(root / "store").as_uri()}"
[topics]
include = ["orders", "payments"]
"""
    )
    return load_settings(config, environ={"HOME": str(root), **environment})


# Two log dirs in two places: who plans sees both, a batch copies what it can read where it runs.

RACK_A, RACK_B = Placement("rack-a"), Placement("rack-b", "local_disk")
CLICKS = Uuid(b"clicks-topic-id0")


def log_dirs(root: Path) -> None:
    """Two brokers, each the leader of one topic with two rolled segments; both have the metadata log."""
    for broker_id, topic, topic_id in ((1, "orders", Uuid(b"orders-topic-id0")), (2, "clicks", CLICKS)):
        log_dir = BrokerLogDir(root / f"broker-{broker_id}", broker_id=broker_id)
        log_dir.create_topic("orders", Uuid(b"orders-topic-id0"), leader=1)
        log_dir.create_topic("clicks", CLICKS, leader=2)
        log_dir.partition(f"{topic}-0", topic_id).filled(0, 10, 20)
        log_dir.all_current({f"{topic}-0": 20})


def placed_settings(root: Path) -> TieringSettings:
    config = root / "tiering.toml"
    config.write_text(
        f"""metadata.url = "sqlite:///{root / "metadata.sqlite"}"
remote_storage.url = "{(root / "store").as_uri()}"
topics.include = ["*"]
[[log_dirs]]
broker_id = 1
path = "{root / "broker-1"}"
queue = "rack-a"
[[log_dirs]]
broker_id = 2
path = "{root / "broker-2"}"
queue = "rack-b"
spark_resource = "local_disk"
"""
    )
    return load_settings(config, environ={"HOME": str(root)})


@pytest.fixture
def planned(tmp_path: Path) -> Iterator[App]:
    """A stored plan of all four segments."""
    log_dirs(tmp_path)
    with open_app(placed_settings(tmp_path)) as app:
        app.set_up.migrate()
        app.copying.plan("run")
        yield app


def test_a_partition_is_placed_where_its_log_dir_is(planned: App) -> None:
    plan = planned.copying.plan("again", dry_run=True)
    found = {one.replica_id.topic_id_partition.topic: one.placement for one in plan.partitions}
    assert found == {"orders": RACK_A, "clicks": RACK_B}


@pytest.mark.parametrize(("placement", "topic", "other"), [(RACK_A, "orders", 2), (RACK_B, "clicks", 1)])
def test_a_batch_needs_no_more_than_the_log_dirs_of_its_placement(
    planned: App, tmp_path: Path, placement: Placement, topic: str, other: int
) -> None:
    (tmp_path / f"broker-{other}").rename(tmp_path / "on another host")
    with open_app(placed_settings(tmp_path)) as elsewhere:
        result = elsewhere.copying.run_batch("run", "run/0", placement=placement)
        assert not result.failed
        assert [one.segment_id.topic_id_partition.topic for one in result.copied] == [topic, topic]
        assert not elsewhere.copying.run_batch("run", "run/1", placement=ANYWHERE).copied


def test_a_path_that_cannot_be_read_there_fails_the_batch_with_host_and_path(planned: App, tmp_path: Path) -> None:
    (tmp_path / "broker-2").rename(tmp_path / "on another host")
    with open_app(placed_settings(tmp_path)) as elsewhere:
        (failure,) = elsewhere.copying.run_batch("run", "run/0", placement=RACK_B).failed
    assert failure.item.topic_id_partition.topic == "clicks"
    assert str(tmp_path / "broker-2") in str(failure.item.message)
    assert f"on host {socket.gethostname()}" in str(failure.item.message)


def test_without_a_placement_a_batch_copies_all_that_it_can_read(planned: App) -> None:
    copied = planned.copying.run_batch("run", "run/0").copied
    assert {one.segment_id.topic_id_partition.topic for one in copied} == {"orders", "clicks"}


def test_a_log_dir_that_cannot_be_identified_places_nothing(planned: App, tmp_path: Path) -> None:
    (tmp_path / "broker-1" / "meta.properties").write_text("version=1\n")
    assert set(planned.log_dirs.placements().values()) == {RACK_B}


# A batch of a whole deployment asks topic quotas, and its metrics and meters agree.


def test_what_a_batch_copied_is_what_its_topics_brought_in(tmp_path: Path) -> None:
    with open_app(settings_of(planned_run(tmp_path, topics='["orders"]'))) as app:
        app.adapters.stores.configs.alter(ALL_BROKERS, {TOPIC_QUOTAS_ENABLE: "true"}, author="test")
        result = app.copying.run_batch(RUN_ID, f"{RUN_ID}.0")
        report = app.adapters.topic_quotas.report()
        accepted = written_value(app, f"{TOPIC_BYTES_IN.name}_total", {"topic": "orders", "meter": "accepted"})
    copied_bytes = sum(segment.size_bytes for segment in result.copied)
    offsets = sum(segment.end_offset - segment.start_offset + 1 for segment in result.copied)
    assert copied_bytes > 0
    for kind in (MeterKind.IO, MeterKind.ACCEPTED):
        meters = [broker.meters.kinds[kind] for broker in report.brokers]
        assert sum(meter.bytes.count for meter in meters) == copied_bytes
        assert sum(meter.records.count for meter in meters) == offsets
    assert accepted == copied_bytes


# Metrics through the joined library: what a copy is granted and what it copied is in the database when it ends.


def test_a_copy_is_counted(tmp_path: Path) -> None:
    log_dir = BrokerLogDir(tmp_path / "data")
    log_dir.create_topic()
    log_dir.partition().filled(0, 10, 20)
    log_dir.all_current({"orders-0": 25})
    config = tmp_path / "tiering.toml"
    config.write_text(
        f"""log_dirs = [{{broker_id = 1, path = "{log_dir.path}"}}]
[metadata]
url = "sqlite:///{tmp_path / "metadata.sqlite"}"
[remote_storage]
url = "{(tmp_path / "store").as_uri()}"
[topics]
include = ["orders"]
"""
    )
    with open_app(load_settings(config, environ={"HOME": str(tmp_path)})) as app:
        app.set_up.migrate()
        app.copying.plan("run")
        result = app.copying.run_batch("run", "run/0")
    assert len(result.copied) == 2
    with open_app(load_settings(config, environ={"HOME": str(tmp_path)})) as app:
        value = partial(stored_value, app.adapters.metrics_writer.series)
        assert value("tiering_quota_granted_bytes_total", {"kind": "copy", "topic": "orders"}) == result.sent_bytes
        assert value("tiering_copy_sent_bytes_total", {"topic": "orders"}) == result.sent_bytes
        copied_bytes = sum(segment.size_bytes for segment in result.copied)
        assert value("RemoteCopyBytesPerSec_total", {"topic": "orders"}) == copied_bytes
        assert value("RemoteCopyRequestsPerSec_total", {"topic": "orders"}) == 2
