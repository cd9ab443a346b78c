"""Fixtures that modules on real brokers share; a module that needs another cluster defines its own `cluster`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doubles.kafka_lab.cluster import KafkaCluster, kafka_cluster
from tests.doubles.kafka_lab.requests import require_kafka


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[KafkaCluster]:
    """One broker of Kafka 4.3.1, which counts bytes that are both local and remote twice after each start."""
    require_kafka()
    with kafka_cluster(tmp_path / "kafka", version="4.3.1", remote_dir=tmp_path / "remote") as started:
        yield started
