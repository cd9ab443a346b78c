"""`kafka-tiered` on executors of a standalone cluster: the library comes by --py-files, settings from a file."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

from plugins.tiering_airflow.spark_files import packed_library
from tests.doubles.spark import NO_JAVA, ROOT, submit_environment
from tests.doubles.standalone_spark import spark_cluster
from tests.doubles.whole_logs import last_stable_offset, oracle_of, public_logs

pytestmark = NO_JAVA
_SECONDS = 300


def test_records_of_a_topic(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    (tmp_path / "logs").mkdir()
    with public_logs(tmp_path / "logs") as logs, spark_cluster(tmp_path / "cluster", workers=1, cores=2) as cluster:
        partition = logs.partition("payments.v1-eu")
        command = [
            *(str(Path(sys.executable).parent / "spark-submit"), "--master", cluster.url),
            *("--driver-memory", "512m", "--executor-memory", "512m", "--conf", "spark.log.level=ERROR"),
            *("--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1"),
            *("--py-files", str(packed_library(ROOT, ("include", "spark_jobs"), scratch))),
            *(str(ROOT / "tests/doubles/read_kafka_tiered.py"), str(logs.config), partition.topic),
        ]
        environment = submit_environment(scratch, SPARK_CONF_DIR=str(cluster.conf_dir), SPARK_LOCAL_IP="127.0.0.1")
        done = subprocess.run(
            command, env=environment, cwd=scratch, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
        oracle = oracle_of(logs.logs[partition])
    found = json.loads(done.stdout.splitlines()[-1])
    stable = last_stable_offset(oracle, oracle[-1].record.offset + 1)
    assert found["rows"] == [
        [0, each.record.offset, None if each.record.value is None else hashlib.sha256(each.record.value).hexdigest()]
        for each in oracle
        if each.record.offset < stable and not each.is_control and not each.is_aborted
    ]
    assert found["tasks"] >= 4
    assert "kafka-tiered: reads 7 segments of 1 partition" in done.stderr
