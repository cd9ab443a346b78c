"""What is fetched from real brokers, and what is rebuilt of it, is what lies on their disks."""

from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from include.tiering.clock import SystemClock
from include.tiering.formats.checkpoints import parse_leader_epochs
from include.tiering.formats.indexes import parse_offset_index, parse_producer_snapshot, parse_time_index
from include.tiering.kafka.cluster.cluster_metadata import AdminClusterMetadata, UnknownClusterMetadata
from include.tiering.kafka.fetch_api.leader_logs import KafkaLeaderLogs
from include.tiering.kafka.fetch_api.source import FetchLimits, FetchSource
from include.tiering.kafka.fetch_api.spool import Spool
from include.tiering.kafka.log_dirs.contract import LogSegment
from include.tiering.kafka.protocol.login import BrokerLogin
from tests.doubles.kafka_lab.brokers_world import open_brokers
from tests.doubles.kafka_lab.cluster import KafkaCluster, client_configuration, kafka_cluster
from tests.doubles.kafka_lab.produce import Writer, mixed_records
from tests.doubles.kafka_lab.requests import require_kafka
from tests.doubles.leader_logs import MemoryRanges

pytestmark = pytest.mark.kafka

SEGMENT_BYTES = 1 << 20
TOPIC = "fetched"


@pytest.fixture(params=["3.9.2", "4.3.1", "4.4.0"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KafkaCluster]:
    require_kafka(request.param)
    with kafka_cluster(tmp_path / "kafka", version=request.param, remote_dir=tmp_path / "remote") as started:
        yield started


@pytest.fixture
def source(cluster: KafkaCluster, tmp_path: Path) -> Iterator[FetchSource]:
    config, clock = client_configuration(cluster.bootstrap), SystemClock()
    with (
        open_brokers(config) as brokers,
        closing(KafkaLeaderLogs(BrokerLogin.from_config(config), clock, 1 << 30)) as logs,
    ):
        yield FetchSource(
            brokers,
            AdminClusterMetadata(brokers, UnknownClusterMetadata()),
            logs,
            MemoryRanges(),
            Spool(tmp_path, 64 << 20, clock),
            limits=FetchLimits(find_bytes=1 << 30, settle_ms=0),
        )


def test_every_closed_range_is_a_segment_of_the_broker(cluster: KafkaCluster, source: FetchSource) -> None:
    cluster.create_topic(TOPIC, segment_bytes=None, config={"segment.bytes": str(SEGMENT_BYTES)})
    mixed_records(cluster.bootstrap, TOPIC, [0], count=500)
    cluster.restart()
    mixed_records(cluster.bootstrap, TOPIC, [0], count=500, seed=1)
    Writer(cluster.bootstrap, "zstd").send(TOPIC, [0], 5, value_bytes=600_000)
    assert source.find_segments(topics=[TOPIC], copied_to=lambda _: None, go_on=lambda _: None) == []
    (replica,) = (found for found in source.scan().replicas if found.topic_id_partition.topic == TOPIC)
    directory = cluster.partition_dir(TOPIC, 0)
    logs = sorted(directory.glob("*.log"))
    theirs = [(int(log.stem), int(after.stem) - 1) for log, after in pairwise(logs)]
    closed = [segment for segment in replica.segments if not segment.active]
    assert [(segment.base_offset, segment.end_offset) for segment in closed] == theirs
    assert len(theirs) >= 3
    assert all(segment.eligible for segment in closed)
    for segment in closed:
        with source.open_segment(replica.replica_id, segment.base_offset) as opened:
            data = opened.check().data
            log = bytearray(data.log.size_bytes)
            data.log.read_into(0, memoryview(log))
            opened.recheck()
        stem = directory / f"{segment.base_offset:020}"
        assert log == stem.with_suffix(".log").read_bytes()
        assert_leads_alike(segment, data.offset_index, data.time_index, stem)
        transactions = stem.with_suffix(".txnindex")
        assert (data.transaction_index or b"") == (transactions.read_bytes() if transactions.exists() else b"")
        snapshot = directory / f"{segment.end_offset + 1:020}.snapshot"
        assert set(parse_producer_snapshot(data.producer_snapshot)) == set(
            parse_producer_snapshot(snapshot.read_bytes())
        )
        epochs = parse_leader_epochs((directory / "leader-epoch-checkpoint").read_bytes())
        assert parse_leader_epochs(data.leader_epoch) == epochs.range(-1, segment.end_offset + 1)
    assert len(epochs) >= 2


def assert_leads_alike(segment: LogSegment, offset_index: bytes, time_index: bytes, stem: Path) -> None:
    """The same entries, but for a segment that a restart is in: there a broker begins to count anew."""
    base = segment.base_offset
    ours = parse_offset_index(offset_index, base_offset=base)
    theirs = parse_offset_index(stem.with_suffix(".index").read_bytes(), base_offset=base)
    assert abs(len(ours) - len(theirs)) <= len(segment.leader_epochs)
    our_times = parse_time_index(time_index, base_offset=base)
    their_times = parse_time_index(stem.with_suffix(".timeindex").read_bytes(), base_offset=base)
    assert our_times.largest_timestamp_ms == their_times.largest_timestamp_ms
    if len(segment.leader_epochs) == 1:
        assert offset_index == stem.with_suffix(".index").read_bytes()
        assert time_index == stem.with_suffix(".timeindex").read_bytes()
