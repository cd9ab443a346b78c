"""One batch that copies from a live broker over Kafka's protocol, beside a plain consumer and beside the broker's disk.

    python -m benchmarks.bench_fetch [--rounds 3] [--size-mib 1024] [--directory DIR] [--elsewhere DIR]

A real broker gets two topics of four partitions, in batches of 16 KiB: records of 1,000 bytes, and records of 16,000
bytes, of which each batch has one. The rolled segments of each are read, by turns within a round:

    leaders     `tiering copy` with bootstrap servers alone: the plan, which reads the log once, and one batch
    log dirs    the same with the broker's log directory
    consumer    confluent-kafka, which is librdkafka, at its defaults: it asks each record for its size, and no more

Everything is in the page cache, remote storage and database lie in memory, the spool on the disk, and nothing but the
machine limits a rate: no copy quota is set, and `leaders.max_bytes_per_second` is 10 GB/s. Start-up is not counted. GB
are 10^9 bytes of the segments. CPU of the broker is that of its process in the counted time of a client. Memory is the
peak of the whole process, imports included, with the settings at their defaults.

Then the log is dropped from the page cache, and read by each once more, by the leaders at the default pace: which bytes
come from the disk for which process, how the requests are spread, and how much of the log is in the page cache then.

Last, a batch copies to a real S3 server that is 15 ms away each way and gives a connection 85 MB/s: then as many
transfers as the settings allow are in flight, which is what costs memory.

Exit code 1: no broker can be had here; or a batch from leaders has less than 0.7 of the rate of a batch from log dirs,
or needs 200 MiB or more.
"""

import argparse
import ctypes
import json
import mmap
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil
from confluent_kafka import Producer

from benchmarks.bench_far import far_from
from benchmarks.bench_upload import BUCKET
from benchmarks.copy_once import COMMAND, begin, ready_batches
from benchmarks.machine import machine_description
from include.tiering.errors import KafkaMissingError
from include.tiering.units import KIB, MIB
from tests.doubles.kafka_lab.cluster import KafkaCluster, client_configuration, kafka_cluster
from tests.doubles.s3_server import CREDENTIALS, find_versitygw, versitygw_server

PARTITIONS: Final = 4
SEGMENT_BYTES: Final = 64 * MIB
LEADERS, LOG_DIRS, CONSUMER = "leaders", "log dirs", "consumer"
RECORD_BYTES: Final = (1_000, 16_000)
LEAST: Final = 0.7
"""How many times the rate of a batch from log dirs a batch from leaders must have."""
MOST_MIB: Final = 200
_BATCH_BYTES: Final = 16 * KIB
_UNLIMITED: Final = {"TIERING_LEADERS__MAX_BYTES_PER_SECOND": "10000000000"}
_MEMORY: Final = Path("/dev/shm")
_FLUSH_SECONDS: Final = 120.0
_DELAY_MS: Final = 15.0


@dataclass(frozen=True, slots=True)
class Run:
    """What one client said of itself, and what the broker's process used meanwhile.

    Attributes:
        account: of the batch or the consumer.
        plan: of the plan of a copy, without the broker's part.
        broker_cpu_seconds, broker_disk_read_bytes: of the batch or the consumer.
        plan_broker_cpu_seconds, plan_broker_disk_read_bytes: of the plan.
    """

    account: dict[str, Any]
    broker_cpu_seconds: float
    broker_disk_read_bytes: int
    plan: dict[str, Any] | None = None
    plan_broker_cpu_seconds: float = 0.0
    plan_broker_disk_read_bytes: int = 0

    @property
    def seconds(self) -> float:
        return float(self.account["ended"] - self.account["begun"])


