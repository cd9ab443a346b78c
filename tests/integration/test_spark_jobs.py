"""The jobs on a real Spark: sizes against a plain recount, a batch through spark-submit, death of the submitter."""

import json
import os
import secrets
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowTaskTimeout
from airflow.sdk.execution_time.timeout import timeout
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from include.tiering.app import open_app
from include.tiering.cli.exit_codes import ExitCode
from include.tiering.model.sizes import PartitionSize
from include.tiering.runs.contract import SegmentOutcome
from include.tiering.segments.sql import SqlRemoteLogMetadata
from include.tiering.verification.quality_run import read_results
from include.tiering.verification.suites import SIZE_RULES
from plugins.tiering_airflow.spark import SparkJobOperator, job_conf
from spark_jobs import sizes
from spark_jobs.batch import attempt, run_once
from spark_jobs.copying import batch_task
from spark_jobs.sizes import parse_arguments, recount
from spark_jobs.sizes_rows import read_segments
from spark_jobs.task_settings import TaskSettings
from tests.doubles.aiven_files import write_segment
from tests.doubles.archive import RUN_ID, planned_run, settings_of
from tests.doubles.patience import eventually
from tests.doubles.s3_server import (
    ACCESS_KEY,
    SECRET_KEY,
    raw_client,
    versitygw_or_skip,
)
from tests.doubles.spark import NO_JAVA, ROOT, fastest_start, submit_command, submit_environment
from tests.doubles.stored_log import some_uuid

pytestmark = NO_JAVA


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return planned_run(tmp_path)


def test_a_batch_copies_its_run_through_spark_submit(tmp_path: Path, config: Path) -> None:
    done = subprocess.run(
        submit_command("copying.py", ["--run-id", RUN_ID, "--batch-id", "0.1"], tmp_path),
        env=submit_environment(tmp_path, TIERING_CONFIG=str(config)),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout.splitlines()[-1])
    with open_app(settings_of(config)) as app:
        items = app.adapters.stores.work.items(RUN_ID)
        assert outcome["copied"] == len(items) > 0
        assert {item.outcome for item in items} == {SegmentOutcome.COPIED}
        verified = app.verification.verify_run(RUN_ID)
        assert (verified.segments, verified.failed, verified.warnings) == (len(items), (), ())
        assert outcome["bytes"] == sum(size.size_bytes for size in app.sizes.partition_sizes())


