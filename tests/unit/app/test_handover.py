"""The services of handovers and of publication."""

import dataclasses
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import google_crc32c
import pytest
from typer.testing import CliRunner, Result

from include.tiering.app import App, open_app
from include.tiering.cli.app import cli
from include.tiering.cli.command import Session
from include.tiering.clock import SystemClock
from include.tiering.copying.plan import CopyPlan, HeldBack, HeldBackPartition
from include.tiering.database.engine import open_engine
from include.tiering.database.migrations import upgrade
from include.tiering.database.store_identity import StoreIdentities
from include.tiering.errors import (
    LeaseLostError,
    MetadataTopicUnavailableError,
    PublicationRefusedError,
    SettingError,
    UnknownTopicError,
)
from include.tiering.handover.actions import HandoverActions
from include.tiering.handover.contract import LocalRetention, SeededPartition
from include.tiering.handover.rules import HandoverStep
from include.tiering.handover.store import SqlHandoverStore
from include.tiering.kafka.cluster.contract import BrokerNode
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.segments import Depth, TopicIdPartition, Uuid, Verdict
from include.tiering.remote_storage.location import open_storage, place_of
from include.tiering.settings import load_settings
from include.tiering.settings.connections import DEFAULT_PUBLISHER_ID
from include.tiering.verification.record_verdicts import LossLimits
from include.tiering.verification.service import VerificationService
from tests.doubles.handover_world import HANDOVER_ID, TOPIC, HandoverWorld, WorldApp, handover_world
from tests.doubles.json_shapes import checked
from tests.doubles.manual_clock import ManualClock
from tests.doubles.memory_metadata_topic import MemoryMetadataTopic
from tests.doubles.memory_stores import MemoryMetadata
from tests.doubles.model_brokers import ModelBrokers
from tests.doubles.plain_evaluator import PlainEvaluator
from tests.doubles.publication_world import LOG_START_OFFSET, RANGES, PublicationWorld, orders
from tests.doubles.quotas import NoQuotas
from tests.doubles.recorded_metrics import stored_value
from tests.doubles.segments import CLUSTER_ID, partition_of
from tests.doubles.stored_log import copied_partition
from tests.doubles.tiered_topic import records_about, require_valid_prefix

# The services of handovers.

# What a handover asks of the platform: when a copy round is worth another try, how much the gate reads.

PASSES_BY_ITSELF = {
    HeldBack.NOT_READY,
    HeldBack.OUT_OF_SIGHT,
    HeldBack.STOPPED,
    HeldBack.BYTE_LIMIT,
    HeldBack.NOT_ELIGIBLE,
    HeldBack.DAMAGED,
    HeldBack.COMPACTED,
}
ORDERS = TopicIdPartition(Uuid(bytes(range(16))), 0, "orders")
unused: Any = None


def actions_with(**parts: Any) -> HandoverActions:
    """Actions that have these parts and no others."""
    return HandoverActions(**dict.fromkeys(signature(HandoverActions).parameters, unused) | parts)


@pytest.mark.parametrize("reason", HeldBack)
def test_what_only_a_person_can_end_is_not_waited_for(reason: HeldBack) -> None:
    held = HeldBackPartition(ORDERS, 7, reason, "in words")
    copying = SimpleNamespace(plan=lambda run_id, scope, at_once: CopyPlan(run_id, (), (held,), ()))
    done = actions_with(copying=copying).copy_round("orders", "run")
    assert done.worth_retrying == (reason in PASSES_BY_ITSELF)
    assert done.held_back == (f"{ORDERS}, offset 7: {reason}: in words",)


@pytest.mark.parametrize(
    ("verdicts", "end_offset", "said"),
    [
        (
            {1: Verdict.EXPIRED},
            420,
            "would end at offset 199: nothing from offset 200 on can be published, .* has the verdict expired",
        ),
        ({}, 299, "would end at offset 420"),
    ],
)
def test_either_all_that_was_decided_is_published_and_no_more_or_nothing(
    tmp_path: Path, verdicts: dict[int, Verdict], end_offset: int, said: str
) -> None:
    engine = open_engine(f"sqlite:///{tmp_path / 'tiering.db'}")
    upgrade(engine)
    world, topic = PublicationWorld(engine), MemoryMetadataTopic()
    world.copied(ORDERS, verdicts=verdicts)
    ownership = SimpleNamespace(claim=lambda: None)
    actions = actions_with(ownership=ownership, publisher=world.publisher(topic, ManualClock()))
    with pytest.raises(PublicationRefusedError, match=f"{said}.*Nothing was sent"):
        actions.publish(SeededPartition(ORDERS, 100, end_offset, 100, 1, 0))
    assert records_about(topic, ORDERS) == []
    for segment in world.metadata.list_segments(ORDERS):
        world.metadata.record_verdict(segment.metadata.remote_log_segment_id, Verdict.PASSED)
    actions.publish(SeededPartition(ORDERS, 100, 420, 100, 1, 0))
    assert len(records_about(topic, ORDERS)) == 6
    engine.dispose()


