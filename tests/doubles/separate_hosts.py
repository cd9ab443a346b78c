"""A standalone cluster of Spark on loopback: a master and workers, each a process, with one core and one executor each.

A driver can be run in a mount namespace of its own. A directory that is mounted there is seen by the driver alone, so
it is as if the executors were on another host, as far as files in this directory are concerned.
"""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import pyspark
import pytest

from local.java import java_environment
from local.ports import free_port
from tests.doubles.patience import eventually
from tests.doubles.spark import FAST_START, ROOT, submit_environment

_SPARK_CLASS: Final = Path(pyspark.__file__).parent / "bin" / "spark-class"
_DEPLOY: Final = "org.apache.spark.deploy"
_SECONDS: Final = 240.0


@dataclass(frozen=True)
class SparkCluster:
    master: str
    workers: int

    def configuration(self, scratch: Path) -> Mapping[str, str]:
        """What a driver needs beside the master: it begins when every worker has its executor."""
        return {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.extraJavaOptions": f"{FAST_START} -Djava.io.tmpdir={scratch}",
            "spark.executor.extraJavaOptions": f"{FAST_START} -Djava.io.tmpdir=.",  # its working directory
            "spark.executor.memory": "512m",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.cores.max": str(self.workers),
            "spark.log.level": "ERROR",
            "spark.ui.enabled": "false",
        }


@contextmanager
def spark_cluster(directory: Path, workers: int = 2) -> Iterator[SparkCluster]:
    """Start a cluster whose files are below `directory`; at the end no process of it is left."""
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        arguments = ["master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(free_port())]
        stack.enter_context(_process(directory / "master", arguments, "I have been elected leader"))
        for number in range(workers):
            home = directory / f"worker-{number}"
            own = ["--host", "127.0.0.1", "--webui-port", str(free_port()), "--work-dir", str(home / "work")]
            arguments = ["worker.Worker", *own, "--cores", "1", "--memory", "1g", master]
            stack.enter_context(_process(home, arguments, "Successfully registered with master"))
        yield SparkCluster(master, workers)


@contextmanager
def _process(home: Path, arguments: Sequence[str], sign: str) -> Iterator[None]:
    scratch, log = home / "scratch", home / "log"
    scratch.mkdir(parents=True)
    name, *options = arguments
    variables = {
        **java_environment(),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": f"{FAST_START} -Djava.io.tmpdir={scratch}",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(_SPARK_CLASS), f"{_DEPLOY}.{name}", *options],
            env=submit_environment(scratch, **variables),
            cwd=home,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        eventually(lambda: sign in log.read_text() or process.poll() is not None, f"{name} is up", seconds=_SECONDS)
        assert process.poll() is None, log.read_text()
        yield
    finally:
        # An executor is a child of its worker, and ends with it.
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=_SECONDS)


@cache
def _namespace() -> tuple[str, ...]:
    """Return the command that runs another one in a mount namespace of its own; empty if the system refuses."""
    for command in (("unshare", "--mount"), ("unshare", "--map-root-user", "--mount")):
        try:
            done = subprocess.run([*command, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False)
        except FileNotFoundError:
            break
        if done.returncode == 0:
            return command
    return ()


def own_directory_or_skip(command: Sequence[str], hidden: Path, copied: Path) -> list[str]:
    """Return a command that runs `command` with an empty directory of its own at `hidden`, then copies it to `copied`.

    `hidden` must exist; nobody else sees what the command writes there, nor does `hidden` hold it afterwards.
    """
    namespace = _namespace()
    if not namespace:
        pytest.skip("this system gives a process no mount namespace of its own (unshare --mount)")
    mounted = f"mount -t tmpfs none {shlex.quote(str(hidden))}"
    kept = f"cp -r {shlex.quote(str(hidden))} {shlex.quote(str(copied))}"
    return [*namespace, "sh", "-c", f"{mounted} && {shlex.join(command)}; code=$?; {kept}; exit $code"]


def submit_to_cluster(
    cluster: SparkCluster, job: str, arguments: Sequence[str], scratch: Path, library: Path
) -> list[str]:
    """The command line for `spark_jobs/<job>` on the cluster."""
    configuration = cluster.configuration(scratch)
    return [
        str(Path(sys.executable).parent / "spark-submit"),
        *("--master", cluster.master, "--driver-memory", "512m", "--py-files", str(library)),
        *(part for key, value in configuration.items() for part in ("--conf", f"{key}={value}")),
        str(ROOT / "spark_jobs" / job),
        *arguments,
    ]
