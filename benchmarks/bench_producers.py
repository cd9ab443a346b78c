"""Whether producers can tell that history is copied: none, by the broker itself, by this platform at the same rate.

    python -m benchmarks.bench_producers [--rounds 3] [--seconds 40] [--rate-mib 10] [--page]

One real broker; its history lies cold on the disk, in topics of which each copy takes one. While a steady producer
writes to another topic, the broker copies with its own quota, or `./tiering copy` with ours, or nobody. Cases take
turns within a round. Measured from the moment the first object is there: latency of acknowledgements, bytes that the
broker's and the copier's processes had fetched from storage, bytes that were copied. The broker's disk is the
broker's: remote storage and the platform's database lie in memory, as both are elsewhere in earnest. `--page` writes
the figures and the plot into docs. Exit code 1: no broker can be had here.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks import producers_page
from benchmarks.machine import IdleMeter, machine_description
from include.tiering.errors import KafkaMissingError
from include.tiering.units import MIB
from tests.doubles.broker_deployment import BrokerDeployment, broker_deployment
from tests.doubles.kafka_lab.cluster import KafkaCluster, kafka_cluster, wait_until
from tests.doubles.kafka_lab.produce import Writer

CASES: Final = ("none", "broker", "platform")
SEGMENT_BYTES: Final = 8 * MIB
_VALUE_BYTES: Final = 60_000
_KAFKA_QUOTA: Final = "remote.log.manager.copy.max.bytes.per.second"
_MEMORY: Final = Path("/dev/shm")
_OUR_QUOTA: Final = "tiering.copy.total.max.bytes.per.second"


@dataclass(frozen=True, slots=True)
class Measured:
    """One case of one round. Bytes are those of the measured time; `idle`: share of the machine's cores."""

    case: str
    round: int
    load: dict[str, float]
    broker_disk_read_bytes: int
    copier_disk_read_bytes: int
    copied_bytes: int
    seconds: float
    idle: float


