"""A client quota of a real broker, below what a segment needs within a minute: copies from leaders take longer."""

from pathlib import Path
from time import monotonic
from typing import Final

import pytest

from include.tiering.copying.metrics import LEADER_THROTTLED_SECONDS
from tests.doubles.broker_deployment import BrokerDeployment, broker_deployment
from tests.doubles.kafka_lab.cluster import kafka_cluster
from tests.doubles.kafka_lab.java_programs import run_program
from tests.doubles.kafka_lab.produce import Writer
from tests.doubles.kafka_lab.requests import require_kafka

pytestmark = pytest.mark.kafka

TOPIC: Final = "throttled"
SEGMENT_BYTES: Final = 1 << 20
QUOTA: Final = 30_000
"""In bytes a second. The broker sends at most ten seconds of it at once."""


@pytest.mark.timeout(900)
def test_a_copy_under_a_client_quota_takes_its_time(tmp_path: Path) -> None:
    """All bytes are read twice, the newest once: by the plan."""
    require_kafka()
    with kafka_cluster(tmp_path / "kafka", remote_dir=tmp_path / "remote") as cluster:
        cluster.create_topic(TOPIC, segment_bytes=None, config={"segment.bytes": str(SEGMENT_BYTES)})
        Writer(cluster.bootstrap).send(TOPIC, [0], 250, value_bytes=5_000)
        run_program("ClientQuota", cluster.bootstrap, str(QUOTA))
        deployment = broker_deployment(cluster, tmp_path / "platform", topics=[TOPIC], reads_leaders=True)
        began = monotonic()
        copied = deployment.document("copy")
        seconds = monotonic() - began
        assert copied["failed"] == []
        (segment,) = copied["copied"]
        (stored,) = cluster.stored.glob(f"{TOPIC}-0-*/*.log")
        (theirs, _) = sorted(cluster.partition_dir(TOPIC, 0).glob("*.log"))
        assert stored.read_bytes() == theirs.read_bytes()
        # What is sent in the first window is not throttled.
        assert seconds > 2 * segment["bytes"] / QUOTA - 11
        assert throttled_seconds(deployment) > seconds / 2
        assert cluster.errors() == []


def throttled_seconds(deployment: BrokerDeployment) -> float:
    with deployment.library() as app:
        (found,) = (each for each in app.operations.monitoring.values() if each.metric == LEADER_THROTTLED_SECONDS)
    return dict(found.values)[TOPIC,]
