"""Jobs on a standalone Spark cluster whose hosts have no settings of this platform: shares, settings and secrets."""

import json
import os
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
from airflow.sdk import DAG

from include.tiering.app import App
from include.tiering.configs.config_store import ALL_BROKERS, ConfigEntity, EntityType
from include.tiering.configs.pools import COPIER_POOL, EXPIRATION_POOL, POOLS, READER_POOL
from include.tiering.configs.spark_cluster import application_name
from include.tiering.model.segments import Depth
from include.tiering.runs.batch import BatchEnd
from include.tiering.runs.contract import SegmentOutcome
from include.tiering.runs.deletion_run import DeletionOutcome
from include.tiering.verification.plan import VerificationSample
from local.class_archive import class_archive
from local.java import java_environment
from plugins.tiering_airflow.hook import TieringHook
from plugins.tiering_airflow.spark import SparkJobOperator, job_environment
from plugins.tiering_airflow.spark_cluster import cluster_remarks
from plugins.tiering_airflow.spark_files import packed_library
from spark_jobs.waiting import ALL_PAUSED
from tests.doubles.broker_data import copy_of
from tests.doubles.databases import postgresql_server
from tests.doubles.patience import eventually
from tests.doubles.s3_server import ACCESS_KEY, SECRET_KEY, versitygw_or_skip
from tests.doubles.spark import NO_JAVA, ROOT
from tests.doubles.standalone_spark import SparkCluster, spark_cluster

pytestmark = NO_JAVA

QUOTA: Final = "tiering.copy.total.max.bytes.per.second"
SLOW: Final = "12000"
FIRST: Final = ("orders", "audit_log", "bigrecs", "replicated", "retained", "sensor-old", "trimmed")
"""Topics of the first test; the second one copies the others, too."""
PATIENCE: Final = 150
SHARES: Final = {COPIER_POOL: 2, EXPIRATION_POOL: 1}
"""Of four cores, by pools of four slots each."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with spark_cluster(tmp_path_factory.mktemp("cluster"), workers=2, cores=2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def planted(cluster: SparkCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Airflow's environment: plain settings as variables, secrets in connections only. Returns the database password.

    `orders` is archived, and its retention is smaller than what is archived.
    """
    directory = tmp_path_factory.mktemp("platform")
    password = f"planted-{secrets.token_hex(12)}"
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        server = stack.enter_context(versitygw_or_skip(directory / "s3"))
        server.make_bucket("tiering")
        url = stack.enter_context(postgresql_server())("cluster").replace("postgres:@", f"postgres:{password}@")
        assert password in url
        brokers = copy_of("public", directory, part="stopped")
        archive = class_archive({**os.environ, **java_environment()}, print)
        storage = {"url": "s3://tiering/kafka", "endpoint_url": server.endpoint_url, "region": "us-east-1"}
        connections = {
            "TIERING_SPARK": {"conn_type": "spark", "host": cluster.url, "extra": {"web-url": cluster.web_url}},
            "TIERING_REMOTE_STORAGE": {
                "conn_type": "aws",
                "login": ACCESS_KEY,
                "password": SECRET_KEY,
                "extra": storage,
            },
            "TIERING_METADATA": {"conn_type": "generic", "extra": {"url": url}},
        }
        variables = {
            **{f"AIRFLOW_CONN_{name}": json.dumps(connection) for name, connection in connections.items()},
            **java_environment(),
            "AIRFLOW__TIERING__SPARK_CLASS_ARCHIVE": str(archive or ""),
            "AIRFLOW__TIERING__WORK_DIR": str(directory / "work"),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_CONF_DIR": str(cluster.conf_dir),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "TIERING_LOG_DIRS": f"1:{brokers / 'broker-1'},2:{brokers / 'broker-2'}",
            "TIERING_TOPICS__INCLUDE": '["orders"]',
        }
        for name, value in variables.items():
            patch.setenv(name, value)
        with TieringHook().open() as app:
            app.set_up.migrate()
            for spec in POOLS:
                app.adapters.stores.pool_mirror.record(spec.name, 4, seen=None, author="test")
            app.copying.plan("first")
            app.copying.run_batch("first", "first/0")
            _alter(app, ConfigEntity(EntityType.TOPICS, "orders"), {"retention.bytes": "100000"})
        patch.setenv("TIERING_TOPICS__INCLUDE", json.dumps(FIRST))
        yield password