def test_a_batch_copies_its_run_over_spark_connect(tmp_path: Path, config: Path) -> None:
    """SPARK_REMOTE=local[1] brings a Connect server up beside its client."""
    (tmp_path / "spark-defaults.conf").write_text(
        "spark.task.maxFailures 1\n"
        "spark.log.level WARN\n"
        "spark.ui.enabled false\n"
        "spark.driver.memory 512m\n"
        "spark.driver.host 127.0.0.1\n"
        "spark.connect.grpc.binding.address 127.0.0.1\n"
        f"spark.driver.extraJavaOptions {fastest_start()} -Djava.io.tmpdir={tmp_path}\n"
    )
    variables = {"PYTHONPATH": str(ROOT), "SPARK_CONF_DIR": str(tmp_path), "SPARK_REMOTE": "local[1]"}
    arguments = ["--run-id", RUN_ID, "--batch-id", "0.1", "--config", str(config)]
    done = subprocess.run(
        [sys.executable, "-m", "spark_jobs.copying", *arguments],
        env=submit_environment(tmp_path, **variables),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    with open_app(settings_of(config)) as app:
        items = app.adapters.stores.work.items(RUN_ID)
    assert json.loads(done.stdout.splitlines()[-1])["copied"] == len(items) > 0


_LARGE = """
import random, sys
from pathlib import Path
from pyspark import SparkConf, SparkContext
conf = SparkConf().setMaster("local[1]")
for pair in sys.argv[2:]:
    conf.set(*pair.split("=", 1))
context = SparkContext(conf=conf)
sent = b"planted-secret" + random.Random(1).randbytes(2 << 20)
assert context.parallelize([None], 1).map(lambda _: len(sent)).collect() == [len(sent)]
files = [path.read_bytes() for path in Path(sys.argv[1]).rglob("*") if path.is_file()]
print(len([file for file in files if len(file) > 1 << 20]), len([file for file in files if b"planted" in file]))
context.stop()
"""


def test_a_large_function_is_not_written_in_clear_text_on_a_local_master(tmp_path: Path) -> None:
    script, scratch = tmp_path / "large.py", tmp_path / "scratch"
    script.write_text(_LARGE)
    scratch.mkdir()
    conf = job_conf("local[1]", scratch, None)
    variables = {"PYTHONPATH": str(ROOT), "SPARK_LOCAL_DIRS": str(scratch)}
    done = subprocess.run(
        [sys.executable, str(script), str(scratch), *(f"{key}={value}" for key, value in conf.items())],
        env=submit_environment(tmp_path, **variables),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1", "0"]


def test_a_batch_reports_what_it_cannot_read(tmp_path: Path, spark: SparkSession) -> None:
    empty = tmp_path / "empty.toml"
    empty.write_text(f'[metadata]\nurl = "sqlite:///{tmp_path}/nothing.sqlite"')
    outcome = run_once(spark.sparkContext, batch_task(RUN_ID, "0.1", None, TaskSettings.of_driver(empty)))
    assert outcome["exit_code"] == ExitCode.RETRY
    assert outcome["error"].startswith("MetadataUnavailableError")


def test_a_task_that_is_killed_is_worth_another_try(spark: SparkSession) -> None:
    def killed() -> str:
        os.kill(os.getpid(), signal.SIGKILL)
        return "{}"

    assert attempt(spark.sparkContext, killed)["exit_code"] == ExitCode.RETRY
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("py4j.java_gateway.get_return_value", sys.modules["py4j.protocol"].get_return_value)
        assert attempt(spark.sparkContext, killed)["exit_code"] == ExitCode.RETRY


def test_an_error_in_the_code_of_a_task_is_not_taken_for_an_outcome(spark: SparkSession) -> None:
    def broken() -> str:
        raise RuntimeError("a bug")

    with pytest.raises(PythonException, match="a bug"):
        attempt(spark.sparkContext, broken)
    # Without a session, as in a job, errors of the JVM arrive as they are.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("py4j.java_gateway.get_return_value", sys.modules["py4j.protocol"].get_return_value)
        with pytest.raises(Exception, match="a bug") as raised:
            attempt(spark.sparkContext, broken)
    assert type(raised.value).__name__ == "Py4JJavaError"


def test_recounted_sizes_equal_the_counters_until_one_is_wrong(
    tmp_path: Path, config: Path, spark: SparkSession
) -> None:
    options = parse_arguments(["--output", str(tmp_path / "out"), "--ranges", "3", "--config", str(config)])
    with open_app(settings_of(config)) as app:
        app.copying.run_batch(RUN_ID, "inline")
        counted = app.sizes.partition_sizes()
        assert counted
        equal = recount(spark, app, options)
        assert (equal["exit_code"], equal["differences"], equal["unsettled"]) == (ExitCode.DONE, [], [])
        assert equal["partitions"] == len(counted)
        assert equal["bytes"] == sum(size.size_bytes for size in counted)
        written = spark.read.parquet(str(tmp_path / "out" / "sizes")).collect()
        assert {(r.topic, r.partition, r.leader_epoch, r.size_bytes, r.segments) for r in written} == {
            (size.topic_id_partition.topic, size.topic_id_partition.partition, epoch, size_bytes, segments)
            for size in counted
            for epoch, size_bytes, segments in [
                (None, size.size_bytes, size.segments),
                *((e.leader_epoch, e.size_bytes, e.segments) for e in size.leader_epochs),
            ]
        }
        assert equal["states"] == {
            "COPY_SEGMENT_FINISHED": {"bytes": equal["bytes"], "segments": sum(size.segments for size in counted)}
        }
        history = spark.read.parquet(str(Path(equal["history"]).parents[1]))
        assert history.count() == len(written)
        assert Path(equal["history"]).is_relative_to(tmp_path / "sizes-history")
        falsify_one_counter(tmp_path / "metadata.sqlite", counted[0])
        wrong = recount(spark, app, options)
        assert spark.read.parquet(str(Path(equal["history"]).parents[1])).count() == 2 * len(written)
    assert wrong["exit_code"] == ExitCode.FINDINGS
    (difference,) = wrong["differences"]
    assert [(rule["rule"], rule["severity"]) for rule in difference["rules"]] == [("S101", "critical")]
    assert {suite["name"] for suite in wrong["suites"]} == {"size-totals"}
    broken = {rule["rule_id"]: rule["broken"] for suite in wrong["suites"] for rule in suite["rules"]}
    assert {rule_id for rule_id, count in broken.items() if count} == {"S101"}
    assert broken.keys() == {rule.rule_id for rule in SIZE_RULES}
    # As Great Expectations stores them, of both runs.
    for run in (equal, wrong):
        assert [suite.name for suite in read_results(Path(run["results"])).suites] == ["size-totals"]
    assert difference["topic_id"] == str(counted[0].topic_id_partition.topic_id)
    assert difference["counters"]["bytes"] == difference["recounted"]["bytes"] + 1


@pytest.mark.parametrize("depth", ["listing", "manifests"])
def test_the_store_is_compared_segment_by_segment(
    tmp_path: Path, config: Path, spark: SparkSession, depth: str
) -> None:
    arguments = ["--output", str(tmp_path / "out"), "--config", str(config), "--from-storage", depth]
    options = parse_arguments(arguments)
    with open_app(settings_of(config)) as app:
        app.copying.run_batch(RUN_ID, "inline")
        equal = recount(spark, app, options)
        assert equal["exit_code"] == ExitCode.DONE
        assert equal["stored"]["segments"] == equal["segments"] > 0
        assert equal["stored"]["objects"] == 3 * equal["segments"]
        assert equal["stored"]["bytes"] > equal["bytes"]
        remote = tmp_path / "store"
        first, second, third, fourth = sorted(remote.rglob("*.log"))[:4]
        as_a_broker_compresses(fourth)
        first.with_suffix(".indexes").unlink()
        with second.open("ab") as log:
            log.write(b"more")
        orphan = third.with_name(f"{9:020}-{some_uuid('orphan')}.log")
        orphan.write_bytes(b"nobody's")
        manifest = third.with_suffix(".rsm-manifest")
        manifest.write_bytes(manifest.read_bytes().replace(b'"endOffset":', b'"endOffset":9'))
        found = recount(spark, app, options)
    assert (found["exit_code"], found["differences"]) == (ExitCode.FINDINGS, [])
    kinds = {one["segment_id"]: one["kind"] for item in found["stored"]["differences"] for one in item["segments"]}
    expected = {first: "missing", second: "other_size", orphan: "unknown"}
    if depth == "manifests":
        expected[third] = "other_epochs"
    assert kinds == {path.stem[21:]: kind for path, kind in expected.items()}


def as_a_broker_compresses(log: Path) -> None:
    """The same segment, by an independent writer: its log has another length, which its manifest explains."""
    manifest = log.with_suffix(".rsm-manifest")
    described, indexes = json.loads(manifest.read_text()), log.with_suffix(".indexes").read_bytes()
    parts = {
        name: None if place is None else indexes[place["position"] :][: place["size"]]
        for name, place in described["segmentIndexes"].items()
    }
    size_bytes = log.stat().st_size
    written = write_segment(
        log.read_bytes(), parts, described["remoteLogSegmentMetadata"], chunk_size=4096, compress=True
    )
    for suffix, content in written.items():
        log.with_suffix(f".{suffix}").write_bytes(content)
    assert log.stat().st_size != size_bytes


def test_what_changes_after_the_listing_is_no_difference(
    tmp_path: Path, config: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every segment is copied between the listing and the rows, and objects that are nobody's have odd names."""
    arguments = ["--output", str(tmp_path / "out"), "--config", str(config), "--from-storage", "listing"]
    listed_first = sizes.list_store
    odd = tmp_path / "store" / "odd \u00fc%2F'\"\n\u202e"
    odd.mkdir(parents=True)
    for name in ("a b.log", "%", "\\x", "\u00e9" * 60):
        (odd / name).write_bytes(b"odd")
    with open_app(settings_of(config)) as app:

        def and_then_copied(*scene: Any) -> Any:
            found = listed_first(*scene)
            assert found.agg({"rows": "sum"}).collect()[0][0] is None
            app.copying.run_batch(RUN_ID, "inline")
            return found

        monkeypatch.setattr(sizes, "list_store", and_then_copied)
        summary = recount(spark, app, parse_arguments(arguments))
    assert summary["segments"] > 0
    assert (summary["exit_code"], summary["stored"]["differences"]) == (ExitCode.DONE, [])
    assert (summary["stored"]["segments"], summary["stored"]["unsettled"]) == (0, 0)


def test_rows_are_read_from_the_database_once_and_no_partition_is_read_whole(
    tmp_path: Path, config: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the rows are read, no task finds the settings any more, so none can open the database."""

    def and_then_alone(*arguments: Any, **named: Any) -> Any:
        packed = read_segments(*arguments, **named)
        config.unlink()
        return packed

    def refused(*_: Any) -> Any:
        raise AssertionError("all rows of a partition are on the driver")

    arguments = ["--output", str(tmp_path / "out"), "--config", str(config), "--from-storage", "listing"]
    with open_app(settings_of(config)) as app:
        app.copying.run_batch(RUN_ID, "inline")
        monkeypatch.setattr(sizes, "read_segments", and_then_alone)
        monkeypatch.setattr(SqlRemoteLogMetadata, "list_segments", refused)
        summary = recount(spark, app, parse_arguments([*arguments, "--ranges", "2"]))
    assert (summary["exit_code"], summary["stored"]["segments"]) == (ExitCode.DONE, summary["segments"])
    assert summary["segments"] > 0


def test_an_object_store_is_compared_too(tmp_path: Path, config: Path, spark: SparkSession) -> None:
    """Manifests are read by Spark's tasks: all they have of the store is in the settings file."""
    with versitygw_or_skip(tmp_path / "s3") as server:
        server.make_bucket("kept")
        over_object_store(config, server.endpoint_url)
        arguments = ["--output", str(tmp_path / "out"), "--config", str(config), "--from-storage", "manifests"]
        options = parse_arguments(arguments)
        with open_app(settings_of(config)) as app:
            app.set_up.migrate()
            app.copying.run_batch(RUN_ID, "inline")
            stranger, backdoor = raw_client(server.endpoint_url), server.backdoor("kept", "tiered/")
            first, second, third = sorted(key for key in backdoor.raw_keys() if key.endswith(".log"))[:3]
            stranger.delete_object(Bucket="kept", Key=f"tiered/{first}")
            stranger.put_object(Bucket="kept", Key=f"tiered/{second}", Body=b"short")
            manifest = f"{third.removesuffix('.log')}.rsm-manifest"
            forged = backdoor.raw_read(manifest).replace(b'"endOffset":', b'"endOffset":9')
            stranger.put_object(Bucket="kept", Key=f"tiered/{manifest}", Body=forged)
            found = recount(spark, app, options)
    assert (found["exit_code"], found["differences"]) == (ExitCode.FINDINGS, [])
    kinds = {one["segment_id"]: one["kind"] for item in found["stored"]["differences"] for one in item["segments"]}
    expected = {first: "missing", second: "other_size", third: "other_epochs"}
    # All others are as their rows say, and the marker is no segment's.
    assert kinds == {Path(key).stem[21:]: kind for key, kind in expected.items()}
    assert found["stored"]["segments"] == found["segments"] > len(expected)
    assert found["stored"]["objects"] == 3 * found["segments"] - 1


def over_object_store(config: Path, endpoint_url: str) -> None:
    """The same deployment with an object store; the settings file holds its secret and is private."""
    text = config.read_text()
    (url,) = (line for line in text.splitlines() if line.startswith('url = "file:'))
    settings_lines = (
        'url = "s3://kept/tiered"',
        f'endpoint_url = "{endpoint_url}"',
        f'access_key_id = "{ACCESS_KEY}"',
        f'secret_access_key = "{SECRET_KEY}"',
    )
    config.write_text(text.replace(url, "\n".join(settings_lines)))
    config.chmod(0o600)


def falsify_one_counter(database: Path, size: PartitionSize) -> None:
    partition = size.topic_id_partition
    with sqlite3.connect(database) as connection:
        connection.execute(
            "UPDATE size_counters SET size_bytes = size_bytes + 1 WHERE topic_id = ? AND partition = ? AND state = 1"
            " AND leader_epoch = (SELECT min(leader_epoch) FROM size_counters)",
            (str(partition.topic_id), partition.partition),
        )
    connection.close()


def test_nothing_copied_is_nothing_to_count(tmp_path: Path, config: Path, spark: SparkSession) -> None:
    options = parse_arguments(["--output", str(tmp_path / "out"), "--config", str(config)])
    with open_app(settings_of(config)) as app:
        summary = recount(spark, app, options)
    assert (summary["exit_code"], summary["partitions"], summary["bytes"]) == (ExitCode.DONE, 0, 0)


@pytest.mark.chaos
@pytest.mark.parametrize("victim", ["spark-submit", "its parent"])
def test_no_process_of_a_batch_outlives_its_submitter(tmp_path: Path, config: Path, victim: str) -> None:
    """The batch waits because all is paused: nothing but the death of its parents can end it."""
    with open_app(settings_of(config)) as app:
        app.adapters.stores.work.pause(None, author="test")
        command = submit_command("copying.py", ["--run-id", RUN_ID, "--batch-id", "0.1"], tmp_path)
        shell = ["bash", "-c", '"$@" & echo $! ; wait', "submitter", *command]
        mark = secrets.token_hex(8)
        environment = submit_environment(tmp_path, TIERING_CONFIG=str(config), BATCH_MARK=mark)
        with subprocess.Popen(
            shell, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as parent:
            assert parent.stdout is not None
            jvm = int(parent.stdout.readline())
            eventually(lambda: app.adapters.stores.work.progress(RUN_ID), "the batch runs", seconds=240)
            assert len(python_processes(mark)) >= 2
            os.kill(jvm if victim == "spark-submit" else parent.pid, signal.SIGKILL)
            eventually(lambda: not processes_with(mark), "every process of the batch ends")


@pytest.mark.chaos
def test_no_process_of_a_job_outlives_the_timeout_of_its_task(
    tmp_path: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Airflow's task runner does it: an alarm interrupts the operator, and then `on_kill` is called."""
    mark = secrets.token_hex(8)
    variables = {
        "AIRFLOW_CONN_TIERING_SPARK": json.dumps({"conn_type": "spark", "host": "local[1]"}),
        "AIRFLOW__TIERING__WORK_DIR": str(tmp_path / "work"),
        "LC_BATCH_MARK": mark,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYSPARK_PYTHON": sys.executable,
        "TIERING_CONFIG": str(config),
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    arguments = ["--run-id", RUN_ID, "--batch-id", "0.1"]
    operator = SparkJobOperator(task_id="copy", job="copying.py", arguments=arguments)
    begun: list[str] = []

    def takes_too_long() -> None:
        with open_app(settings_of(config)) as app:
            eventually(lambda: app.adapters.stores.work.progress(RUN_ID), "the batch runs", seconds=240)
        begun.extend(python_processes(mark, "LC_BATCH_MARK"))
        os.kill(os.getpid(), signal.SIGALRM)

    with open_app(settings_of(config)) as app:
        app.adapters.stores.work.pause(None, author="test")
    alarm = threading.Thread(target=takes_too_long)
    alarm.start()
    try:
        with pytest.raises(AirflowTaskTimeout), timeout(300):
            operator.execute({})
        assert len(begun) >= 2
        operator.on_kill()
        eventually(lambda: not processes_with(mark, "LC_BATCH_MARK"), "every process of the job ends")
    finally:
        alarm.join()
        operator.on_kill()
        submitted: Any = operator._hook
        submitted._submit_sp.wait()


def processes_with(mark: str, variable: str = "BATCH_MARK") -> list[str]:
    """Command lines of the processes whose environment holds `mark`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if f"{variable}={mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue
    return [command for command in found if command]


def python_processes(mark: str, variable: str = "BATCH_MARK") -> list[str]:
    """The driver, the daemon and its workers; not the JVM and not the shell."""
    return [command for command in processes_with(mark, variable) if command.startswith(sys.executable)]
