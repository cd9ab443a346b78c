"""`publish` through the library and the command line: which partitions, from which log start, what it says."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY
from typer.testing import CliRunner, Result

from include.tiering.app import App, open_app
from include.tiering.cli.app import cli
from include.tiering.cli.command import Session
from include.tiering.database.engine import open_engine
from include.tiering.database.migrations import upgrade
from include.tiering.database.store_identity import StoreIdentities
from include.tiering.errors import MetadataTopicUnavailableError, SettingError, UnknownTopicError
from include.tiering.handover.contract import LocalRetention
from include.tiering.handover.rules import HandoverStep
from include.tiering.handover.store import SqlHandoverStore
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.segments import Uuid, Verdict
from include.tiering.remote_storage.location import open_storage, place_of
from include.tiering.settings import load_settings
from tests.doubles.manual_clock import ManualClock
from tests.doubles.memory_metadata_topic import MemoryMetadataTopic
from tests.doubles.model_brokers import ModelBrokers
from tests.doubles.publication_world import LOG_START_OFFSET, RANGES, PublicationWorld, orders
from tests.doubles.segments import CLUSTER_ID, partition_of
from tests.doubles.tiered_topic import records_about, require_valid_prefix

_FIRST, _SECOND = orders(0), orders(1)


class Deployment:
    """Two partitions of `orders` that are being handed over, in a database; a cluster and its metadata topic."""

    def __init__(self, directory: Path) -> None:
        self.url = f"sqlite:///{directory / 'tiering.sqlite'}"
        self.engine = open_engine(self.url)
        upgrade(self.engine)
        url = (directory / "remote").as_uri()
        identities = StoreIdentities(self.engine, CLUSTER_ID)
        owned = identities.create(Uuid(bytes(range(16))), place=place_of(url, "aiven", "")).current
        open_storage(url).create_marker(owned)
        self.world = PublicationWorld(self.engine)
        self.world.copied(_FIRST)
        self.world.copied(_SECOND, first_number=10, verdicts={12: Verdict.NONE})
        self.topic = MemoryMetadataTopic()
        self.brokers = ModelBrokers(CLUSTER_ID)
        self.brokers.create_topic("orders", partitions=3, topic_id=_FIRST.topic_id)
        for partition in (_FIRST, _SECOND):
            self.brokers.partition(partition.topic_id, partition.partition).earliest = LOG_START_OFFSET
        self.environ = {
            "HOME": str(directory),
            "TIERING_METADATA__URL": self.url,
            "TIERING_REMOTE_STORAGE__URL": (directory / "remote").as_uri(),
            "TIERING_CLUSTER__BOOTSTRAP_SERVERS": "localhost:9092",
        }

    @contextmanager
    def open(self, _settings: Any = None) -> Iterator[App]:
        with open_app(load_settings(environ=self.environ), clock=ManualClock()) as app:
            app.adapters.brokers = self.brokers
            app.adapters.metadata_topic_writer = self.topic
            yield app

    def run(self, *arguments: str) -> Result:
        session = Session(open_app=self.open)
        return CliRunner(env={"COLUMNS": "200"}).invoke(cli, ["publish", *arguments], obj=session)

    def document(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "--json").stdout)


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    deployment = Deployment(tmp_path)
    yield deployment
    deployment.engine.dispose()


def _finished(deployment: Deployment, partition: Any) -> list[tuple[int, int]]:
    return require_valid_prefix(records_about(deployment.topic, partition), log_start_offset=LOG_START_OFFSET)


def test_a_dry_run_says_what_would_be_sent_and_sends_nothing(deployment: Deployment) -> None:
    first, second = deployment.document("orders", "--dry-run")["partitions"]
    assert (first["partition"], first["planned_records"], first["records"], first["end_offset"]) == (0, 6, 0, 420)
    assert (first["log_start_offset"], first["withheld"], first["refused"]) == (100, None, None)
    assert second["planned_records"] == 4
    assert second["withheld"]["offset"] == 300
    assert records_about(deployment.topic, _FIRST) == []
    result = deployment.run("orders", "--dry-run")
    assert result.exit_code == 1
    assert "10 records of 2 partitions would be sent, 1 partition to look at" in result.stdout
    assert "waits at offset 300" in result.stdout


def test_every_partition_is_published_from_the_brokers_log_start(deployment: Deployment) -> None:
    result = deployment.run("orders")
    assert result.exit_code == 1, "one partition waits for a verdict"
    assert "10 records of 2 partitions sent and read back" in result.stdout
    assert _finished(deployment, _FIRST) == list(RANGES)
    assert _finished(deployment, _SECOND) == list(RANGES[:2])
    again = deployment.document("orders", "--partition", "0")["partitions"]
    assert [(one["partition"], one["records"], one["published_before"]) for one in again] == [(0, 0, 3)]
    assert deployment.run("orders", "--partition", "0").exit_code == 0


def test_a_partition_that_is_refused_does_not_stop_the_others(deployment: Deployment) -> None:
    deployment.brokers.partition(_FIRST.topic_id, 0).earliest = 42
    first, second = deployment.document("orders")["partitions"]
    assert first["error"] == "PublicationRefusedError"
    assert "above the broker's log start 42" in first["message"]
    assert second["records"] == 4
    assert records_about(deployment.topic, _FIRST) == []


def test_only_what_is_worth_another_try_has_its_exit_code(deployment: Deployment) -> None:
    def fail(call: str) -> None:
        if call == "append":
            raise MetadataTopicUnavailableError("no leader")

    deployment.topic.fault = fail
    result = deployment.run("orders", "--partition", "0")
    assert result.exit_code == 3
    assert "MetadataTopicUnavailableError: no leader" in result.stdout
    deployment.topic.fault = lambda _: None
    assert deployment.run("orders", "--partition", "0").exit_code == 0
    assert _finished(deployment, _FIRST) == list(RANGES)


def test_a_topic_that_is_not_being_handed_over_is_refused(deployment: Deployment) -> None:
    deployment.world.owned_by(_FIRST, TopicOwner.PLATFORM)
    result = deployment.run("orders")
    assert result.exit_code == 1
    assert "owner is platform, not handing-over" in result.stdout


def test_nothing_is_published_before_the_hand_over_looked_at_it_for_the_last_time(deployment: Deployment) -> None:
    handovers = SqlHandoverStore(deployment.engine, CLUSTER_ID)
    handovers.begin(Uuid(bytes(16)), _FIRST.topic_id, "orders", LocalRetention(), author="ada")
    drive = handovers.drive(Uuid(bytes(16)), "driver", lease_ms=60_000)
    assert drive is not None
    handovers.advance(drive, HandoverStep.RECHECK, expected=HandoverStep.PRECONDITIONS)
    refused = deployment.run("orders")
    assert refused.exit_code == 1
    assert "is at recheck (active), and publishes after recheck" in " ".join(refused.stderr.split())
    assert records_about(deployment.topic, _FIRST) == []
    handovers.advance(drive, HandoverStep.PUBLISH, expected=HandoverStep.RECHECK)
    assert deployment.run("orders", "--partition", "0").exit_code == 0


def test_what_cannot_be_published_at_all_is_said(deployment: Deployment) -> None:
    other = partition_of("payments")
    deployment.brokers.create_topic("payments", topic_id=other.topic_id)
    with deployment.open() as app:
        with pytest.raises(UnknownTopicError, match="no topic nothing"):
            app.publication.publish("nothing")
        with pytest.raises(SettingError, match=r"payments .* has segments of the platform"):
            app.publication.publish("payments")
        with pytest.raises(SettingError, match="has segments"):
            app.publication.publish("orders", [2])


def test_an_id_that_a_broker_has_is_refused(deployment: Deployment) -> None:
    deployment.environ["TIERING_METADATA_TOPIC__BROKER_ID"] = "1"
    result = deployment.run("orders")
    assert result.exit_code == 2
    assert "metadata_topic.broker_id: broker 1 exists" in result.output
    assert records_about(deployment.topic, _FIRST) == []


def test_metrics_tell_what_is_published_and_what_waits(deployment: Deployment) -> None:
    deployment.run("orders")

    def value(name: str) -> float | None:
        return REGISTRY.get_sample_value(name, {"topic": "orders"})

    assert value("tiering_published_segments") == 5
    assert value("tiering_unpublished_segments") == 1
    assert value("tiering_unpublished_bytes") == 1_000
    deployment.world.owned_by(_FIRST, TopicOwner.BROKER)
    with deployment.open() as app:
        app.publication.show()
    assert value("tiering_unpublished_segments") == 0
