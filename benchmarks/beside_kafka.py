"""A measure of segments in fresh processes, and by turns with it Kafka's DumpLogSegments on the same bytes."""

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from include.tiering.units import GIB

# Kafka's own DumpLogSegments, fetched with Maven, as something to compare with.

_ROOT: Final = Path(__file__).resolve().parents[1]
KAFKA_VERSION: Final = "4.3.1"
_LIBS: Final = _ROOT / ".cache" / f"kafka-tools-{KAFKA_VERSION}"
_MAIN_CLASS: Final = "org.apache.kafka.tools.DumpLogSegments"
_POM: Final = f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>local</groupId><artifactId>kafka-tools-libs</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId>
      <version>{KAFKA_VERSION}</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId>
      <version>{KAFKA_VERSION}</version></dependency>
  </dependencies>
</project>
"""


class ToolUnavailableError(Exception):
    """Why the tool cannot be run on this machine."""


def libs(*, fetch_seconds: int = 300) -> Path:
    """A directory with the tool's jars: kept in .cache/, fetched once.

    Raises:
        ToolUnavailableError: no java, no mvn, or Maven could not fetch the artifacts.
    """
    if shutil.which("java") is None:
        raise ToolUnavailableError("java is not on the PATH")
    if _LIBS.exists():
        return _LIBS
    maven = shutil.which("mvn")
    if maven is None:
        raise ToolUnavailableError("mvn is not on the PATH")
    stage = _LIBS.with_name(f"{_LIBS.name}.{os.getpid()}")
    stage.mkdir(parents=True)
    try:
        (stage / "pom.xml").write_text(_POM)
        command = [maven, "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={stage / 'libs'}"]
        done = subprocess.run(command, cwd=stage, capture_output=True, text=True, timeout=fetch_seconds, check=False)
        if done.returncode != 0:
            raise ToolUnavailableError(f"mvn ended with exit code {done.returncode}")
        (stage / "libs").rename(_LIBS)
    except subprocess.TimeoutExpired:
        raise ToolUnavailableError(f"mvn did not end within {fetch_seconds} s") from None
    finally:
        shutil.rmtree(stage)
    return _LIBS


@dataclass(frozen=True, slots=True)
class Dump:
    """One run: seconds with the start of the JVM, CPU seconds of all its threads, and the batches it found valid."""

    seconds: float
    cpu_seconds: float
    valid_batches: int


def dump(log: Path, jars: Path, *, records: bool) -> Dump:
    """Runs the tool over one `.log`: a line for each batch, and if `records` one for each record too.

    Only with `records` does it look at whether offsets follow each other. Its lines are counted by grep.

    Raises:
        ToolUnavailableError: it failed.
    """
    mode = ["--deep-iteration"] if records else []
    command = ["java", "-Xmx512m", "-cp", f"{jars}/*", _MAIN_CLASS, *mode, "--files", str(log)]
    begun, used_before = time.monotonic(), _children_cpu_seconds()
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as tool,
        subprocess.Popen(["grep", "-c", " isvalid: true"], stdin=tool.stdout, stdout=subprocess.PIPE) as counter,
    ):
        count, _ = counter.communicate()
        exit_code = tool.wait()
    seconds = time.monotonic() - begun
    if exit_code != 0:
        raise ToolUnavailableError(f"the tool ended with exit code {exit_code}")
    return Dump(seconds, _children_cpu_seconds() - used_before, int(count))


def _children_cpu_seconds() -> float:
    """Of all children that have ended; grep's share of a run is small."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


_MAX_DUMPS: Final = 2
_WAYS: Final = ("batches", "records")

Rates = Callable[[Sequence[dict[str, Any]], float], dict[str, Any]]
Compared = Callable[[dict[str, Any], Sequence[Dump], float], dict[str, float]]


def rounded(value: float) -> float:
    return round(value, 3)


def parsed(description: str | None, arguments: Sequence[str], *, measured: str) -> argparse.Namespace:
    """Parse the arguments of a benchmark; `measured` is what `--measure` takes: the program's call of itself."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--size-mib", type=int, default=1024, help="size of the segments whose rate counts (default 1024)"
    )
    parser.add_argument("--repeats", type=int, default=5, help="fresh processes per figure (default 5)")
    parser.add_argument("--directory", help="where to write the segments (default: the temporary directory)")
    parser.add_argument(
        "--dump-log-segments",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="compare with Kafka's tool; needs java, and mvn the first time (default: yes)",
    )
    parser.add_argument(
        "--measure", type=Path, metavar=measured, help="measure this once, here; used by the program itself"
    )
    return parser.parse_args(arguments)


def measure_in_a_process(module: str, path: Path) -> dict[str, Any]:
    begun = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", module, "--measure", str(path)], cwd=_ROOT, stdout=subprocess.PIPE, check=True
    )
    measured: dict[str, Any] = json.loads(done.stdout)
    return {**measured, "process_seconds": time.perf_counter() - begun}


def rates(verb: str, runs: Sequence[dict[str, Any]], size_gib: float) -> dict[str, Any]:
    return {
        f"{verb}_gib_per_second": {
            "best": rounded(size_gib / min(run["seconds"] for run in runs)),
            "median": rounded(size_gib / statistics.median(run["seconds"] for run in runs)),
        },
        f"{verb}_gib_per_cpu_second": rounded(size_gib / min(run["cpu_seconds"] for run in runs)),
        "process_gib_per_second": rounded(size_gib / min(run["process_seconds"] for run in runs)),
    }


def compared_rates(verb: str, result: dict[str, Any], runs: Sequence[Dump], size_gib: float) -> dict[str, float]:
    rate = size_gib / min(run.seconds for run in runs)
    return {
        "gib_per_second": rounded(rate),
        "times": rounded(result[f"{verb}_gib_per_second"]["best"] / rate),
        "times_with_start": rounded(result["process_gib_per_second"] / rate),
    }


def measure_beside_kafka(
    module: str, path: Path, log: Path, options: argparse.Namespace, rates_of: Rates, compared: Compared
) -> dict[str, Any]:
    """Measure `path` and run DumpLogSegments on `log` by turns, so that both see the same neighbours on the machine."""
    measures, dumps, skipped = [], defaultdict(list), None if options.dump_log_segments else "not asked for"
    for number in range(options.repeats):
        measures.append(measure_in_a_process(module, path))
        if skipped is None and number < _MAX_DUMPS:
            try:
                for way in _WAYS:
                    dumps[way].append(dump(log, libs(), records=way == "records"))
            except ToolUnavailableError as error:
                skipped = str(error)
    size_gib = log.stat().st_size / GIB
    result = rates_of(measures, size_gib)
    if skipped is not None:
        return {**result, "dump_log_segments": {"skipped": skipped}}
    by_way = {way: compared(result, runs, size_gib) for way, runs in dumps.items()}
    return {**result, "dump_log_segments": {"version": KAFKA_VERSION, **by_way}}
