"""What a throw-away broker finds when it starts, and that it is gone afterwards; a script stands in for Java."""

import secrets
from pathlib import Path

import pytest

from include.tiering.broker_process.kafka_home import KafkaHome
from include.tiering.broker_process.sample import PartitionSample
from include.tiering.broker_process.throw_away import ThrowAwayBroker, prepare_broker
from include.tiering.clock import SystemClock
from include.tiering.errors import BrokerProcessError, PortTakenError, RehearsalError
from include.tiering.formats.checkpoints import parse_offset_checkpoint
from include.tiering.formats.cluster_metadata import PartitionRecord, TopicRecord, decode, record_values
from include.tiering.formats.record_batch import HEADER_SIZE, parse_header
from tests.doubles.broker_data import broker_data
from tests.doubles.stored_log import BROKER, sampled

FORMATS = """
if [ "$tool" = format ]; then
    mkdir data; echo version=1 > data/meta.properties; printf begin > data/bootstrap.checkpoint; exit 0
fi
"""
STARTS = "echo Kafka Server started, Initialized topic-based RLMM resources successfully >> server.log\n"
LOGS = 'echo "[10:00:00,000] ERROR no such thing (kafka.Log)" >> server.log; exec sleep 600\n'


def java_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *does: str) -> None:
    """A script in Java's place: `$tool` is `format` or empty, it runs in the broker's directory."""
    program = tmp_path / "java"
    knows_tool = 'tool=; for one in "$@"; do [ "$one" = format ] && tool=format; done\n'
    program.write_text("#!/bin/sh\n" + knows_tool + "".join(does))
    program.chmod(0o755)
    monkeypatch.setattr("include.tiering.broker_process.broker_process.java", lambda: str(program))


def prepared(tmp_path: Path, *samples: PartitionSample) -> ThrowAwayBroker:
    root = tmp_path / "root"
    root.mkdir()
    return prepare_broker(
        root,
        KafkaHome("4.3.1", "/jars/*"),
        samples,
        {sample.replica_id: broker_data("public") / BROKER for sample in samples},
        clock=SystemClock(),
        random_bytes=secrets.token_bytes,
        on_bytes=lambda _: None,
    )


@pytest.fixture
def sample() -> PartitionSample:
    return sampled(broker_data("public") / BROKER, "orders")


def test_the_topic_begins_at_the_leader_epoch_that_its_records_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sample: PartitionSample
) -> None:
    java_that(tmp_path, monkeypatch, FORMATS)
    log_dir = prepared(tmp_path, sample).process.log_dir
    bootstrap = (log_dir / "bootstrap.checkpoint").read_bytes()
    assert bootstrap.startswith(b"begin"), "what the release's own tool wrote stays"
    batch = memoryview(bootstrap.removeprefix(b"begin"))
    header = parse_header(batch)
    assert header.size_bytes == len(batch) > HEADER_SIZE
    partition = sample.replica_id.topic_id_partition
    assert [decode(value) for value in record_values(batch, header)] == [
        TopicRecord("orders", partition.topic_id),
        PartitionRecord(0, partition.topic_id, (1,), (1,), 1, sample.leader_epoch),
    ]
    assert sample.leader_epoch > 0


def test_rolled_segments_count_as_flushed_and_the_log_start_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sample: PartitionSample
) -> None:
    java_that(tmp_path, monkeypatch, FORMATS)
    log_dir = prepared(tmp_path, sample).process.log_dir
    points = parse_offset_checkpoint((log_dir / "recovery-point-offset-checkpoint").read_bytes())
    assert points == {("orders", 0): sample.active.base_offset}
    starts = parse_offset_checkpoint((log_dir / "log-start-offset-checkpoint").read_bytes())
    assert starts == {("orders", 0): sample.log_start_offset}
    assert (log_dir / "orders-0" / "partition.metadata").exists()


def test_a_release_that_begins_otherwise_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sample: PartitionSample
) -> None:
    java_that(tmp_path, monkeypatch, FORMATS.replace("bootstrap.checkpoint", "elsewhere"))
    with pytest.raises(RehearsalError, match=r"writes none of bootstrap\.checkpoint"):
        prepared(tmp_path, sample)


def test_a_tool_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sample: PartitionSample) -> None:
    java_that(tmp_path, monkeypatch, "echo no such class >&2; exit 1\n")
    with pytest.raises(BrokerProcessError, match="format of broker 1: no such class"):
        prepared(tmp_path, sample)


def test_it_runs_for_the_block_and_its_errors_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sample: PartitionSample
) -> None:
    java_that(tmp_path, monkeypatch, FORMATS, STARTS, LOGS)
    broker = prepared(tmp_path, sample)
    with broker.running():
        pid = broker.process.pid
        assert Path(f"/proc/{pid}").exists()
    assert not Path(f"/proc/{pid}").exists()
    with pytest.raises(BrokerProcessError, match=r"broker 1 does not run: it ended with .* \d+; its log is .*log"):
        _ = broker.process.pid
    assert broker.process.errors() == ["[10:00:00,000] ERROR no such thing (kafka.Log)"]


def test_a_broker_that_ends_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sample: PartitionSample) -> None:
    java_that(tmp_path, monkeypatch, FORMATS, "echo not enough memory; exit 1\n")
    broker = prepared(tmp_path, sample)
    with pytest.raises(BrokerProcessError, match="not enough memory"), broker.running():
        raise AssertionError("it started")


def test_another_port_is_tried_when_somebody_took_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sample: PartitionSample
) -> None:
    taken = 'echo x >> ../starts; echo "bind: Address already in use" >> server.log; exit 1\n'
    java_that(tmp_path, monkeypatch, FORMATS, taken)
    broker = prepared(tmp_path, sample)
    with pytest.raises(PortTakenError), broker.running():
        raise AssertionError("it started")
    assert (broker.root / "starts").read_text().split() == ["x"] * 3
    assert str(broker.process.port) in broker.process.configuration.read_text()
