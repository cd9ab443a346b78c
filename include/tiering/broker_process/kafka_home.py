"""What a broker needs to start: Java, and the jars of one Kafka release.

The jars include LocalTieredStorage, the storage of Kafka's own tests. They are in a directory that the user names,
or in a directory that Maven fills. Maven's directory gets its name only when it is complete.
"""

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from include.tiering.errors import KafkaMissingError
from include.tiering.settings.fields import cache_home

_OLDEST: Final = 17
_ANSWER_SECONDS: Final = 60


@cache
def java() -> str:
    """Return the path of the program `java` in JAVA_HOME/bin; if none is there, of that on the PATH.

    Raises:
        KafkaMissingError: there is no such program, or the program does not report Java `_OLDEST` or newer.
    """
    home = os.environ.get("JAVA_HOME")
    program = shutil.which("java", path=f"{home}/bin") if home else None
    program = program or shutil.which("java")
    if program is None:
        raise KafkaMissingError(f"java is neither in JAVA_HOME nor on the PATH: a broker needs Java {_OLDEST} or newer")
    output = subprocess.run(
        [program, "-version"], capture_output=True, text=True, timeout=_ANSWER_SECONDS, check=False
    ).stderr
    found = re.search(r'version "(\d+)', output)
    if found is None or int(found[1]) < _OLDEST:
        raise KafkaMissingError(
            f"{program} is no Java {_OLDEST} or newer, which a broker needs: {output.splitlines()[:1]}"
        )
    return program


_FETCH_SECONDS: Final = 300
_SHOWN: Final = 800


@dataclass(frozen=True, slots=True)
class Artifact:
    """A Maven artifact. With `lone`, none of its dependencies is fetched.

    `without` names dependencies, as group:name, that are not fetched.
    """

    group: str
    name: str
    version: str
    classifier: str = ""
    lone: bool = False
    without: tuple[str, ...] = ()


def _nothing(_: Path) -> None:
    """Do nothing: only the jars are needed."""


def fetch(home: Path, artifacts: tuple[Artifact, ...], finish: Callable[[Path], None] = _nothing) -> None:
    """Create `home` with all jars in its `libs`. Do nothing if `home` exists.

    A lock file makes other processes that fetch the same directory wait.

    Args:
        home: the directory.
        artifacts: the artifacts that Maven fetches, with their dependencies (see `Artifact`).
        finish: called with the directory before it gets its final name; it may add files.

    Raises:
        KafkaMissingError: there is no mvn, or mvn failed or ran for five minutes; then `home` does not exist.
    """
    if home.exists():
        return
    home.parent.mkdir(parents=True, exist_ok=True)
    with _exclusive_lock(home.parent / f"{home.name}.lock"):
        if not home.exists():
            _fetch(home, artifacts, finish)


def run(command: list[str], directory: Path) -> None:
    """Run a command. Raises KafkaMissingError if it fails (with the end of its output) or runs for five minutes."""
    name = Path(command[0]).name
    try:
        done = subprocess.run(
            command, cwd=directory, capture_output=True, text=True, timeout=_FETCH_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise KafkaMissingError(f"{name} did not end within {_FETCH_SECONDS} s") from None
    if done.returncode != 0:
        raise KafkaMissingError(f"{name} failed: {(done.stdout + done.stderr)[-_SHOWN:]}")


def _fetch(home: Path, artifacts: tuple[Artifact, ...], finish: Callable[[Path], None]) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise KafkaMissingError(f"mvn is not on the PATH, and the jars of a broker are not in {home} yet")
    with tempfile.TemporaryDirectory(dir=home.parent, prefix=f"{home.name}.") as scratch:
        stage = Path(scratch)
        (stage / "pom.xml").write_text(_pom(artifacts))
        done = stage / "done"
        run([maven, "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={done}/libs"], stage)
        finish(done)
        done.rename(home)


def _pom(artifacts: tuple[Artifact, ...]) -> str:
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>local</groupId><artifactId>jars</artifactId><version>1</version><packaging>pom</packaging>"
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
def _exclusive_lock(lock: Path) -> Iterator[None]:
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


RELEASE: Final = "4.3.1"
"""The release that Maven fetches if no directory with Kafka's jars is given."""
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
    """The jars of a Kafka release; `class_path` is the argument of `java -cp`."""

    version: str
    class_path: str


def kafka_in(directory: Path) -> KafkaHome:
    """Return the release whose jars are in `directory`, or in its `libs` as in a Kafka distribution.

    Raises:
        KafkaMissingError: the directory cannot be read, or the jar that the message names is missing.
    """
    directory = directory.absolute()
    libs = directory / "libs" if (directory / "libs").is_dir() else directory
    try:
        jars = sorted(path.name for path in libs.iterdir())
    except OSError as error:
        raise KafkaMissingError(
            f"{libs}: {(error.strerror or 'not readable').lower()}; it must contain Kafka's jars"
        ) from error
    versions = [found[1] for name in jars if (found := _BROKER.fullmatch(name))]
    if not versions:
        raise KafkaMissingError(
            f"{libs} holds no broker (kafka_SCALA-VERSION.jar): --kafka-home must name a Kafka distribution or a"
            f" directory with its jars; without --kafka-home Maven fetches Kafka {RELEASE}"
        )
    if not any(_TEST_STORAGE.fullmatch(name) for name in jars):
        raise KafkaMissingError(
            f"{libs} lacks kafka-storage-{versions[-1]}-test.jar, Kafka's own storage for tests, which is in no"
            f" distribution: put it there ({KAFKA}:kafka-storage:jar:test:{versions[-1]} on Maven Central), or leave"
            f" --kafka-home (KAFKA_HOME) out, so that Maven fetches Kafka {RELEASE}"
        )
    return KafkaHome(versions[-1], os.pathsep.join([f"{libs}/*", f"{directory}/classes"]))


def kafka_by_maven(environ: Mapping[str, str]) -> KafkaHome:
    """Return Kafka `RELEASE` from the user's cache directory (XDG). Maven fetches it the first time (44 MB).

    Raises:
        KafkaMissingError: there is no mvn, mvn failed, or the cache has a directory of the release that lacks a jar.
    """
    home = cache_home(environ) / "tiering" / "kafka" / RELEASE
    try:
        fetch(home, ARTIFACTS)
    except KafkaMissingError as error:
        raise KafkaMissingError(
            f"{error}; or name a Kafka distribution with kafka-storage-VERSION-test.jar in its libs by --kafka-home"
        ) from error
    return kafka_in(home)
