"""The masters that work, and how a standalone cluster is divided."""

import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import Connection

from include.tiering.configs.pools import COPIER_POOL, EXPIRATION_POOL, READER_POOL
from include.tiering.configs.spark_cluster import Application, SparkCluster
from include.tiering.errors import SettingError
from plugins.tiering_airflow import spark_cluster
from plugins.tiering_airflow.spark import SparkJobOperator, job_conf
from plugins.tiering_airflow.spark_cluster import Master, cluster_conf, cluster_remarks, memory_remarks, share_remarks

MASTER = Master("spark://master:7077", "http://master:8080")


def _connection(host: str | None, port: int | None = None, extra: Mapping[str, str] | None = None) -> Connection:
    return Connection(conn_id="tiering_spark", conn_type="spark", host=host, port=port, extra=json.dumps(extra or {}))


def test_masters_that_work() -> None:
    assert Master.of(_connection("local[1]")) == Master("local[1]", None)
    assert Master.of(_connection("spark://master", 7077)) == MASTER
    assert Master.of(_connection("spark://a:7077,b:7077")).web_url == "http://a:8080,http://b:8080"
    assert Master.of(_connection("spark://a,b", 7077)).web_url == "http://a:8080,http://b:8080"
    proxied = {"web-url": "http://proxy/spark", "deploy-mode": "client"}
    assert Master.of(_connection("spark://master:7077", extra=proxied)).web_url == "http://proxy/spark"


@pytest.mark.parametrize(
    ("host", "extra", "why"),
    [
        ("yarn", {}, "YARN is no master"),
        ("k8s://https://cluster", {}, "a standalone master in pods is"),
        ("sc://connect", {}, "submitted by spark-submit"),
        ("spark://master", {"deploy-mode": "cluster"}, "remove deploy-mode"),
        ("mesos://master", {}, "mesos://master is no master"),
        ("spark://master:7077", {"web-url": "http://user:s3cret@master:8080"}, "have no login"),
        ("spark://master:7077", {"web-url": "http://master:8080/?x=s3cret"}, "no \\? or #"),
        ("spark://master:7077", {"web-url": "http://master:8080,http://b:8080/#s3cret"}, "no \\? or #"),
        ("spark://master:7077", {"web-url": "file:///etc"}, "must begin with http"),
        (None, {}, "nothing is no master"),
    ],
)
def test_other_masters_are_refused_with_what_works(host: str | None, extra: dict[str, str], why: str) -> None:
    with pytest.raises(SettingError, match=why) as refused:
        Master.of(_connection(host, extra=extra))
    assert "\n" not in str(refused.value)
    assert "s3cret" not in str(refused.value)
    assert any(way in str(refused.value) for way in ("remove deploy-mode", "spark://HOST", "http://"))


@pytest.mark.parametrize("host", ["yarn", "k8s://https://cluster"])
def test_a_job_for_another_master_fails_before_anything_is_started(monkeypatch, tmp_path, host: str) -> None:
    """The provider's hook for Kubernetes needs a package that is not there."""
    monkeypatch.setenv("AIRFLOW_CONN_TIERING_SPARK", json.dumps({"conn_type": "spark", "host": host}))
    operator = SparkJobOperator(task_id="copy", job="copying.py", arguments=[])
    with pytest.raises(SettingError, match="is no master for these jobs"):
        operator._hook_for(tmp_path)


SLOTS = {COPIER_POOL: 4, EXPIRATION_POOL: 2, READER_POOL: 2}


def test_a_batch_takes_one_core_and_what_reads_takes_the_part_of_its_slot() -> None:
    cluster = SparkCluster(12, ())
    for pool, cores in ((COPIER_POOL, "1"), (EXPIRATION_POOL, "1"), (READER_POOL, "3")):
        conf = cluster_conf(MASTER, "platform", pool, SLOTS, cluster)
        assert (conf["spark.cores.max"], conf["spark.executor.cores"]) == (cores, "1")
        assert conf["spark.dynamicAllocation.initialExecutors"] == "0"
        assert conf["spark.dynamicAllocation.maxExecutors"] == cores


