"""Whether producers can tell that history is copied: none, by the broker itself, by this platform at the same rate.

    python -m benchmarks.bench_producers [--rounds 3] [--seconds 20] [--rate-mib 10] [--append FILE] [--page]

One real broker; its history lies cold on the disk, in topics of which each copy takes one. While a steady producer
writes to another topic, the broker copies with its own quota, or `./tiering copy` with ours, or nobody. Ours reads the
broker's log directory, or it reads from the leader, at the default pace. With no copy and with ours from the directory
there is a second case, in which broker and producer run on one half of the cores, and the copy on the other. Cases take
turns within a round. Measured from the moment the first bytes are there: latency of acknowledgements, bytes that the
broker's and the copier's processes had fetched from storage, bytes that were copied, and how long threads of the broker
waited for a core. From the leader, the log was read once before that moment, to find its segments; then it is dropped
from the page cache again. The broker's disk is the broker's: remote storage, the platform's database and its spool lie
in memory, as all of them are elsewhere in earnest.

`--append` keeps complete rounds in a file and counts those that are in it already, so that a long measurement may be
made in several calls on a machine that has other work in between. `--page` writes figures and plot into docs. Exit code
1: no broker can be had here.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from benchmarks import producers_page
from benchmarks.machine import IdleMeter, machine_description
from benchmarks.producers_rounds import (
    ALONE,
    ALONE_APART,
    BROKER,
    CASES,
    LEADERS,
    PLATFORM,
    PLATFORM_APART,
    Measured,
    Round,
    RoundsFile,
    ratios,
    summary,
)
from include.tiering.errors import KafkaMissingError
from include.tiering.units import MIB
from tests.doubles.broker_deployment import BrokerDeployment, broker_deployment
from tests.doubles.kafka_lab.cluster import KafkaCluster, kafka_cluster, wait_until
from tests.doubles.kafka_lab.produce import Writer
from tests.doubles.source_tree import ROOT

SEGMENT_BYTES: Final = 8 * MIB
_VALUE_BYTES: Final = 60_000
_KAFKA_QUOTA: Final = "remote.log.manager.copy.max.bytes.per.second"
_MEMORY: Final = Path("/dev/shm")
_OUR_QUOTA: Final = "tiering.copy.total.max.bytes.per.second"


class Scene:
    """A broker, its deployment, and the topics with history."""

    def __init__(self, cluster: KafkaCluster, deployment: BrokerDeployment, *, rate: int, seconds: float) -> None:
        self._cluster, self._deployment = cluster, deployment
        self._rate, self._seconds = rate, seconds
        self._leaders_config = leaders_config(deployment)
        cluster.create_topic("load", segment_bytes=64 * MIB)

    def measure_round(self, number: int) -> Round:
        """Raises AssertionError if a copy does not begin, or had nothing left to do before the producer ended."""
        turn = number % len(CASES)
        in_turn = CASES[turn:] + CASES[:turn]
        topics = {case: f"history-{number}-{case.replace(' ', '-')}" for case in CASES}
        for case in (BROKER, PLATFORM, LEADERS, PLATFORM_APART):
            self._write_history(topics[case])
        measured = {}
        for case in in_turn:
            measured[case] = self._measure(case, topics[case])
            print(measured[case], file=sys.stderr, flush=True)
        return {case: measured[case] for case in CASES}

    def _measure(self, case: str, topic: str) -> Measured:
        machine_load, broker = os.getloadavg()[0], self._cluster.broker
        all_cores = sorted(os.sched_getaffinity(0))
        half = (len(all_cores) + 1) // 2
        is_apart = case in (ALONE_APART, PLATFORM_APART)
        near, far = (all_cores[:half], all_cores[half:] or all_cores) if is_apart else (all_cores, all_cores)
        _keep_on(broker.pid, near)
        with self._copier(case, topic, far) as copier_pid:
            meter, begun = IdleMeter(), time.monotonic()
            waited_before = _waited_ns(broker.pid)
            before = broker.disk_bytes()[0], _disk_read_bytes(copier_pid), self._copied(topic)
            load = self._produce(near)
            after = broker.disk_bytes()[0], _disk_read_bytes(copier_pid), self._copied(topic)
            waited = _waited_ns(broker.pid)
            waited_seconds = sum(ns - waited_before.get(thread, 0) for thread, ns in waited.items()) / 1e9
            lasted, idle = time.monotonic() - begun, meter.share()
        read, copier_read, copied = (later - earlier for earlier, later in zip(before, after, strict=True))
        return Measured(
            case, load, read, copier_read, copied, round(lasted, 1), idle, round(waited_seconds, 4), machine_load
        )

    def _write_history(self, topic: str) -> None:
        """Enough that the copy outlasts the producer, written back and dropped from the page cache."""
        # Not `internal.segment.bytes`: leaders' logs are cut by the config that every client can read.
        config = {"segment.bytes": str(SEGMENT_BYTES)}
        self._cluster.create_topic(topic, segment_bytes=None, config=config)
        wanted = int(self._rate * (self._seconds + 20)) + 2 * SEGMENT_BYTES
        writer = Writer(self._cluster.bootstrap, batch_bytes=MIB // 2)
        writer.send(topic, [0], wanted // _VALUE_BYTES, value_bytes=_VALUE_BYTES)
        self._drop_pages(topic)

    def _drop_pages(self, topic: str) -> None:
        for path in self._cluster.partition_dir(topic, 0).glob("*.log"):
            with path.open("rb") as log:
                os.fsync(log.fileno())
                os.posix_fadvise(log.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    @contextmanager
    def _copier(self, case: str, topic: str, cores: Sequence[int]) -> Iterator[int | None]:
        """The copy is under way in the block, and has ended after it. Gives the pid of a copier outside the broker."""
        if case in (ALONE, ALONE_APART):
            yield None
        elif case == BROKER:
            self._cluster.alter_topic(topic, remote_storage_enable="true")
            self._await_first_bytes(topic)
            yield None
            self._cluster.alter_topic(topic, remote_log_copy_disable="true")
        else:
            config = self._leaders_config if case == LEADERS else self._deployment.config
            command = [sys.executable, "-m", "include.tiering.cli", "--config", str(config)]
            command += ["copy", "--topic", topic]
            with _on_cores(cores):
                copier = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            with copier:
                try:
                    self._await_first_bytes(topic)
                    if case == LEADERS:
                        self._drop_pages(topic)
                    yield copier.pid
                    assert copier.poll() is None, "the copy ended before the producer"
                finally:
                    copier.terminate()
                    copier.wait(60)

    def _await_first_bytes(self, topic: str) -> None:
        wait_until(lambda: self._copied(topic) > 0, f"segments of {topic} are copied")

    def _copied(self, topic: str) -> int:
        """Bytes that were written, also to objects that are not complete: many segments may be on their way."""
        assert self._cluster.remote_dir is not None
        sizes = {}
        for directory, _, names in os.walk(self._cluster.remote_dir):
            for name in names if f"{topic}-0-" in directory else ():
                with suppress(FileNotFoundError):  # a temporary name that is gone; the object's has the same inode
                    status = Path(directory, name).stat()
                    sizes[status.st_ino] = status.st_size
        return sum(sizes.values())

    def _produce(self, cores: Sequence[int]) -> dict[str, float]:
        command = [sys.executable, "-m", "benchmarks.producer_load", self._cluster.bootstrap, "load"]
        command += ["--seconds", str(self._seconds)]
        with _on_cores(cores):
            producer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        with producer:
            try:
                printed, _ = producer.communicate(timeout=self._seconds + 120)
            finally:
                producer.kill()
        figures: dict[str, float] = json.loads(printed)
        return figures


def leaders_config(deployment: BrokerDeployment) -> Path:
    """Write a second configuration of the deployment: it has the same database and store, and no path of the broker."""
    lines, _, _ = deployment.config.read_text().partition("[[log_dirs]]")
    path = deployment.config.with_name("leaders.toml")
    spool = f'leaders.spool_directory = "{deployment.config.parent}"\nleaders.settle_ms = 0\n'
    path.write_text(f"{lines}{spool}")
    return path


@contextmanager
def _on_cores(cores: Sequence[int]) -> Iterator[None]:
    """A process that is started in the block runs only on these cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _keep_on(pid: int, cores: Sequence[int]) -> None:
    """A running process, with the threads that it will start."""
    for thread in _threads(pid):
        with suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread.name), cores)