def _alter(app: App, entity: ConfigEntity, changes: dict[str, str | None]) -> None:
    app.configs.alter(entity, changes, author="test")


class Watch:
    """What the master said and what processes showed, looked at four times a second by a thread."""

    def __init__(self, cluster: SparkCluster) -> None:
        self.cores: list[dict[str, int]] = []
        self.began: dict[str, float] = {}
        self.command_lines: set[bytes] = set()
        self.environments: set[bytes] = set()
        self._cluster = cluster
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    @contextmanager
    def running(self) -> Iterator["Watch"]:
        self._thread.start()
        try:
            yield self
        finally:
            self._over.set()
            self._thread.join()

    def now(self) -> dict[str, int]:
        """The cores that each application holds, by name."""
        return self.cores[-1] if self.cores else {}

    def _run(self) -> None:
        while not self._over.wait(0.25):
            cores = {app["name"]: app["cores"] for app in self._cluster.state()["activeapps"]}
            now = time.monotonic()
            for name in cores:
                self.began.setdefault(name, now)
                if cores[name]:
                    self.began.setdefault(f"{name} holds a core", now)
            self.cores.append(cores)
            for process in Path("/proc").glob("[0-9]*"):
                self._look_at(process)

    def _look_at(self, process: Path) -> None:
        try:
            self.command_lines.add((process / "cmdline").read_bytes())
            if self._is_of_a_worker(int(process.name)):
                self.environments.add((process / "environ").read_bytes())
        except OSError:
            return

    def _is_of_a_worker(self, pid: int) -> bool:
        while pid > 1:
            if pid in self._cluster.worker_pids:
                return True
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        return False


def _files(*directories: Path) -> Iterator[Path]:
    for directory in directories:
        yield from (path for path in directory.rglob("*") if path.is_file())


@dataclass
class Job:
    """The job of a batch, as Airflow's task runs it, in a thread."""

    operator: SparkJobOperator
    errors: list[BaseException] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        context: Any = {"ti": SimpleNamespace(xcom_push=lambda **_: None)}
        try:
            self.operator.execute(context)
        except BaseException as error:  # noqa: BLE001 - looked at by the test
            self.errors.append(error)

    def end(self) -> None:
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()
        assert self.errors == []

    def __enter__(self) -> "Job":
        return self

    def __exit__(self, *_: object) -> None:
        if self.thread.is_alive():
            self.operator.on_kill()
            self.thread.join(PATIENCE)


def _submit(dag_id: str, run_id: str, number: int, pool: str) -> Job:
    job = "copying.py" if pool == COPIER_POOL else "expiration.py"
    arguments = ["--run-id", run_id, "--batch-id", f"{run_id}/{number}", "--pool", pool]
    operator = SparkJobOperator(task_id=f"batch_{number}_{run_id}", job=job, arguments=arguments, pool=pool)
    operator.dag = DAG(dag_id, schedule=None)
    return Job(operator)