def test_what_reads_may_ask_for_more_cores_up_to_the_share_of_its_pool() -> None:
    def cores(wanted: str, cluster: SparkCluster | None) -> str:
        return cluster_conf(MASTER, "platform", READER_POOL, SLOTS, cluster, wanted)["spark.cores.max"]

    assert [cores("5", SparkCluster(12, ())), cores("50", SparkCluster(12, ())), cores("5", None)] == ["5", "6", "5"]
    assert cluster_conf(MASTER, "platform", COPIER_POOL, SLOTS, None, "5")["spark.cores.max"] == "1"
    assert cluster_conf(MASTER, "platform", READER_POOL, {**SLOTS, READER_POOL: 0}, None)["spark.cores.max"] == "1"


def test_what_is_configured_replaces_defaults_and_no_rule(tmp_path: Any) -> None:
    share = cluster_conf(MASTER, "platform", COPIER_POOL, SLOTS, None)
    configured = {"spark.executor.memory": "2g", "spark.ui.enabled": "true", "spark.task.maxFailures": "9"}
    conf = job_conf(MASTER.url, tmp_path, None, configured={**configured, "spark.cores.max": "9"}, share=share)
    assert (conf["spark.executor.memory"], conf["spark.ui.enabled"]) == ("2g", "true")
    assert (conf["spark.task.maxFailures"], conf["spark.cores.max"]) == ("1", "1")
    assert job_conf(MASTER.url, tmp_path, None)["spark.executor.memory"] == "512m"
    assert job_conf("local[1]", tmp_path, None, configured={"spark.log.level": "INFO"})["spark.log.level"] == "INFO"


def test_pools_that_fit_into_the_cluster_need_no_remark() -> None:
    assert share_remarks(SLOTS, SparkCluster(8, ())) == []
    (line,) = share_remarks(SLOTS, SparkCluster(8, (Application("app-1", None, 2),)))
    assert "more slots (remote_log_copier 4, remote_log_expiration 2, remote_log_reader 2) than" in line
    assert "cores for them (6), so that at once they use 3, 2, 1, and other jobs wait" in line
    (line,) = share_remarks({**SLOTS, COPIER_POOL: -1}, SparkCluster(2, ()))
    assert "remote_log_copier without a limit" in line
    assert "fewer than pools, so that they wait for each other: start workers" in line


@pytest.mark.parametrize(
    ("memory", "fits"), [("900m", True), ("901m", False), ("1G", False), ("901", False), ("?", True)]
)
def test_executors_that_fit_on_no_worker_are_remarked(memory: str, fits: bool) -> None:
    remarks = memory_remarks({"tiering_copy": memory, "tiering_audit": "512m"}, SparkCluster(4, (), 900))
    assert [remark.split(",")[0] for remark in remarks] == (
        [] if fits else [f"spark.executor.memory of tiering_copy is {memory}"]
    )
    assert memory_remarks({"tiering_copy": memory}, SparkCluster(0, ())) == []


def _app() -> Any:
    seen = {name: SimpleNamespace(slots=slots) for name, slots in SLOTS.items()}
    return SimpleNamespace(
        adapters=SimpleNamespace(
            cluster_id="platform",
            stores=SimpleNamespace(
                pool_mirror=SimpleNamespace(seen=lambda: seen),
                configs=SimpleNamespace(of_entity=lambda _: {"tiering.spark.conf.spark.executor.memory": "9g"}),
            ),
        )
    )


def test_ready_says_what_is_known_of_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_TIERING_SPARK", raising=False)
    assert "Airflow has no connection tiering_spark" in cluster_remarks(_app())[0]
    monkeypatch.setenv("AIRFLOW_CONN_TIERING_SPARK", json.dumps({"conn_type": "spark", "host": "local[1]"}))
    assert cluster_remarks(_app()) == []
    cluster = {
        "conn_type": "spark",
        "host": "spark://127.0.0.1",
        "port": 7077,
        "extra": {"web-url": "http://127.0.0.1:1"},
    }
    monkeypatch.setenv("AIRFLOW_CONN_TIERING_SPARK", json.dumps(cluster))
    assert "gives is not known" in cluster_remarks(_app())[0]
    monkeypatch.setattr(spark_cluster, "read_cluster", lambda *_: SparkCluster(4, ()))
    assert "cores for them (4)" in cluster_remarks(_app())[0]
    monkeypatch.setattr(spark_cluster, "read_cluster", lambda *_: SparkCluster(9, (), 4096))
    assert len(cluster_remarks(_app())) == 5, "each DAG with Spark jobs"
    monkeypatch.setenv("AIRFLOW_CONN_TIERING_SPARK", json.dumps({"conn_type": "spark", "host": "yarn"}))
    with pytest.raises(SettingError, match="YARN"):
        cluster_remarks(_app())
