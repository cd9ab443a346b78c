"""Time from the trigger of a batch to the first byte that it writes, and where it goes; the start of `./tiering copy`.

    python -m benchmarks.bench_start
    python -m benchmarks.bench_start --repeats 5 --ways inline airflow

Each round plans a run of one small topic of the bundled log directories into a file store of its own and starts one
batch, by turns in each way, so that a busy machine disturbs all alike:

  inline          a Python process that runs the batch itself
  spark-submit    Spark's defaults, and no class archive
  airflow         as Airflow's task submits it, with a class archive (built before, not counted)
  spark-connect   a client of a Spark Connect server that runs already; its first batch is left out

Standard output is one JSON object; per way and stage the median over the rounds, in seconds:
  to_driver, to_session, to_task, to_batch, to_first_byte    each since the trigger
  to_exit                                                    the whole process
  cpu                                                        of the process, its children, and the server for Connect
  peak_mib                                                   of the process and all below it at once
  nothing_to_do                                              CPU of `./tiering copy` after the batch
"""

import argparse
import contextlib
import json
import os
import resource
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks.job_usage import watched_usage
from include.tiering.units import MIB
from local.class_archive import class_archive
from local.java import java_environment
from tests.doubles.archive import RUN_ID, planned_run
from tests.doubles.spark import FAST_START, ROOT, as_airflow_submits, submit_command, submit_environment

JOB: Final = "copying.py"
ARGUMENTS: Final = ("--run-id", RUN_ID, "--batch-id", "bench")
STAGES: Final = ("driver", "session", "task", "batch")
_INLINE: Final = """
import json, time
began_ms = time.time_ns() // 1_000_000
from include.tiering.app import open_app
with open_app() as tiering:
    batch_began_ms = time.time_ns() // 1_000_000
    result = tiering.copying.run_batch("run-1", "bench")
print(json.dumps({"copied": len(result.copied), "driver_began_ms": began_ms, "batch_began_ms": batch_began_ms}))
"""


class Ways:
    """A way is a command and the variables beside the common ones."""

    def __init__(self, scratch: Path, archive: Path | None, connect_url: str | None) -> None:
        self._scratch = scratch
        self._known: dict[str, Callable[[], tuple[list[str], dict[str, str]]]] = {
            "inline": lambda: ([sys.executable, "-c", _INLINE], {"PYTHONPATH": str(ROOT)}),
            "spark-submit": lambda: (submit_command(JOB, ARGUMENTS, scratch, java_options=""), {}),
            "airflow": lambda: as_airflow_submits(JOB, ARGUMENTS, scratch, archive),
        }
        if connect_url is not None:
            command = [sys.executable, "-m", "spark_jobs.copying", *ARGUMENTS]
            self._known["spark-connect"] = lambda: (command, {"PYTHONPATH": str(ROOT), "SPARK_REMOTE": connect_url})

    def command(self, way: str, config: Path) -> tuple[list[str], Mapping[str, str]]:
        command, variables = self._known[way]()
        if way == "spark-connect":
            command = [*command, "--config", str(config)]
        return command, submit_environment(self._scratch, TIERING_CONFIG=str(config), **variables)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._known)


