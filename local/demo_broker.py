"""Copies over the network: a real broker, a store in files, and the commands that a new user runs.

The broker is a process of its own, whose jars Maven fetches the first time. The platform gets the broker's address and
a place for objects, and no path of the broker's disk. Afterwards all objects are compared with the broker's files, byte
for byte; the broker is stopped. The exit code is 0 only if all commands and comparisons succeeded.
"""

import base64
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from include.tiering.broker_process.broker_process import (
    BrokerProcess,
    Ports,
    free_ports,
    logging_option,
    server_properties,
)
from include.tiering.broker_process.kafka_home import java, kafka_by_maven
from include.tiering.errors import BrokerProcessError, KafkaMissingError
from include.tiering.units import KIB, MIB
from local.layout import ROOT
from local.platform import PlatformError
from local.produced import TOPICS, fill

_NODE: Final = 1
_SEGMENT_BYTES: Final = MIB
_RECORDS: Final = 3_000
_VALUE_BYTES: Final = 2_000


def main() -> int:
    directory = Path(tempfile.mkdtemp(prefix="tiering-demo-broker-"))
    held = False
    try:
        with _broker(directory / "broker") as broker:
            config = {"segment.bytes": str(_SEGMENT_BYTES)}
            fill(broker.bootstrap, TOPICS, _RECORDS, value_bytes=_VALUE_BYTES, config=config, batch_bytes=64 * KIB)
            print(f"a broker listens on {broker.bootstrap}; its topics are filled", flush=True)
            held = _commands(directory, broker.bootstrap) and _compare(broker.log_dir, directory / "store")
    except (KafkaMissingError, BrokerProcessError, PlatformError) as error:
        print(error, file=sys.stderr)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    print("all checks passed" if held else "NOT all checks passed")
    return 0 if held else 1


@contextmanager
def _broker(directory: Path) -> Iterator[BrokerProcess]:
    """Start a broker below the directory; stop it when the context ends.

    Raises:
        KafkaMissingError: there is no Java or no Maven.
        BrokerProcessError: the broker does not start.
    """
    java()
    home = kafka_by_maven(os.environ)
    directory.mkdir()
    broker_port, controller_port = free_ports(2)
    log_dir = directory / "data"
    text = server_properties(_NODE, Ports(broker_port, controller_port), log_dir, None, {})
    (directory / "server.properties").write_text(text)
    logging = logging_option(home.version, directory, directory / "server.log")
    broker = BrokerProcess(_NODE, directory, log_dir, broker_port, home.class_path, logging, tiering=False)
    broker.format(base64.urlsafe_b64encode(b"\x01" + secrets.token_bytes(15)).decode().rstrip("="))
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()


def _commands(directory: Path, bootstrap_servers: str) -> bool:
    """Run the commands of a new user, and show what they print; tell whether all of them succeeded."""
    config, store = directory / "tiering.toml", directory / "store"
    store.mkdir()
    environ = {
        **os.environ,
        "TIERING_CONFIG": str(config),
        "TIERING_METADATA__URL": f"sqlite:///{directory / 'metadata.sqlite'}",
        "TIERING_LEADERS__SETTLE_MS": "0",  # Waiting guards against a loss of power.
        "TIERING_LEADERS__SPOOL_DIRECTORY": str(directory),
    }
    places = ["--bootstrap-servers", bootstrap_servers, "--remote-storage", store.as_uri()]
    topics = [option for topic in TOPICS for option in ("--topic", topic)]
    for arguments in (
        ["init", *places, *topics, "--output", str(config)],
        ["migrate"],
        ["ready"],
        ["scan"],
        ["copy"],
        ["verify"],
        ["sizes"],
        ["audit"],
    ):
        print(f"\n$ ./tiering {' '.join(arguments)}", flush=True)
        without = environ if config.exists() else {k: v for k, v in environ.items() if k != "TIERING_CONFIG"}
        done = subprocess.run([str(ROOT / "tiering"), *arguments], env=without, check=False)
        if done.returncode != 0:
            print(f"exit code {done.returncode}")
            return False
    return True


def _compare(log_dir: Path, store: Path) -> bool:
    """Tell whether the objects of each partition, one after the other, are the beginning of the broker's files."""
    print()
    all_equal = True
    for partition in sorted(path for topic in TOPICS for path in log_dir.glob(f"{topic}-*")):
        topic, _, number = partition.name.rpartition("-")
        stored = sorted((log for log in store.rglob("*.log") if _is_of(log, topic, number)), key=lambda log: log.name)
        ours = b"".join(log.read_bytes() for log in stored)
        theirs = b"".join(log.read_bytes() for log in sorted(partition.glob("*.log")))
        equal = bool(ours) and theirs.startswith(ours)
        print(f"{partition.name}: {len(stored)} objects, {len(ours):,} of {len(theirs):,} bytes, ", end="")
        print("equal to the broker's files" if equal else "NOT equal to the broker's files")
        all_equal &= equal
    return all_equal


def _is_of(log: Path, topic: str, number: str) -> bool:
    """Tell whether an object is of the partition: its directory is named like that, below one of its topic."""
    return log.parent.name == number and log.parent.parent.name.startswith(f"{topic}-")


if __name__ == "__main__":
    sys.exit(main())
