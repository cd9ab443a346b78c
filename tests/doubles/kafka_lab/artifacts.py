"""Kafka's jars from Maven: one directory for each broker version below `.cache/kafka`, fetched once.

4.4.0 has no test jars on Maven Central: Kafka's own test storage comes from 4.3.1, with one class that has moved since
put back at its old place (compiled here).
"""

import os
import shutil
from pathlib import Path
from typing import Final

from include.tiering.broker_process import kafka_home
from include.tiering.broker_process.kafka_home import KAFKA, LOG4J_2, Artifact, fetch, java, run
from include.tiering.errors import KafkaMissingError

VERSIONS: Final = (kafka_home.RELEASE, "3.9.2", "4.4.0")
_CACHE: Final = Path(__file__).resolve().parents[3] / ".cache" / "kafka"
_OLD_LOG_CONTEXT: Final = """\
package org.apache.kafka.common.utils;

public class LogContext extends org.apache.kafka.common.utils.internals.LogContext {
    public LogContext(String prefix) { super(prefix); }
    public LogContext() { super(); }
}
"""
_ARTIFACTS: Final = {
    kafka_home.RELEASE: kafka_home.ARTIFACTS,
    "3.9.2": (
        Artifact(KAFKA, "kafka_2.13", "3.9.2"),
        Artifact(KAFKA, "kafka-storage", "3.9.2", "test", lone=True),
        Artifact("ch.qos.reload4j", "reload4j", "1.2.25"),
        Artifact("org.slf4j", "slf4j-reload4j", "1.7.36"),
    ),
    "4.4.0": (
        Artifact(KAFKA, "kafka_2.13", "4.4.0", without=(f"{KAFKA}:kafka-tools-api",)),
        Artifact(KAFKA, "kafka-tools-api", "4.3.1", lone=True),
        Artifact(KAFKA, "kafka-storage", "4.3.1", "test", lone=True),
        *LOG4J_2,
    ),
}


def jars(version: str) -> Path:
    """A directory with the jars in its `libs`. Fetches them the first time (6 to 60 s); of two processes that ask at
    once, one waits.

    Raises:
        KafkaMissingError: no java, no mvn, or Maven could not fetch.
    """
    java()
    home = _CACHE / version
    fetch(home, _ARTIFACTS[version], _add_moved_class if version == "4.4.0" else _add_nothing)
    return home


def class_path(version: str) -> str:
    """For `java -cp`. Raises as `jars` does."""
    home = jars(version)
    return os.pathsep.join([f"{home}/libs/*", f"{home}/classes"])


def _add_nothing(_: Path) -> None:
    """Most releases are complete."""


def _add_moved_class(home: Path) -> None:
    compiler = shutil.which("javac")
    if compiler is None:
        raise KafkaMissingError("javac is not on the PATH: Kafka 4.4.0 needs one class compiled")
    classes = home / "classes"
    classes.mkdir()
    source = home / "LogContext.java"
    source.write_text(_OLD_LOG_CONTEXT)
    run([compiler, "-cp", f"{home}/libs/*", "-d", str(classes), str(source)], home)