def measure(command: Sequence[str], environment: Mapping[str, str], store: Path) -> dict[str, float]:
    """Seconds since the trigger.

    Raises:
        SystemExit: the batch copied nothing.
    """
    cpu_before = _cpu_seconds()
    triggered = time.time()
    with (
        subprocess.Popen(
            command, env=environment, cwd=store.parent, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process,
        watched_usage(process.pid) as usage,
    ):
        output = process.communicate()[0]
    exited = time.time()
    outcome = json.loads(output.splitlines()[-1]) if process.returncode == 0 else {}
    if not outcome.get("copied"):
        raise SystemExit(f"{command[:2]} copied nothing, exit code {process.returncode}: {output[-500:]}")
    seconds = {
        f"to_{stage}": outcome[f"{stage}_began_ms"] / 1000 - triggered
        for stage in STAGES
        if f"{stage}_began_ms" in outcome
    }
    first_byte = min(path.stat().st_mtime for path in store.rglob("*.log"))
    cpu = _cpu_seconds() - cpu_before
    whole = {"to_exit": exited - triggered, "cpu": cpu, "peak_mib": usage.peak_bytes / MIB}
    return {**seconds, "to_first_byte": first_byte - triggered, **whole}


def nothing_to_do(config: Path) -> float:
    """CPU seconds of `./tiering copy` after a batch has copied all."""
    before = _cpu_seconds()
    variables = {"TIERING_CONFIG": str(config), "PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
    subprocess.run([ROOT / "tiering", "copy"], env=variables, stdout=subprocess.DEVNULL, check=True)
    return _cpu_seconds() - before


def _cpu_seconds() -> float:
    """Of children that ended, and of all descendants that live: a server and its Python workers."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    living = psutil.Process().children(recursive=True)
    return usage.ru_utime + usage.ru_stime + sum(sum(each.cpu_times()[:2]) for each in living)


@contextlib.contextmanager
def connect_server(scratch: Path) -> Iterator[tuple[str, float]]:
    """(URL, seconds until it listened) of a server on loopback with one core."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    configuration = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"{FAST_START} -XX:+ExitOnOutOfMemoryError -Djava.io.tmpdir={scratch}",
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "ERROR",
        "spark.speculation": "false",
        "spark.task.maxFailures": "1",
        "spark.ui.enabled": "false",
    }
    command = [
        str(Path(sys.executable).parent / "spark-submit"),
        *("--master", "local[1]", "--driver-memory", "512m"),
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
        *(part for key, value in configuration.items() for part in ("--conf", f"{key}={value}")),
        "spark-internal",
    ]
    began = time.monotonic()
    environment = submit_environment(scratch, PYTHONPATH=str(ROOT))
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            while not _listens(port):
                if server.poll() is not None or time.monotonic() - began > 120:
                    raise SystemExit("the Spark Connect server did not start")
                time.sleep(0.1)
            yield f"sc://127.0.0.1:{port}", time.monotonic() - began
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(timeout=60)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def one_round(ways: Ways, way: str, directory: Path) -> dict[str, float]:
    directory.mkdir()
    config = planned_run(directory, topics='["trimmed"]')
    command, environment = ways.command(way, config)
    return {**measure(command, environment, directory / "store"), "nothing_to_do": nothing_to_do(config)}


def run(repeats: int, wanted: Sequence[str]) -> dict[str, Any]:
    with contextlib.ExitStack() as stack:
        base = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-start-")))
        scratch = base / "scratch"
        scratch.mkdir()
        os.environ.update(java_environment())
        archive = class_archive(
            {**os.environ, "PYSPARK_PYTHON": sys.executable}, lambda text: print(text, file=sys.stderr)
        )
        url, server_seconds = None, None
        if not wanted or "spark-connect" in wanted:
            url, server_seconds = stack.enter_context(connect_server(scratch))
        ways = Ways(scratch, archive, url)
        names = [name for name in ways.names if not wanted or name in wanted]
        first_of_server = one_round(ways, "spark-connect", base / "warm-up") if url is not None else None
        found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
        for number in range(repeats):
            for name in names:
                found[name].append(one_round(ways, name, base / f"{name}-{number}"))
                print(f"round {number} {name}: {found[name][-1]}", file=sys.stderr, flush=True)
    return {
        "load_after": [round(value, 2) for value in os.getloadavg()],
        "repeats": repeats,
        "connect_server_start_seconds": None if server_seconds is None else round(server_seconds, 2),
        "connect_first_batch": None if first_of_server is None else _rounded(first_of_server),
        "ways": {name: _summary(rounds) for name, rounds in found.items()},
    }


def _summary(rounds: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    stages = {stage: [each[stage] for each in rounds] for stage in rounds[0]}
    return {
        **_rounded({stage: statistics.median(values) for stage, values in stages.items()}),
        "to_first_byte_lowest": round(min(stages["to_first_byte"]), 2),
    }


def _rounded(seconds: Mapping[str, float]) -> dict[str, float]:
    return {stage: round(value, 2) for stage, value in seconds.items()}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Time from trigger to first byte, and where it goes.")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--ways", nargs="*", default=[], help="all of them by default")
    options = parser.parse_args(arguments)
    print(json.dumps(run(options.repeats, options.ways)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
