"""What stands before a hand-over: who drives, and whose name published records carry."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from include.tiering.errors import LeaseLostError, SettingError
from include.tiering.handover.contract import LocalRetention
from include.tiering.kafka.cluster.contract import BrokerNode
from include.tiering.settings.connections import DEFAULT_PUBLISHER_ID
from tests.doubles.handover_app import WorldApp
from tests.doubles.handover_world import HANDOVER_ID, TOPIC, HandoverWorld, handover_world


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
    with pytest.raises(LeaseLostError, match="drives hand-over"):
        WorldApp(world).handover.carry_on(HANDOVER_ID)