def test_pools_keep_to_their_shares_and_no_secret_is_written(
    cluster: SparkCluster, planted: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    with TieringHook().open() as app:
        _alter(app, ALL_BROKERS, {QUOTA: SLOW, "tiering.spark.conf.tiering_copy.spark.network.timeout": "131s"})
        assert app.copying.plan("copy").segments > 0
        deletions = app.expiration.plan("expire")
        copy, expire = (application_name(kind, app.adapters.cluster_id) for kind in ("copy", "expire"))
        assert not app.expiration.apply_limits("expire").needs_approval
        assert [words for words in cluster_remarks(app) if "12" in words or "at once they use 2, 1, 1" in words]

    with Watch(cluster).running() as watch, ExitStack() as jobs:
        copies = [jobs.enter_context(_submit("tiering_copy", "copy", number, COPIER_POOL)) for number in range(3)]

        def copying() -> list[int]:
            return [cores for name, cores in watch.now().items() if name.startswith(copy)]

        eventually(lambda: sorted(copying()) == [0, 1, 1], "two copies run, and a third waits", seconds=PATIENCE)
        expiration = jobs.enter_context(_submit("tiering_expiration", "expire", 0, EXPIRATION_POOL))
        name = f"{expire} expire/expire/0"
        eventually(lambda: f"{name} holds a core" in watch.began, "the expiration has a core", seconds=PATIENCE)
        assert watch.began[f"{name} holds a core"] - watch.began[name] < 30
        assert sorted(copying()) == [0, 1, 1], "the third copy still waits, though a core was free"
        expiration.end()
        with TieringHook().open() as app:
            _alter(app, ALL_BROKERS, {QUOTA: None})
        for each in copies:
            each.end()

    most = [max(sum(cores.values()) for cores in _by(watch, start)) for start in (copy, expire)]
    assert most == [SHARES[COPIER_POOL], SHARES[EXPIRATION_POOL]]
    with TieringHook().open() as app:
        copied = app.adapters.stores.work.items("copy")
        assert {item.outcome for item in copied} == {SegmentOutcome.COPIED}
        deleted = app.adapters.stores.deletions.items("expire")
        assert len(deleted) == deletions.segments > 0
        assert {item.outcome for item in deleted} == {DeletionOutcome.DELETED}
        _alter(app, ALL_BROKERS, {"tiering.spark.conf.tiering_copy.spark.network.timeout": None})
    configured = [path.read_text().count('"spark.network.timeout":"131s"') for path in _event_logs(cluster)]
    assert sorted(map(bool, configured)) == [False, True, True, True], "a config of one DAG"
    _require_no_secret(cluster, planted, watch, caplog.text)


def _event_logs(cluster: SparkCluster) -> list[Path]:
    return [path for path in _files(cluster.directory / "events") if path.name.startswith("events_")]


def _by(watch: Watch, start: str) -> list[dict[str, int]]:
    return [{name: n for name, n in cores.items() if name.startswith(start)} for cores in watch.cores]


def _require_no_secret(cluster: SparkCluster, planted: str, watch: Watch, log: str) -> None:
    """Neither in process arguments, nor in anything that the cluster wrote, nor in what Airflow's task logs."""
    written = [path for path in _files(cluster.directory) if path.parent != cluster.conf_dir]
    event_logs = b"".join(path.read_bytes() for path in written if "events" in path.parts)
    assert b"spark.authenticate.secret" in event_logs, "event logs can be read, and show the configuration"
    assert [path for path in written if path.name == "stderr" and path.stat().st_size], "executors have written logs"
    logs = Path(os.environ["AIRFLOW__TIERING__WORK_DIR"])
    for secret in (planted, SECRET_KEY, cluster.auth_secret):
        assert not [line for line in watch.command_lines if secret.encode() in line]
        assert not [path for path in (*written, *_files(logs)) if secret.encode() in path.read_bytes()]
        assert secret not in log
    for secret in (planted, SECRET_KEY, "TIERING_"):
        assert watch.environments
        assert not [variables for variables in watch.environments if secret.encode() in variables]


def test_a_job_that_reads_spreads_over_the_share_of_its_pool(
    cluster: SparkCluster, planted: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its tasks are of a session of Spark SQL, whose plans Spark writes to the event log."""
    caplog.set_level("INFO")
    with TieringHook().open() as app:
        for spec in POOLS:
            app.adapters.stores.pool_mirror.record(spec.name, 1, seen=4, author="test")
        assert cluster_remarks(app) == []
        verify = application_name("verify", app.adapters.cluster_id)
        app.verification.plan("read", VerificationSample(everything=True), depth=Depth.DEEP)
    arguments = ["--run-id", "read", "--batch-id", "read/0", "--pool", READER_POOL, "--tasks", "4"]
    operator = SparkJobOperator(task_id="verify", job="verification.py", arguments=arguments, pool=READER_POOL)
    operator.dag = DAG("tiering_quality", schedule=None)
    with Watch(cluster).running() as watch, Job(operator) as job:
        job.end()
    most = max(sum(cores.values()) for cores in _by(watch, verify))
    assert most == 2, "four cores, of which a slot of each of the other pools needs one"
    with TieringHook().open() as app:
        outcomes = {str(total.outcome) for total in app.adapters.stores.verifications.totals("read") if total.segments}
        for spec in POOLS:
            app.adapters.stores.pool_mirror.record(spec.name, 4, seen=1, author="test")
    assert outcomes == {"passed"}
    _require_no_secret(cluster, planted, watch, caplog.text)


def test_a_batch_that_waits_for_its_executor_sees_a_pause_and_a_pool_of_0(
    cluster: SparkCluster, planted: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No worker has the memory that its executor asks for, so the batch has its place, and waits."""
    said: list[str] = []

    def has_said(words: str) -> bool:
        said.append(capfd.readouterr().out)
        return words in "".join(said)

    monkeypatch.setenv("TIERING_TOPICS__INCLUDE", '["payments*"]')
    memory = "tiering.spark.conf.tiering_copy.spark.executor.memory"
    with TieringHook().open() as app:
        work, mirror = app.adapters.stores.work, app.adapters.stores.pool_mirror
        _alter(app, ALL_BROKERS, {memory: "90g"})
        assert app.copying.plan("held").segments > 0
        with _submit("tiering_copy", "held", 0, COPIER_POOL) as job:
            name = f"{application_name('copy', app.adapters.cluster_id)} held/held/0"
            eventually(
                lambda: name in {each["name"] for each in cluster.state()["activeapps"]},
                "the application is registered",
                seconds=PATIENCE,
            )
            work.pause(None, author="test")
            eventually(lambda: has_said(f"takes no core: {ALL_PAUSED}"), "it sees the pause", seconds=PATIENCE)
            work.resume(None, author="test")
            slots = mirror.seen()[COPIER_POOL].slots
            mirror.record(COPIER_POOL, 0, seen=slots, author="test")
            job.end()
        mirror.record(COPIER_POOL, slots, seen=0, author="test")
        _alter(app, ALL_BROKERS, {memory: None})
        assert has_said(BatchEnd.SURPLUS.value)
        assert {item.outcome for item in work.items("held")} == {SegmentOutcome.PLANNED}


def test_batches_over_spark_connect_get_library_and_settings_from_their_client(
    cluster: SparkCluster, planted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIERING_TOPICS__INCLUDE", '["*"]')
    with TieringHook().open() as app:
        _alter(app, ConfigEntity(EntityType.TOPICS, "orders"), {"retention.bytes": "40000"})
        app.expiration.plan("expire-2")
        assert not app.expiration.apply_limits("expire-2").needs_approval
        assert app.copying.plan("copy-2").segments > 0
        settings = TieringHook().job_environment()
    library = packed_library(ROOT, ("include", "spark_jobs"), tmp_path)
    environment = job_environment(os.environ, settings, tmp_path, library)

    def start(module: str, run_id: str) -> subprocess.Popen[str]:
        arguments = ["--run-id", run_id, "--batch-id", f"{run_id}/0"]
        return subprocess.Popen(
            [sys.executable, "-m", f"spark_jobs.{module}", *arguments],
            env={**environment, "SPARK_REMOTE": remote},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=tmp_path,
        )

    with cluster.connect_server(cores=2) as remote, Watch(cluster).running() as watch:
        jobs = [start("expiration", "expire-2"), start("copying", "copy-2")]
        outputs = [job.communicate(timeout=PATIENCE)[0] for job in jobs]
        assert [job.returncode for job in jobs] == [0, 0], outputs
    outcomes = [json.loads(output.splitlines()[-1]) for output in outputs]
    assert outcomes[0]["deleted"] > 0
    assert outcomes[1]["copied"] > 0
    assert max(cores.get("connect", 0) for cores in watch.cores) == 2, "the share that the server was started with"
    _require_no_secret(cluster, planted, watch, "".join(outputs))
