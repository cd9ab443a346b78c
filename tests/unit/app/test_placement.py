"""Two log dirs in two places: who plans sees both, a batch copies what it can read where it runs."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from include.tiering.app import open_app
from include.tiering.app.app import App
from include.tiering.model.segments import Uuid
from include.tiering.runs.contract import ANYWHERE, Placement
from include.tiering.settings import TieringSettings, load_settings
from tests.doubles.log_dirs import BrokerLogDir

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


def settings(root: Path) -> TieringSettings:
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
    with open_app(settings(tmp_path)) as app:
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
    with open_app(settings(tmp_path)) as elsewhere:
        result = elsewhere.copying.run_batch("run", "run/0", placement=placement)
        assert not result.failed
        assert [one.segment_id.topic_id_partition.topic for one in result.copied] == [topic, topic]
        assert not elsewhere.copying.run_batch("run", "run/1", placement=ANYWHERE).copied


def test_a_path_that_cannot_be_read_there_fails_the_batch_with_host_and_path(planned: App, tmp_path: Path) -> None:
    (tmp_path / "broker-2").rename(tmp_path / "on another host")
    with open_app(settings(tmp_path)) as elsewhere:
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
