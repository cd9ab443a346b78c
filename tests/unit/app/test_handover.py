"""The services of handovers."""

import dataclasses
import os
import socket
from collections.abc import Iterator
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import google_crc32c
import pytest

from include.tiering.copying.plan import CopyPlan, HeldBack, HeldBackPartition
from include.tiering.database.engine import open_engine
from include.tiering.database.migrations import upgrade
from include.tiering.errors import LeaseLostError, PublicationRefusedError, SettingError
from include.tiering.handover.actions import HandoverActions
from include.tiering.handover.contract import LocalRetention, SeededPartition
from include.tiering.kafka.cluster.contract import BrokerNode
from include.tiering.model.segments import Depth, TopicIdPartition, Uuid, Verdict
from include.tiering.settings.connections import DEFAULT_PUBLISHER_ID
from include.tiering.verification.record_verdicts import LossLimits
from include.tiering.verification.service import VerificationService
from tests.doubles.handover_world import HANDOVER_ID, TOPIC, HandoverWorld, WorldApp, handover_world
from tests.doubles.manual_clock import ManualClock
from tests.doubles.memory_metadata_topic import MemoryMetadataTopic
from tests.doubles.memory_stores import MemoryMetadata
from tests.doubles.plain_evaluator import PlainEvaluator
from tests.doubles.publication_world import PublicationWorld
from tests.doubles.quotas import NoQuotas
from tests.doubles.stored_log import copied_partition
from tests.doubles.tiered_topic import records_about

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
    copying = SimpleNamespace(plan=lambda run_id, topics: CopyPlan(run_id, (), (held,), ()))
    done = actions_with(copying=copying).copy_round("orders", "run")
    assert done.worth_retrying == (reason in PASSES_BY_ITSELF)
    assert done.held_back == (f"{ORDERS}, offset 7: {reason}: in words",)


@pytest.mark.parametrize(
    ("verdicts", "end_offset", "said"),
    [
        (
            {1: Verdict.EXPIRED},
            420,
            "would end at 199: nothing from offset 200 on can be published, .* has the verdict expired",
        ),
        ({}, 299, "would end at 420"),
    ],
)
def test_either_all_that_was_decided_is_published_and_no_more_or_nothing(
    tmp_path: Path, verdicts: dict[int, Verdict], end_offset: int, said: str
) -> None:
    engine = open_engine(f"sqlite:///{tmp_path / 'tiering.db'}")
    upgrade(engine)
    world, topic = PublicationWorld(engine), MemoryMetadataTopic()
    world.copied(ORDERS, verdicts=verdicts)
    ownership = SimpleNamespace(require=lambda: None)
    actions = actions_with(ownership=ownership, publisher=world.publisher(topic, ManualClock()))
    with pytest.raises(PublicationRefusedError, match=f"{said}.*Nothing was sent"):
        actions.publish(SeededPartition(ORDERS, 100, end_offset, 100, 1, 0))
    assert records_about(topic, ORDERS) == []
    for segment in world.metadata.list_segments(ORDERS):
        world.metadata.record_verdict(segment.metadata.remote_log_segment_id, Verdict.PASSED)
    actions.publish(SeededPartition(ORDERS, 100, 420, 100, 1, 0))
    assert len(records_about(topic, ORDERS)) == 6
    engine.dispose()


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
