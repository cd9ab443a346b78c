"""Kafka's own DumpLogSegments, fetched with Maven, as something to compare with."""

import os
import resource
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

KAFKA_VERSION: Final = "4.3.1"
_ROOT: Final = Path(__file__).resolve().parents[1]
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