class Scene:
    """A broker, its deployment, and the topics with history."""

    def __init__(self, cluster: KafkaCluster, deployment: BrokerDeployment, *, rate: int, seconds: float) -> None:
        self._cluster, self._deployment = cluster, deployment
        self._rate, self._seconds = rate, seconds
        cluster.create_topic("load", segment_bytes=64 * MIB)

    def measure(self, case: str, round_: int) -> Measured:
        """Raises AssertionError if a copy does not begin, or had nothing left to do before the producer ended."""
        topic = f"history-{case}-{round_}"
        if case != "none":
            self._write_history(topic)
        with self._copier(case, topic) as copier_pid:
            broker = self._cluster.broker
            meter, begun = IdleMeter(), time.monotonic()
            before = broker.disk_bytes()[0], _disk_read_bytes(copier_pid), self._copied(topic)
            load = self._produce()
            after = broker.disk_bytes()[0], _disk_read_bytes(copier_pid), self._copied(topic)
            lasted, idle = time.monotonic() - begun, meter.share()
        read, copier_read, copied = (later - earlier for earlier, later in zip(before, after, strict=True))
        return Measured(case, round_, load, read, copier_read, copied, round(lasted, 1), idle)

    def _write_history(self, topic: str) -> None:
        """Enough that the copy outlasts the producer, written back and dropped from the page cache."""
        self._cluster.create_topic(topic, segment_bytes=SEGMENT_BYTES)
        wanted = int(self._rate * (self._seconds + 15)) + 2 * SEGMENT_BYTES
        writer = Writer(self._cluster.bootstrap, batch_bytes=MIB // 2)
        writer.send(topic, [0], wanted // _VALUE_BYTES, value_bytes=_VALUE_BYTES)
        for path in self._cluster.partition_dir(topic, 0).glob("*.log"):
            with path.open("rb") as log:
                os.fsync(log.fileno())
                os.posix_fadvise(log.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    @contextmanager
    def _copier(self, case: str, topic: str) -> Iterator[int | None]:
        """The copy is under way in the block, and has ended after it. Gives the pid of a copier outside the broker."""
        if case == "none":
            yield None
        elif case == "broker":
            self._cluster.alter_topic(topic, remote_storage_enable="true")
            self._await_first_object(topic)
            yield None
            self._cluster.alter_topic(topic, remote_log_copy_disable="true")
        else:
            command = [sys.executable, "-m", "include.tiering.cli", "--config", str(self._deployment.config)]
            command += ["copy", "--topic", topic]
            with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as copier:
                try:
                    self._await_first_object(topic)
                    yield copier.pid
                    assert copier.poll() is None, "the copy ended before the producer"
                finally:
                    copier.terminate()
                    copier.wait(60)

    def _await_first_object(self, topic: str) -> None:
        wait_until(lambda: self._copied(topic) > 0, f"a segment of {topic} is copied")

    def _copied(self, topic: str) -> int:
        logs = self._cluster.stored.glob(f"{topic}-0-*/*.log")
        return sum(path.stat().st_size for path in logs)

    def _produce(self) -> dict[str, float]:
        command = [sys.executable, "-m", "benchmarks.producer_load", self._cluster.bootstrap, "load"]
        command += ["--seconds", str(self._seconds)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=self._seconds + 120, check=True)
        figures: dict[str, float] = json.loads(done.stdout)
        return figures


def _disk_read_bytes(pid: int | None) -> int:
    if pid is None:
        return 0
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["read_bytes"])


def medians(measured: Sequence[Measured]) -> dict[str, dict[str, float]]:
    """By case. `p99_least_ms` and `p99_most_ms` are those of its rounds."""
    found = {}
    for case in CASES:
        rounds = [measured_round for measured_round in measured if measured_round.case == case]
        p99s = [measured_round.load["p99_ms"] for measured_round in rounds]
        found[case] = {
            "p50_ms": statistics.median(measured_round.load["p50_ms"] for measured_round in rounds),
            "p99_ms": statistics.median(p99s),
            "p99_least_ms": min(p99s),
            "p99_most_ms": max(p99s),
            "broker_read_mib_per_second": _rate(rounds, "broker_disk_read_bytes"),
            "copier_read_mib_per_second": _rate(rounds, "copier_disk_read_bytes"),
            "copied_mib_per_second": _rate(rounds, "copied_bytes"),
            "idle": statistics.median(measured_round.idle for measured_round in rounds),
        }
    return found


def _rate(rounds: Sequence[Measured], name: str) -> float:
    return round(
        statistics.median(getattr(measured_round, name) / measured_round.seconds for measured_round in rounds) / MIB, 2
    )


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Measure what producers notice of a copy; prints JSON.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=40.0, help="of one case")
    parser.add_argument("--rate-mib", type=int, default=10, help="MiB a second, of both quotas")
    parser.add_argument("--directory", type=Path, help="of the broker, on the disk that is to be measured")
    parser.add_argument("--elsewhere", type=Path, default=_MEMORY, help="remote storage and database (%(default)s)")
    parser.add_argument("--page", action="store_true", help="write docs/producers.md and its plot")
    options = parser.parse_args(arguments)
    rate = options.rate_mib * MIB
    measured: list[Measured] = []
    with (
        tempfile.TemporaryDirectory(dir=options.directory) as scratch,
        tempfile.TemporaryDirectory(dir=options.elsewhere) as elsewhere,
    ):
        remote, platform = Path(elsewhere, "remote"), Path(elsewhere, "platform")
        quota = {_KAFKA_QUOTA: rate, "remote.log.manager.copy.quota.window.num": 11}
        broker = kafka_cluster(Path(scratch, "kafka"), remote_dir=remote, config=quota, heap_mib=512, niceness=0)
        try:
            with broker as cluster:
                deployment = broker_deployment(cluster, platform)
                alter = ("configs", "--alter", "--entity-type", "brokers", "--entity-default", "--add-config")
                assert deployment.command(*alter, f"{_OUR_QUOTA}={rate}").returncode == 0
                scene = Scene(cluster, deployment, rate=rate, seconds=options.seconds)
                for round_ in range(options.rounds):
                    turn = round_ % len(CASES)
                    for case in CASES[turn:] + CASES[:turn]:
                        measured.append(scene.measure(case, round_))
                        print(f"{measured[-1]}", file=sys.stderr, flush=True)
        except KafkaMissingError as error:
            print(f"no broker: {error}", file=sys.stderr)
            return 1
    result: dict[str, Any] = {
        "rate_mib_per_second": options.rate_mib,
        "seconds": options.seconds,
        "cases": medians(measured),
        "rounds": [asdict(measured_round) for measured_round in measured],
    }
    if options.page:
        producers_page.write(result, machine_description())
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
