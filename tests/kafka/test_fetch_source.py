"""What is fetched from real brokers, and what is rebuilt of it, is what lies on their disks."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition

from include.tiering.clock import SystemClock
from include.tiering.formats.checkpoints import parse_leader_epochs
from include.tiering.formats.indexes import parse_offset_index, parse_producer_snapshot
from include.tiering.kafka.cluster.cluster_metadata import AdminClusterMetadata, UnknownClusterMetadata
from include.tiering.kafka.fetch_api.leader_logs import KafkaLeaderLogs
from include.tiering.kafka.fetch_api.source import FetchLimits, FetchSource
from include.tiering.kafka.fetch_api.spool import Spool
from include.tiering.kafka.log_dirs.contract import LogSegment
from include.tiering.kafka.protocol.login import BrokerLogin
from tests.doubles.index_look_ups import Indexes, SegmentLookUps
from tests.doubles.kafka_lab.brokers_world import open_brokers
from tests.doubles.kafka_lab.cluster import WAIT_SECONDS, KafkaCluster, client_configuration, kafka_cluster
from tests.doubles.kafka_lab.produce import Writer, mixed_records
from tests.doubles.kafka_lab.requests import require_kafka
from tests.doubles.leader_logs import MemoryRanges, headers_of

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
        assert_leads_alike(segment, bytes(log), Indexes(data.offset_index, data.time_index), stem)
        transactions = stem.with_suffix(".txnindex")
        assert (data.transaction_index or b"") == (transactions.read_bytes() if transactions.exists() else b"")
        snapshot = directory / f"{segment.end_offset + 1:020}.snapshot"
        assert set(parse_producer_snapshot(data.producer_snapshot)) == set(
            parse_producer_snapshot(snapshot.read_bytes())
        )
        epochs = parse_leader_epochs((directory / "leader-epoch-checkpoint").read_bytes())
        assert parse_leader_epochs(data.leader_epoch) == epochs.range(-1, segment.end_offset + 1)
    assert len(epochs) >= 2


def test_what_is_left_of_a_trimmed_log_has_the_brokers_bytes(cluster: KafkaCluster, source: FetchSource) -> None:
    """Its first records are deleted within a segment, and it has records from none to 5 MiB, of three leader epochs.

    So ranges end elsewhere than the broker's segments.
    """
    config = {"segment.bytes": str(6 << 20), "max.message.bytes": str(6 << 20)}
    cluster.create_topic(TOPIC, segment_bytes=None, config=config)
    for seed in range(3):
        mixed_records(cluster.bootstrap, TOPIC, [0], count=200, seed=seed)
        _send_values(cluster, [b"", None, bytes(5 << 20), b"x"])
        cluster.restart()
    mixed_records(cluster.bootstrap, TOPIC, [0], count=200, seed=3)
    start = TopicPartition(TOPIC, 0, 77)
    cluster.admin.delete_records([start], request_timeout=WAIT_SECONDS)[start].result(WAIT_SECONDS)
    assert source.find_segments(topics=[TOPIC], copied_to=lambda _: None, go_on=lambda _: None) == []
    (replica,) = (found for found in source.scan().replicas if found.topic_id_partition.topic == TOPIC)
    closed = [segment for segment in replica.segments if not segment.active]
    fetched = b""
    for segment in closed:
        assert segment.eligible
        with source.open_segment(replica.replica_id, segment.base_offset) as opened:
            data = opened.check().data
            log = bytearray(data.log.size_bytes)
            data.log.read_into(0, memoryview(log))
            opened.recheck()
        fetched += bytes(log)
        batches = headers_of(bytes(log))
        offsets = parse_offset_index(data.offset_index, base_offset=segment.base_offset)
        assert set(offsets.positions.tolist()) <= {position for position, _ in batches}
    theirs = b"".join(log.read_bytes() for log in sorted(cluster.partition_dir(TOPIC, 0).glob("*.log")))
    (begins_at,) = (position for position, header in headers_of(theirs) if header.base_offset == closed[0].base_offset)
    assert closed[0].base_offset <= 77 <= closed[0].end_offset
    assert theirs[begins_at:].startswith(fetched)
    assert max(segment.size_bytes for segment in closed) > 5 << 20
    assert len({entry.epoch for segment in closed for entry in segment.leader_epochs}) >= 3  # A restart takes two.


def _send_values(cluster: KafkaCluster, values: Sequence[bytes | None]) -> None:
    """One record, and one batch, for each value."""
    producer = Producer({**client_configuration(cluster.bootstrap), "message.max.bytes": 8 << 20, "acks": "all"})
    refused: list[str] = []
    for value in values:
        producer.produce(TOPIC, value, partition=0, on_delivery=lambda error, _: refused.append(str(error or "")))
        assert producer.flush(WAIT_SECONDS) == 0
    assert not any(refused), refused


def assert_leads_alike(segment: LogSegment, log: bytes, ours: Indexes, stem: Path) -> None:
    """The same entries, but for a segment that a restart is in, where a broker counts from 0 again; the same records.

    Every offset and every timestamp is looked up.
    """
    base = segment.base_offset
    theirs = Indexes(stem.with_suffix(".index").read_bytes(), stem.with_suffix(".timeindex").read_bytes())
    assert abs(len(ours.offsets(base)) - len(theirs.offsets(base))) <= len(segment.leader_epochs)
    assert ours.times(base)[-1] == theirs.times(base)[-1]
    if len(segment.leader_epochs) == 1:
        assert ours == theirs
    assert list(SegmentLookUps(base, log).differences(ours, theirs)) == []
