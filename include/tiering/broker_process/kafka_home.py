"""What a broker is started with: Java, and the jars of one Kafka release with its own test storage.

The jars lie in a directory that somebody has, or in one that Maven fills: it appears at once and whole, or not at all.
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

_OLDEST: Final = 17
_ANSWER_SECONDS: Final = 60


@cache
def java() -> str:
    """The program: JAVA_HOME's, else the one on the PATH.

    Raises:
        KafkaMissingError: there is none, or it is too old for a broker.
    """
    home = os.environ.get("JAVA_HOME")
    program = shutil.which("java", path=f"{home}/bin") if home else None
    program = program or shutil.which("java")
    if program is None:
        raise KafkaMissingError(f"java is neither in JAVA_HOME nor on the PATH: a broker needs Java {_OLDEST} or newer")
    said = subprocess.run(
        [program, "-version"], capture_output=True, text=True, timeout=_ANSWER_SECONDS, check=False
    ).stderr
    found = re.search(r'version "(\d+)', said)
    if found is None or int(found[1]) < _OLDEST:
        raise KafkaMissingError(
            f"{program} is no Java {_OLDEST} or newer, which a broker needs: {said.splitlines()[:1]}"
        )
    return program


_FETCH_SECONDS: Final = 300
_SHOWN: Final = 800


@dataclass(frozen=True, slots=True)
class Artifact:
    """`lone`: without what it depends on. `without`: group:name of dependencies that are left out."""

    group: str
    name: str
    version: str
    classifier: str = ""
    lone: bool = False
    without: tuple[str, ...] = ()


def _nothing(_: Path) -> None:
    """For those who need nothing but the jars."""


def fetch(home: Path, artifacts: tuple[Artifact, ...], finish: Callable[[Path], None] = _nothing) -> None:
    """Make `home` with all jars in its `libs` (6 to 60 s); nothing where it is there already.

    Of two processes that ask at once, one waits. `finish` may add to the directory before it gets its name.

    Raises:
        KafkaMissingError: no mvn, or it could not fetch; `home` is not there then.
    """
    if home.exists():
        return
    home.parent.mkdir(parents=True, exist_ok=True)
    with _alone(home.parent / f"{home.name}.lock"):
        if not home.exists():
            _fetch(home, artifacts, finish)


def run(command: list[str], directory: Path) -> None:
    """Raises KafkaMissingError, with the end of what it said, unless it succeeds within five minutes."""
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
def _alone(lock: Path) -> Iterator[None]:
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


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
