"""Kafka's jars from Maven: one directory for each broker version below `.cache/kafka`, fetched once.

4.4.0 has no test jars on Maven Central: Kafka's own test storage comes from 4.3.1, with one class that has moved since
put back at its old place (compiled here).
"""

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

VERSIONS: Final = ("4.3.1", "3.9.2", "4.4.0")
_CACHE: Final = Path(__file__).resolve().parents[3] / ".cache" / "kafka"
_FETCH_SECONDS: Final = 300
_OLDEST_JAVA: Final = 17
_KAFKA: Final = "org.apache.kafka"
_OLD_LOG_CONTEXT: Final = """\
package org.apache.kafka.common.utils;

public class LogContext extends org.apache.kafka.common.utils.internals.LogContext {
    public LogContext(String prefix) { super(prefix); }
    public LogContext() { super(); }
}
"""


class LabUnavailableError(Exception):
    """Why no broker can be started on this machine."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """`lone`: without what it depends on. `without`: group:name of dependencies that are left out."""

    group: str
    name: str
    version: str
    classifier: str = ""
    lone: bool = False
    without: tuple[str, ...] = ()


_LOG4J_2: Final = (
    Artifact("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.1"),
    Artifact("org.apache.logging.log4j", "log4j-core", "2.25.1"),
)
_ARTIFACTS: Final = {
    "4.3.1": (
        Artifact(_KAFKA, "kafka_2.13", "4.3.1"),
        Artifact(_KAFKA, "kafka-storage", "4.3.1", "test", lone=True),
        *_LOG4J_2,
    ),
    "3.9.2": (
        Artifact(_KAFKA, "kafka_2.13", "3.9.2"),
        Artifact(_KAFKA, "kafka-storage", "3.9.2", "test", lone=True),
        Artifact("ch.qos.reload4j", "reload4j", "1.2.25"),
        Artifact("org.slf4j", "slf4j-reload4j", "1.7.36"),
    ),
    "4.4.0": (
        Artifact(_KAFKA, "kafka_2.13", "4.4.0", without=(f"{_KAFKA}:kafka-tools-api",)),
        Artifact(_KAFKA, "kafka-tools-api", "4.3.1", lone=True),
        Artifact(_KAFKA, "kafka-storage", "4.3.1", "test", lone=True),
        *_LOG4J_2,
    ),
}


def class_path(version: str) -> str:
    """For `java -cp`. Fetches the jars the first time (6 to 60 s); of two processes that ask at once, one waits.

    Raises:
        LabUnavailableError: no java, no mvn, or Maven could not fetch.
    """
    java()
    home = _CACHE / version
    if not home.exists():
        _CACHE.mkdir(parents=True, exist_ok=True)
        with _alone(_CACHE / f"{version}.lock"):
            if not home.exists():
                _fetch(version, home)
    return os.pathsep.join([f"{home}/libs/*", f"{home}/classes"])


@cache
def java() -> str:
    """The Java to run things with: JAVA_HOME's, else the one on the PATH.

    Raises:
        LabUnavailableError: there is none, or it is too old for a broker.
    """
    home = os.environ.get("JAVA_HOME")
    program = shutil.which("java", path=f"{home}/bin") if home else None
    program = program or shutil.which("java")
    if program is None:
        raise LabUnavailableError("java is not on the PATH")
    said = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=60, check=False).stderr
    found = re.search(r'version "(\d+)', said)
    if found is None or int(found[1]) < _OLDEST_JAVA:
        raise LabUnavailableError(f"{program} is no Java {_OLDEST_JAVA} or newer: {said.splitlines()[:1]}")
    return program


def _fetch(version: str, home: Path) -> None:
    maven, compiler = shutil.which("mvn"), shutil.which("javac")
    if maven is None:
        raise LabUnavailableError(f"mvn is not on the PATH, and Kafka {version} is not in {_CACHE}")
    with tempfile.TemporaryDirectory(dir=_CACHE, prefix=f"{version}.") as scratch:
        stage = Path(scratch)
        (stage / "pom.xml").write_text(_pom(_ARTIFACTS[version]))
        _run([maven, "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={stage}/done/libs"], stage)
        classes = stage / "done" / "classes"
        classes.mkdir()
        if version == "4.4.0":
            if compiler is None:
                raise LabUnavailableError("javac is not on the PATH: Kafka 4.4.0 needs one class compiled")
            (stage / "LogContext.java").write_text(_OLD_LOG_CONTEXT)
            _run([compiler, "-cp", f"{stage}/done/libs/*", "-d", str(classes), "LogContext.java"], stage)
        (stage / "done").rename(home)


def _run(command: list[str], directory: Path) -> None:
    try:
        done = subprocess.run(
            command, cwd=directory, capture_output=True, text=True, timeout=_FETCH_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise LabUnavailableError(f"{Path(command[0]).name} did not end within {_FETCH_SECONDS} s") from None
    if done.returncode != 0:
        raise LabUnavailableError(f"{Path(command[0]).name} failed: {(done.stdout + done.stderr)[-800:]}")


def _pom(artifacts: tuple[Artifact, ...]) -> str:
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>local</groupId><artifactId>kafka-lab</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{''.join(map(_dependency, artifacts))}</dependencies></project>"
    )


def _dependency(artifact: Artifact) -> str:
    left_out = ("*:*",) if artifact.lone else artifact.without
    exclusions = "".join(
        "<exclusion><groupId>{}</groupId><artifactId>{}</artifactId></exclusion>".format(*name.split(":"))
        for name in left_out
    )
    classifier = f"<classifier>{artifact.classifier}</classifier>" if artifact.classifier else ""
    return (
        f"<dependency><groupId>{artifact.group}</groupId><artifactId>{artifact.name}</artifactId>"
        f"<version>{artifact.version}</version>{classifier}<exclusions>{exclusions}</exclusions></dependency>"
    )


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