class Scene:
    """A topic of a broker, and the clients that read it."""

    def __init__(self, cluster: KafkaCluster, scratch: Path, elsewhere: Path, record_bytes: int) -> None:
        self._cluster, self._scratch, self.elsewhere = cluster, scratch, elsewhere
        self._record_bytes = record_bytes
        self._topic = f"records-{record_bytes}"
        self._process = psutil.Process(cluster.broker.pid)
        self.ends: list[int] = []
        self.size_bytes = 0

    def fill(self, size_bytes: int, segment_bytes: int) -> None:
        """Produce until each partition has its part in rolled segments; those and no others are read."""
        # Not `internal.segment.bytes`: leaders' logs are cut by the config that every client can read.
        config = {"segment.bytes": str(segment_bytes)}
        self._cluster.create_topic(self._topic, partitions=PARTITIONS, segment_bytes=None, config=config)
        producer = Producer(
            {
                **client_configuration(self._cluster.bootstrap),
                "batch.size": _BATCH_BYTES,
                "linger.ms": 50,
                "acks": "all",
                "queue.buffering.max.messages": 32 * MIB // self._record_bytes,
            }
        )
        value = os.urandom(self._record_bytes)
        for number in range((size_bytes + PARTITIONS * segment_bytes) // self._record_bytes):
            while True:
                try:
                    producer.produce(self._topic, value, partition=number % PARTITIONS)
                    break
                except BufferError:
                    producer.poll(0.1)
        if producer.flush(_FLUSH_SECONDS):
            raise RuntimeError(f"records were not acknowledged within {_FLUSH_SECONDS:.0f} s")
        for partition in range(PARTITIONS):
            logs = sorted(self._cluster.partition_dir(self._topic, partition).glob("*.log"))
            self.ends.append(int(logs[-1].stem))
            self.size_bytes += sum(log.stat().st_size for log in logs[:-1])

    def drop_pages(self) -> None:
        """Write the topic's log back, and drop it from the page cache."""
        for path in self._logs():
            with path.open("rb") as log:
                os.fsync(log.fileno())
                os.posix_fadvise(log.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def cached_share(self) -> float:
        """The share of the topic's log that is in the page cache now."""
        cached, size_bytes = 0, 0
        for path in self._logs():
            with path.open("rb") as log, mmap.mmap(log.fileno(), 0, access=mmap.ACCESS_COPY) as mapped:
                pages = ctypes.create_string_buffer(-(-len(mapped) // mmap.PAGESIZE))
                first = ctypes.c_char.from_buffer(mapped)
                address = ctypes.c_void_p(ctypes.addressof(first))
                if ctypes.CDLL(None, use_errno=True).mincore(address, ctypes.c_size_t(len(mapped)), pages):
                    raise OSError(ctypes.get_errno(), f"mincore of {path}")
                del first
                cached += sum(page & 1 for page in pages.raw)
                size_bytes += len(pages)
        return round(cached / size_bytes, 3)

    def _logs(self) -> list[Path]:
        parts = (self._cluster.partition_dir(self._topic, partition) for partition in range(PARTITIONS))
        return [path for part in parts for path in part.glob("*.log")]

    def read_pages(self) -> None:
        """Bring the topic's log into the page cache."""
        for path in self._logs():
            with path.open("rb") as log:
                while log.read(MIB):
                    pass

    def consume(self) -> Run:
        command = [sys.executable, "-m", "benchmarks.plain_consumer", self._cluster.bootstrap, self._topic]
        command += map(str, self.ends)
        done, cpu_seconds, read_bytes = self._watched(lambda: subprocess.check_output(command))
        return Run(json.loads(done), cpu_seconds, read_bytes)

    def copy(self, settings: dict[str, str]) -> Run:
        """Plan a copy with a database of its own, and run one batch.

        Raises:
            RuntimeError: the plan or the batch has other bytes than the rolled segments.
        """
        shutil.rmtree(self.elsewhere, ignore_errors=True)
        self.elsewhere.mkdir()
        environment = {
            **os.environ,
            "TIERING_TOPICS__INCLUDE": self._topic,
            "TIERING_METADATA__URL": f"sqlite:///{self.elsewhere / 'metadata.sqlite'}",
            "TIERING_REMOTE_STORAGE__URL": f"file://{self.elsewhere / 'store'}",
            "TIERING_CLUSTER__BOOTSTRAP_SERVERS": self._cluster.bootstrap,
            **settings,
        }
        planned, plan_cpu_seconds, plan_read_bytes = self._watched(
            lambda: subprocess.check_output([*COMMAND, "plan"], env=environment)
        )
        plan = json.loads(planned)
        with ready_batches(1, environment) as (process,):

            def finish() -> bytes:
                begin([process])
                return process.communicate()[0].encode()

            copied, cpu_seconds, read_bytes = self._watched(finish)
        account = json.loads(copied)
        if not account["copied_bytes"] == plan["planned_bytes"] == self.size_bytes:
            raise RuntimeError(f"{self.size_bytes} bytes were to be copied; plan {plan}, batch {account}")
        return Run(account, cpu_seconds, read_bytes, plan, plan_cpu_seconds, plan_read_bytes)

    def from_leaders(self, settings: dict[str, str]) -> Run:
        spool = {"TIERING_LEADERS__SPOOL_DIRECTORY": str(self._scratch), "TIERING_LEADERS__SETTLE_MS": "0"}
        return self.copy({**spool, **settings})

    def from_log_dirs(self, settings: dict[str, str]) -> Run:
        return self.copy({"TIERING_LOG_DIRS": f"1:{self._cluster.broker.log_dir}", **settings})

    def _watched(self, run: Callable[[], bytes]) -> tuple[bytes, float, int]:
        """Return what it printed, and the CPU seconds and the bytes from storage of the broker meanwhile."""
        cpu, read_bytes = self._process.cpu_times(), self._cluster.broker.disk_bytes()[0]
        printed = run()
        now = self._process.cpu_times()
        used = now.user + now.system - cpu.user - cpu.system
        return printed, used, self._cluster.broker.disk_bytes()[0] - read_bytes


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="(%(default)s)")
    parser.add_argument("--size-mib", type=int, default=1024, help="of each topic, about (%(default)s)")
    parser.add_argument("--segment-mib", type=int, default=SEGMENT_BYTES // MIB, help="(%(default)s)")
    parser.add_argument("--directory", type=Path, help="of the broker and the spool")
    parser.add_argument("--elsewhere", type=Path, default=_MEMORY, help="remote storage and database (%(default)s)")
    options = parser.parse_args(arguments)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="bench-fetch-", dir=options.directory) as scratch,
            tempfile.TemporaryDirectory(prefix="bench-fetch-", dir=options.elsewhere) as elsewhere,
            kafka_cluster(Path(scratch, "kafka"), heap_mib=512, niceness=0) as cluster,
        ):
            topics = {
                record_bytes: _measure(
                    Scene(cluster, Path(scratch), Path(elsewhere, "platform"), record_bytes), options
                )
                for record_bytes in RECORD_BYTES
            }
    except KafkaMissingError as error:
        print(f"no broker: {error}", file=sys.stderr)
        return 1
    result = {"machine": machine_description(), "segment_mib": options.segment_mib, "record_bytes": topics}
    print(json.dumps(result))
    is_slow = any(topic["times"][LOG_DIRS]["median"] < LEAST for topic in topics.values())
    peak_mib = max(
        figures[LEADERS]["peak_resident_mib"]
        for topic in topics.values()
        for figures in (topic["clients"], topic["far"])
        if LEADERS in figures
    )
    return int(is_slow or peak_mib >= MOST_MIB)


def _measure(scene: Scene, options: argparse.Namespace) -> dict[str, Any]:
    scene.fill(options.size_mib * MIB, options.segment_mib * MIB)
    scene.read_pages()
    rounds = [_round(scene, number) for number in range(options.rounds)]
    return {
        "size_mib": round(scene.size_bytes / MIB, 1),
        "rounds": options.rounds,
        "clients": {client: _figures([each[client] for each in rounds], scene.size_bytes) for client in rounds[0]},
        "plan": _plan_figures([each[LEADERS] for each in rounds], scene.size_bytes),
        "times": {other: _times(rounds, other) for other in (CONSUMER, LOG_DIRS)},
        "cold": _cold(scene),
        "far": _far(scene),
    }


def _round(scene: Scene, number: int) -> dict[str, Run]:
    clients: dict[str, Callable[[], Run]] = {
        LEADERS: lambda: scene.from_leaders(_UNLIMITED),
        LOG_DIRS: lambda: scene.from_log_dirs({}),
        CONSUMER: scene.consume,
    }
    turn = number % len(clients)
    measured = {}
    for client in [*clients][turn:] + [*clients][:turn]:
        os.sync()
        run = measured[client] = clients[client]()
        print(f"round {number + 1}, {client}: {run.seconds:.2f} s", file=sys.stderr, flush=True)
    return {client: measured[client] for client in clients}


def _figures(runs: Sequence[Run], size_bytes: int) -> dict[str, float]:
    gb = size_bytes / 1e9
    found = {
        "mb_per_second": round(statistics.median(1000 * gb / run.seconds for run in runs), 1),
        "cpu_seconds_per_gb": round(statistics.median(run.account["cpu_seconds"] / gb for run in runs), 3),
        "broker_cpu_seconds_per_gb": round(statistics.median(run.broker_cpu_seconds / gb for run in runs), 3),
        "peak_resident_mib": round(max(run.account["peak_resident_bytes"] for run in runs) / MIB, 1),
    }
    reads = runs[0].account.get("reads")
    return found if reads is None else {**found, "requests_per_gb": round(reads["requests"] / gb, 1)}


def _plan_figures(runs: Sequence[Run], size_bytes: int) -> dict[str, float]:
    plans = [(run.plan, run.plan_broker_cpu_seconds) for run in runs if run.plan is not None]
    gb = size_bytes / 1e9
    return {
        "mb_per_second": round(
            statistics.median(plan["reads"]["bytes"] / 1e6 / (plan["ended"] - plan["begun"]) for plan, _ in plans), 1
        ),
        "cpu_seconds_per_gb": round(statistics.median(plan["cpu_seconds"] / gb for plan, _ in plans), 3),
        "broker_cpu_seconds_per_gb": round(statistics.median(cpu / gb for _, cpu in plans), 3),
        "peak_resident_mib": round(max(plan["peak_resident_bytes"] for plan, _ in plans) / MIB, 1),
        "requests_per_gb": round(statistics.median(plan["reads"]["requests"] / gb for plan, _ in plans), 1),
    }


def _times(rounds: Sequence[dict[str, Run]], other: str) -> dict[str, float]:
    """How many times the rate of another client the batch from leaders has, in pairs of the same round."""
    ratios = [each[other].seconds / each[LEADERS].seconds for each in rounds]
    return {
        "median": round(statistics.median(ratios), 3),
        "least": round(min(ratios), 3),
        "most": round(max(ratios), 3),
    }


def _cold(scene: Scene) -> dict[str, Any]:
    """Read the log from the disk, once by each client."""
    gb, found = scene.size_bytes / 1e9, {}
    for client, read in {
        LEADERS: lambda: scene.from_leaders({}),
        LOG_DIRS: lambda: scene.from_log_dirs({}),
        CONSUMER: scene.consume,
    }.items():
        scene.drop_pages()
        run = read()
        found[client] = {
            "mb_per_second": round(1000 * gb / run.seconds, 1),
            "broker_disk_read_per_byte": round(
                (run.broker_disk_read_bytes + run.plan_broker_disk_read_bytes) / scene.size_bytes, 3
            ),
            "disk_read_per_byte": round(run.account["disk_read_bytes"] / scene.size_bytes, 3),
            "log_in_page_cache": scene.cached_share(),
        }
        if client == LEADERS and run.plan is not None:
            found[client]["plan"] = run.plan["reads"]
            found[client]["batch"] = run.account["reads"]
    return found


def _far(scene: Scene) -> dict[str, Any]:
    """Copy to a store that is far away, from leaders and from the log directory."""
    binary = find_versitygw()
    if binary is None:
        return {"skipped": "versitygw is not here: make s3-server"}
    gb, found = scene.size_bytes / 1e9, {}
    copies = {LEADERS: lambda at: scene.from_leaders(_UNLIMITED | at), LOG_DIRS: scene.from_log_dirs}
    for client, copy in copies.items():
        with (
            tempfile.TemporaryDirectory(prefix="bench-fetch-", dir=scene.elsewhere.parent) as kept,
            versitygw_server(binary, Path(kept)) as server,
            far_from(server.endpoint_url, _DELAY_MS) as endpoint_url,
        ):
            server.make_bucket(BUCKET)
            run = copy(
                {
                    **CREDENTIALS,
                    "TIERING_REMOTE_STORAGE__URL": f"s3://{BUCKET}/copied",
                    "TIERING_REMOTE_STORAGE__ENDPOINT_URL": endpoint_url,
                }
            )
        found[client] = {
            "mb_per_second": round(1000 * gb / run.seconds, 1),
            "cpu_seconds_per_gb": round(run.account["cpu_seconds"] / gb, 3),
            "peak_resident_mib": round(run.account["peak_resident_bytes"] / MIB, 1),
        }
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
