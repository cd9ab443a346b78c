"""Java programs of one file, run from their source on a broker version's class path."""

import os
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from include.tiering.broker_process.kafka_home import java
from include.tiering.errors import KafkaMissingError
from tests.doubles.kafka_lab.artifacts import class_path

_PROGRAMS: Final = Path(__file__).parent / "java"
_RUN_SECONDS: Final = 300


def run_program(name: str, *arguments: str, given: bytes = b"", version: str = "4.3.1") -> bytes:
    """What `java/<name>.java` writes to its standard output when it reads `given`; 2 to 4 s for the compiler and JVM.

    It runs in a directory of its own: Kafka's test jars bring a logging configuration that writes where they run.

    Raises:
        KafkaMissingError: no Java, no jars.
        AssertionError: the program failed, or did not end within 300 s.
    """
    options = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
    source = _PROGRAMS / f"{name}.java"
    command = ["nice", "-n", "10", java(), *options, "-cp", class_path(version), str(source), *arguments]
    environment = {key: value for key, value in os.environ.items() if key != "CLASSPATH"}
    try:
        with TemporaryDirectory() as directory:
            done = subprocess.run(
                command,
                input=given,
                cwd=directory,
                capture_output=True,
                timeout=_RUN_SECONDS,
                check=False,
                env=environment,
            )
    except subprocess.TimeoutExpired:
        raise AssertionError(f"{source.name} did not end within {_RUN_SECONDS} s") from None
    complaint = done.stderr.decode(errors="replace")
    if "jdk.compiler" in complaint:
        raise KafkaMissingError("this Java runs no sources: a JDK is needed")
    assert done.returncode == 0, f"{source.name}: {complaint[-2000:]}"
    return done.stdout
