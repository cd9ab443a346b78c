"""A limited retention.bytes, producers that go on, and a broker that starts again after every step of a handover.

Kafka 4.3.1 counts bytes that are both local and remote twice for a moment after each start. The second test shows that
records are lost where the order of the handover is not kept.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaException

from include.tiering.app import App
from include.tiering.handover.contract import Handover, LocalRetention
from include.tiering.handover.rules import STEPS, HandoverState, HandoverStep
from include.tiering.model.segments import Uuid
from tests.doubles.broker_deployment import broker_deployment
from tests.doubles.kafka_lab.cluster import KafkaCluster
from tests.doubles.kafka_lab.consume import both_digests
from tests.doubles.kafka_lab.produce import Writer
from tests.doubles.seeded_topics import seed

PARTITIONS = tuple(range(20))
BEFORE, BEFORE_BYTES = 190, 3_800
MEANWHILE, MEANWHILE_BYTES = 100, 1_500  # At most so many; a record has half as many bytes more at most.
PAUSE_SECONDS, STEP_SECONDS = 2.0, 300
RESTARTS = 8
KEPT_BYTES = 200_000


@pytest.mark.timeout(3_000)
def test_a_restart_after_each_step_loses_nothing(cluster: KafkaCluster, tmp_path: Path) -> None:
    deployment = broker_deployment(cluster, tmp_path / "platform")
    topic = "limited"
    limit = _limited_topic(cluster, topic)
    with deployment.library() as app, _producing(cluster, topic) as produced:
        begun = app.handover.begin(topic, LocalRetention(None, 1), author="lab").handover_id
        for step in STEPS:
            done = _carried_beyond(cluster, app, begun, step)
            held = cluster.topic_config(topic)["retention.bytes"]
            cluster.restart()
            lost = _lost(cluster, topic)
            assert not lost, f"after {step}, with retention.bytes {held}: log starts {lost}"
        assert done.state is HandoverState.DONE
    assert cluster.topic_config(topic)["retention.bytes"] == str(limit)
    assert not _lost(cluster, topic)
    records = {partition: both_digests(cluster.bootstrap, topic, partition)[0].records for partition in PARTITIONS}
    assert set(records.values()) == {BEFORE + len(produced)}, records


@pytest.mark.timeout(3_000)
def test_switched_by_hand_in_another_order_it_loses_records(cluster: KafkaCluster, tmp_path: Path) -> None:
    """The same topic and the same restarts; retention.bytes is in force while all local segments are there."""
    deployment = broker_deployment(cluster, tmp_path / "platform")
    topic = "by-hand"
    _limited_topic(cluster, topic)
    seed(deployment, topic, at_least=len(PARTITIONS))
    with _producing(cluster, topic):
        cluster.alter_topic(topic, remote_storage_enable="true")
        for _ in range(RESTARTS):
            if _lost(cluster, topic):
                return
            cluster.restart()
    assert _lost(cluster, topic), "nothing was lost: the first test proves nothing"


@pytest.mark.timeout(1_500)
def test_where_brokers_keep_too_many_segments_a_lower_local_retention_ends_it(
    cluster: KafkaCluster, tmp_path: Path
) -> None:
    """Nobody produces any more, so that no broker deletes another local segment: waiting would have no end."""
    deployment = broker_deployment(cluster, tmp_path / "platform")
    deployment.config.write_text(f"tiering.handover.settle.seconds = 20\n{deployment.config.read_text()}")
    topic = "kept"
    largest = _filled_topic(cluster, topic)
    cluster.alter_topic(topic, retention_bytes=str(largest * 2))
    with deployment.library() as app:
        begun = app.handover.begin(topic, LocalRetention(None, KEPT_BYTES), author="lab").handover_id
        _carried_beyond(cluster, app, begun, HandoverStep.RETENTION)
        limit = largest + KEPT_BYTES // 2
        cluster.alter_topic(topic, retention_bytes=str(limit))
        stopped = app.handover.carry_on(begun)
        assert (stopped.state, stopped.step) == (HandoverState.STOPPED, HandoverStep.LOCAL_RETENTION), stopped.detail
        assert f"brokers delete no more of them with local.retention.bytes {KEPT_BYTES}" in stopped.detail
        assert cluster.topic_config(topic)["retention.bytes"] == "-1"
        cluster.restart()
        assert not _lost(cluster, topic)
        # The broker rolls the active segment, too, and deletes all that is remote.
        cluster.alter_topic(topic, local_retention_bytes="0")
        done = app.handover.carry_on(begun, resume=True)
        assert done.state is HandoverState.DONE, done.detail
    assert cluster.topic_config(topic)["retention.bytes"] == str(limit)
    cluster.restart()
    assert not _lost(cluster, topic)
    records = {partition: both_digests(cluster.bootstrap, topic, partition)[0].records for partition in PARTITIONS}
    assert set(records.values()) == {BEFORE}, records


def _limited_topic(cluster: KafkaCluster, topic: str) -> int:
    """It stays within retention.bytes whatever comes; a broker that counts twice is above it."""
    limit = (_filled_topic(cluster, topic) + MEANWHILE * (MEANWHILE_BYTES * 3 // 2 + 200)) * 100 // 95
    cluster.alter_topic(topic, retention_bytes=str(limit))
    return limit


def _filled_topic(cluster: KafkaCluster, topic: str) -> int:
    """Twenty partitions with records; the bytes of the largest."""
    cluster.create_topic(topic, partitions=len(PARTITIONS))
    Writer(cluster.bootstrap).send(topic, PARTITIONS, BEFORE, value_bytes=BEFORE_BYTES)
    directories = [cluster.partition_dir(topic, partition) for partition in PARTITIONS]
    return max(sum(path.stat().st_size for path in directory.glob("*.log")) for directory in directories)


@contextmanager
def _producing(cluster: KafkaCluster, topic: str) -> Iterator[list[int]]:
    """A producer that goes on until the block ends: the rounds of one record to each partition that were written."""
    stop, rounds, failures = threading.Event(), list[int](), list[Exception]()

    def write() -> None:
        writer = Writer(cluster.bootstrap, seed=1)
        try:
            while len(rounds) < MEANWHILE and not stop.wait(PAUSE_SECONDS):
                writer.send(topic, PARTITIONS, 1, value_bytes=MEANWHILE_BYTES)
                rounds.append(writer.sent)
        except (AssertionError, KafkaException) as error:
            failures.append(error)

    thread = threading.Thread(target=write, name="producer")
    thread.start()
    try:
        yield rounds
    finally:
        stop.set()
        thread.join()
    assert not failures, failures


def _carried_beyond(cluster: KafkaCluster, app: App, handover_id: Uuid, step: HandoverStep) -> Handover:
    """Run this step until it is done: it may wait for brokers that have just started, or for producers."""
    deadline = time.monotonic() + STEP_SECONDS
    while time.monotonic() < deadline:
        assert cluster.broker.pid, "this says how it ended"
        found = app.handover.carry_on(handover_id, until=step)
        if found.step is HandoverStep.APPROVAL and found.plan_hash and found.approval is None:
            app.handover.approve(handover_id, found.plan_hash, author="lab")
            continue
        assert found.state in (HandoverState.ACTIVE, HandoverState.DONE), found.detail
        if found.state is HandoverState.DONE or STEPS.index(found.step) > STEPS.index(step):
            return found
        time.sleep(0.5)
    raise AssertionError(f"{step} is not done: {found.detail}")


def _lost(cluster: KafkaCluster, topic: str) -> dict[int, int]:
    """The log starts of the partitions that lost records: everything is within retention."""
    starts = {partition: cluster.earliest(topic, partition) for partition in PARTITIONS}
    return {partition: start for partition, start in starts.items() if start > 0}
