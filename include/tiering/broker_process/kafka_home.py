"""The jars of one Kafka release with its own test storage: a directory that somebody has, or one that Maven fills."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from include.tiering.broker_process.maven import Artifact, fetch
from include.tiering.errors import KafkaMissingError

RELEASE: Final = "4.3.1"
"""What Maven fetches where no release is named."""
KAFKA: Final = "org.apache.kafka"
LOG4J_2: Final = (
    Artifact("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.1"),
    Artifact("org.apache.logging.log4j", "log4j-core", "2.25.1"),
)
ARTIFACTS: Final = (
    Artifact(KAFKA, "kafka_2.13", RELEASE),
    Artifact(KAFKA, "kafka-storage", RELEASE, "test", lone=True),
    *LOG4J_2,
)
_BROKER: Final = re.compile(r"kafka_\d+\.\d+-(\d+\.\d+\.\d+.*)\.jar")
_TEST_STORAGE: Final = re.compile(r"kafka-storage-.+-test\.jar")


@dataclass(frozen=True, slots=True)
class KafkaHome:
    """`class_path` is for `java -cp`."""

    version: str
    class_path: str


def kafka_in(directory: Path) -> KafkaHome:
    """The release whose jars lie in `directory`, or in its `libs` as in Kafka's own distribution.

    Raises:
        KafkaMissingError: names the jar that is missing.
    """
    directory = directory.absolute()
    libs = directory / "libs" if (directory / "libs").is_dir() else directory
    try:
        jars = sorted(path.name for path in libs.iterdir())
    except OSError as error:
        raise KafkaMissingError(
            f"{libs}: {(error.strerror or 'not readable').lower()}; it is to hold Kafka's jars"
        ) from error
    versions = [found[1] for name in jars if (found := _BROKER.fullmatch(name))]
    if not versions:
        raise KafkaMissingError(
            f"{libs} holds no broker (kafka_SCALA-VERSION.jar): --kafka-home names a Kafka distribution or a directory"
            f" with its jars; without it Maven fetches Kafka {RELEASE}"
        )
    if not any(_TEST_STORAGE.fullmatch(name) for name in jars):
        raise KafkaMissingError(
            f"{libs} lacks kafka-storage-{versions[-1]}-test.jar, Kafka's own storage for tests, which is in no"
            f" distribution: put it there ({KAFKA}:kafka-storage:jar:test:{versions[-1]} on Maven Central), or leave"
            f" --kafka-home (KAFKA_HOME) out and Maven fetches Kafka {RELEASE}"
        )
    return KafkaHome(versions[-1], os.pathsep.join([f"{libs}/*", f"{directory}/classes"]))


def kafka_by_maven(environ: Mapping[str, str]) -> KafkaHome:
    """Kafka `RELEASE` in the user's cache directory (XDG), fetched the first time: 44 MB.

    Raises:
        KafkaMissingError: no mvn, or it could not fetch.
    """
    home = _cache(environ) / "tiering" / "kafka" / RELEASE
    try:
        fetch(home, ARTIFACTS)
    except KafkaMissingError as error:
        raise KafkaMissingError(
            f"{error}; or name a Kafka distribution with --kafka-home, kafka-storage-VERSION-test.jar among its libs"
        ) from error
    return kafka_in(home)


def _cache(environ: Mapping[str, str]) -> Path:
    cache_home = environ.get("XDG_CACHE_HOME", "")
    return Path(cache_home) if cache_home.startswith("/") else Path(environ.get("HOME") or Path.home()) / ".cache"