def test_a_backup_from_before_the_publication_is_refused_from_its_first_record_on() -> None:
    """The generation is raised before anything is published: the backup has no journal of it."""
    done: list[str] = []
    publisher = SimpleNamespace(
        plan=lambda partition, log_start_offset: SimpleNamespace(refused=None, end_offset=9),
        publish=lambda partition, **_: done.append("published"),
        confirm=lambda partition: done.append("read back"),
    )
    ownership = SimpleNamespace(claim=lambda: done.append("generation raised"))
    actions_with(ownership=ownership, publisher=publisher).publish(SeededPartition(ORDERS, 0, 9, 0, 1, 0))
    assert done == ["generation raised", "published", "read back"]


@pytest.mark.parametrize(("depth", "verdict"), [(Depth.SHALLOW, Verdict.PASSED), (Depth.DEEP, Verdict.FAILED)])
def test_the_gate_reads_as_deeply_as_is_asked_for(
    tmp_path: Path, depth: Depth, verdict: Verdict, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A byte in the middle is another one, and so was it when the store was told its checksum."""
    partition = copied_partition(tmp_path, segments=4)
    row = partition.rows[3]
    path = partition.object_path(row, "log")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    told = dataclasses.replace(row, log_crc32c=google_crc32c.value(bytes(content)))
    metadata = MemoryMetadata([*partition.rows[:3], told])
    ours = SimpleNamespace(require=lambda: None)
    verification = VerificationService(
        **dict.fromkeys(signature(VerificationService).parameters, unused)
        | {
            "metadata": metadata,
            "storage": lambda: partition.storage,
            "quotas": NoQuotas,
            "ownership": ours,
            "effective": lambda: SimpleNamespace(read=SimpleNamespace(max_segments=2)),
            "segment_evaluator": lambda _results_dir: PlainEvaluator(),
        }
    )
    monkeypatch.setattr(verification, "loss_limits", LossLimits)
    segment_id = row.metadata.remote_log_segment_id
    actions_with(verification=verification, depth=depth).verify(
        {segment_id.topic_id_partition: frozenset([segment_id])}
    )
    assert [one.verdict for one in metadata.rows.values()] == [Verdict.NONE] * 3 + [verdict]


# What stands before a handover: who drives, and whose name published records carry.


@pytest.fixture
def world(tmp_path: Path) -> Iterator[HandoverWorld]:
    with handover_world(tmp_path, partitions=1, segments=1) as made:
        yield made


def test_no_broker_has_the_publishers_id(world: HandoverWorld) -> None:
    world.brokers.nodes[DEFAULT_PUBLISHER_ID] = BrokerNode(DEFAULT_PUBLISHER_ID, "localhost", 1)
    with pytest.raises(SettingError, match=f"broker {DEFAULT_PUBLISHER_ID} exists"):
        WorldApp(world).handover.begin(TOPIC, LocalRetention(), author="ada")
    assert world.handovers.open_handovers() == []


def test_another_container_with_our_name_and_process_id_is_another_driver(world: HandoverWorld) -> None:
    world.begin()
    world.handovers.drive(HANDOVER_ID, f"{socket.gethostname()}:{os.getpid()}", lease_ms=60_000)
    with pytest.raises(LeaseLostError, match="drives handover"):
        WorldApp(world).handover.carry_on(HANDOVER_ID)


# `publish` through the library and the command line: which partitions, from which log start, what it says.

_FIRST, _SECOND = orders(0), orders(1)


class Deployment:
    """Two partitions of `orders` that are being handed over, in a database; a cluster and its metadata topic."""

    def __init__(self, directory: Path) -> None:
        self.began_ms = SystemClock().now_ms()
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
        with open_app(load_settings(environ=self.environ), clock=ManualClock(self.began_ms)) as app:
            app.adapters.brokers = self.brokers
            app.adapters.metadata_topic_writer = self.topic
            yield app

    def run(self, *arguments: str) -> Result:
        session = Session(open_app=self.open)
        command = ["publish", *arguments]
        return checked(command, CliRunner(env={"COLUMNS": "200"}).invoke(cli, command, obj=session))

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
    assert "10 records of 2 partitions would be sent, 1 partition with problems" in result.stdout
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
    assert "is at recheck (active), and publishes only after the step recheck" in " ".join(refused.stderr.split())
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
        with deployment.open() as app:
            return stored_value(app.adapters.metrics_writer.series, name, {"topic": "orders"})

    assert value("tiering_published_segments") == 5
    assert value("tiering_unpublished_segments") == 1
    assert value("tiering_unpublished_bytes") == 1_000
    deployment.world.owned_by(_FIRST, TopicOwner.BROKER)
    with deployment.open() as app:
        app.publication.show()
    assert value("tiering_unpublished_segments") == 0