def _waited_ns(pid: int) -> dict[str, int]:
    """How long each thread that lives now was ready to run and had no core."""
    waited = {}
    for thread in _threads(pid):
        with suppress(FileNotFoundError, ProcessLookupError):
            waited[thread.name] = int((thread / "schedstat").read_text().split()[1])
    return waited


def _threads(pid: int) -> Sequence[Path]:
    return list(Path(f"/proc/{pid}/task").iterdir())


def _disk_read_bytes(pid: int | None) -> int:
    if pid is None:
        return 0
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["read_bytes"])


def source_version() -> str:
    """The tree of the library in git, so that rounds of two versions are not added up."""
    command = ["git", "rev-parse", "HEAD:include"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Measure what producers notice of a copy; prints JSON.")
    parser.add_argument("--rounds", type=int, default=3, help="to measure now; 0: none (%(default)s)")
    parser.add_argument("--seconds", type=float, default=20.0, help="of one case (%(default)s)")
    parser.add_argument("--rate-mib", type=int, default=10, help="MiB a second, of both quotas (%(default)s)")
    parser.add_argument("--directory", type=Path, help="of the broker, on the disk that is to be measured")
    parser.add_argument("--elsewhere", type=Path, default=_MEMORY, help="remote storage and database (%(default)s)")
    parser.add_argument("--append", type=Path, metavar="FILE", help="keep rounds here, and count those that are here")
    parser.add_argument("--page", action="store_true", help="write docs/producers.md and its plot")
    options = parser.parse_args(arguments)
    machine = machine_description()
    conditions = {
        "rate_mib_per_second": options.rate_mib,
        "seconds": options.seconds,
        "segment_mib": SEGMENT_BYTES // MIB,
        **{name: machine[name] for name in ("cores", "cpu", "kernel")},
        "source": source_version(),
    }
    with tempfile.NamedTemporaryFile() as no_file:
        rounds = RoundsFile(options.append or Path(no_file.name), conditions)
        try:
            if options.rounds:
                measure(rounds, options.rounds, options.rate_mib * MIB, options.seconds, options)
        except KafkaMissingError as error:
            print(f"no broker: {error}", file=sys.stderr)
            return 1
    result: dict[str, Any] = {
        "conditions": conditions,
        "cases": summary(rounds.rounds),
        "ratios": {name: asdict(ratio) for name, ratio in ratios(rounds.rounds).items()},
        "rounds": len(rounds.rounds),
    }
    if options.page:
        producers_page.write(rounds.rounds, conditions)
    print(json.dumps(result))
    return 0


def measure(rounds: RoundsFile, count: int, rate: int, seconds: float, options: argparse.Namespace) -> None:
    with (
        tempfile.TemporaryDirectory(dir=options.directory) as scratch,
        tempfile.TemporaryDirectory(dir=options.elsewhere) as elsewhere,
    ):
        remote, platform = Path(elsewhere, "remote"), Path(elsewhere, "platform")
        quota = {_KAFKA_QUOTA: rate, "remote.log.manager.copy.quota.window.num": 11}
        broker = kafka_cluster(Path(scratch, "kafka"), remote_dir=remote, config=quota, heap_mib=512, niceness=0)
        with broker as cluster:
            deployment = broker_deployment(cluster, platform)
            alter = ("configs", "--alter", "--entity-type", "brokers", "--entity-default", "--add-config")
            assert deployment.command(*alter, f"{_OUR_QUOTA}={rate}").returncode == 0
            scene = Scene(cluster, deployment, rate=rate, seconds=seconds)
            for _ in range(count):
                rounds.append(scene.measure_round(len(rounds.rounds)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
