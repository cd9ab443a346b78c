"""The whole handover through Airflow's DAG, a real scheduler and a real broker, while producers go on.

From the broker's log dir, and by a platform that has nothing but bootstrap servers and the store.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from include.tiering.handover.rules import HandoverState
from local.runs import errors_of, trigger, wait_for_dag, wait_for_run
from tests.doubles.airflow_home import WAIT_SECONDS, RunningPlatform, platform_with
from tests.doubles.broker_deployment import BrokerDeployment, broker_deployment
from tests.doubles.kafka_lab.cluster import kafka_cluster
from tests.doubles.kafka_lab.consume import both_digests
from tests.doubles.kafka_lab.produce import Writer, mixed_records, running_producers
from tests.doubles.kafka_lab.requests import require_kafka

HANDOVER: Final = "tiering_handover"
OTHERS: Final = ("tiering_audit", "tiering_expiration", "tiering_ingest", "tiering_quality", "tiering_remote_log_sizes")
TOPIC, PARTITIONS = "orders", (0, 1)


@pytest.fixture(params=[False, True], ids=["log-dirs", "leaders"])
def deployment(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerDeployment]:
    require_kafka()
    directory, reads_leaders = tmp_path_factory.mktemp("kafka"), request.param
    rolled_at = {"segment.bytes": str(1 << 20)} if reads_leaders else {}
    with kafka_cluster(directory / "kafka", remote_dir=directory / "remote") as cluster:
        segment_bytes = None if reads_leaders else 65_536
        cluster.create_topic(TOPIC, partitions=len(PARTITIONS), segment_bytes=segment_bytes, config=rolled_at)
        for round_ in range(2):
            mixed_records(cluster.bootstrap, TOPIC, PARTITIONS, seed=round_)
            if reads_leaders:
                Writer(cluster.bootstrap, seed=round_).send(TOPIC, PARTITIONS, 440, value_bytes=5_000)
            cluster.restart()
        yield broker_deployment(cluster, directory / "platform", reads_leaders=reads_leaders)


@pytest.fixture
def running(deployment: BrokerDeployment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPlatform]:
    with platform_with(tmp_path_factory.mktemp("airflow"), deployment.config.read_text()) as started:
        wait_for_dag(started.api, HANDOVER, seconds=WAIT_SECONDS)
        for other in OTHERS:
            started.api.patch(f"/dags/{other}", {"is_paused": True})
        yield started


@pytest.mark.timeout(1_800)
def test_handed_over_by_the_dag(deployment: BrokerDeployment, running: RunningPlatform) -> None:
    cluster, api = deployment.cluster, running.api
    with running_producers(cluster.bootstrap, TOPIC, PARTITIONS, pause_seconds=0.5):
        run_id = trigger(api, HANDOVER, {"topic": TOPIC, "local_retention_bytes": 1})
        _wait_until(lambda: _may_answer(running, run_id), "nobody was asked")
        ends = {partition: cluster.last_stable(TOPIC, partition) for partition in PARTITIONS}
        before = {p: both_digests(cluster.bootstrap, TOPIC, p, end=end) for p, end in ends.items()}
        question = f"/dags/{HANDOVER}/dagRuns/{run_id}/taskInstances/approval/-1/hitlDetails"
        api.patch(question, {"chosen_options": ["Approve"], "params_input": {}})
        ended = wait_for_run(api, HANDOVER, run_id, seconds=WAIT_SECONDS, on_change=print)
        assert ended.state == "success", list(errors_of(running.layout.airflow_home / "logs", ended))
    with deployment.library() as app:
        handed_over = app.handover.latest_of(TOPIC)
        assert handed_over is not None
        assert handed_over.state is HandoverState.DONE

    history = (cluster.partition_dir(TOPIC, 0) / "leader-epoch-checkpoint").read_text().splitlines()
    assert len(history[2:]) >= 3
    assert {p: both_digests(cluster.bootstrap, TOPIC, p, end=end) for p, end in ends.items()} == before
    for partition in PARTITIONS:
        assert cluster.earliest(TOPIC, partition) == 0
        assert cluster.local_segments(TOPIC, partition)[0] > 0
        bases = [base for base, _ in cluster.remote_segments(TOPIC, partition)]
        assert len(set(bases)) == len(bases)
    assert cluster.errors() == []


def _may_answer(running: RunningPlatform, run_id: str) -> bool:
    states = {one["task_id"]: one["state"] for one in _tasks(running, run_id)}
    failed = sorted(task_id for task_id, state in states.items() if state == "failed")
    assert not failed, failed
    return running.may_answer(run_id)


def _tasks(running: RunningPlatform, run_id: str) -> list[dict[str, Any]]:
    return list(running.api.get(f"/dags/{HANDOVER}/dagRuns/{run_id}/taskInstances")["task_instances"])


def _wait_until(holds: Callable[[], bool], complaint: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < deadline, complaint
        time.sleep(0.5)
