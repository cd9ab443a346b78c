"""Jars by Maven: a directory of them appears at once and whole, or not at all."""

import fcntl
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from include.tiering.errors import KafkaMissingError

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
