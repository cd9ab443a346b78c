"""How fast one core reads records in Spark: from remote storage, and from a live broker by Spark's own Kafka source.

    python -m benchmarks.bench_connector [--size-mib 256] [--rounds 3] [--kinds 1024-none ...]

A real broker gets topics of JSON-like records, and `./tiering copy` copies their rolled segments into a directory. Then
the same offsets are read, by turns within a round:

    tiered      `kafka-tiered` in Spark, `local[1]`, into a sink that keeps nothing
    connector   the same query of Spark's Kafka source (`spark-sql-kafka-0-10`), from the broker
    scan        what `kafka-tiered` does in Python, without Spark: records become Arrow batches
    consumer    confluent-kafka's consumer, which makes an object of Python of each record, from the broker

The JVM, all Python processes and the consumer run on one core, the broker on the others, where there are others;
all bytes are in the page cache. The session is started before, and each query ran once on a few records, so that
neither is counted: `session_seconds` says what the start takes. What a query needs to be planned and to begin its task
is counted; `few_records_seconds` says how much that is. Before the rounds, both queries compute a sum over all records,
and must agree.

Standard output is one JSON object: the machine, and for each kind medians of records and MB (10^6 bytes of keys and
values) per second, and the median of the ratios within the rounds. Exit code 1: no broker can be had here, or records
of 1 KiB without compression are read slower than by the connector.
"""

import argparse
import hashlib
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.bench_records import values
from benchmarks.machine import machine_description
from include.tiering.app import open_app
from include.tiering.broker_process.kafka_home import KAFKA, Artifact, fetch
from include.tiering.errors import KafkaMissingError
from include.tiering.formats.record_columns import RecordColumns
from include.tiering.reading.plan_scan import Bound, BoundKind, PartitionScan, ScanRequest
from include.tiering.settings import load_settings
from include.tiering.units import KIB, MIB
from tests.doubles.broker_deployment import BrokerDeployment, broker_deployment
from tests.doubles.kafka_lab.cluster import KafkaCluster, client_configuration, kafka_cluster
from tests.doubles.source_tree import ROOT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SPARK: Final = "org.apache.spark"
CONNECTOR_RELEASE: Final = "4.2.0"
"""The newest one that Maven brings; it reads in the Spark that the project uses, 4.3."""
CONNECTOR: Final = {
    Artifact(SPARK, "spark-sql-kafka-0-10_2.13", CONNECTOR_RELEASE, lone=True): (
        "64539c45e5d39f7ddb747312c239f38f5208d08c1a0ddf7d70beb2fbd9373705"
    ),
    Artifact(SPARK, "spark-token-provider-kafka-0-10_2.13", CONNECTOR_RELEASE, lone=True): (
        "641c7947afc8aa1189e433b7c2d305293993c8691bc1c2062d6d4f513b12518c"
    ),
    Artifact(KAFKA, "kafka-clients", "3.9.2", lone=True): (
        "014b4ef36884478a932641818b080c36a8f8e2e92dc771e800c9d2694f4f83d8"
    ),
    Artifact("org.apache.commons", "commons-pool2", "2.12.1", lone=True): (
        "5273c8bc8c0dca2211175c0d27efbd7228efae99689aac001a8e1ef8e872e9ef"
    ),
}
"""Jars of Spark's Kafka source that Spark itself does not have, with their SHA-256."""

SEGMENT_BYTES: Final = 64 * MIB
_BATCH_BYTES: Final = 64 * KIB
_LEAST_RATIO: Final = 1.0
_VALUES: Final = 4_096
_AT_ONCE: Final = 10_000
_WAIT_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Kind:
    """Records of one kind."""

    value_bytes: int
    codec: str

    @property
    def name(self) -> str:
        return f"{self.value_bytes}-{self.codec}"


KINDS: Final = tuple(Kind(size, codec) for size in (KIB, 100) for codec in ("none", "lz4", "zstd"))
STRICT: Final = KINDS[0]


@dataclass(frozen=True, slots=True)
class Offsets:
    """Offsets 0 to `end` (exclusive) of partition 0, which are in remote storage and on the broker."""

    topic: str
    end: int
    size_bytes: int

    @property
    def ending(self) -> str:
        return json.dumps({self.topic: {"0": self.end}})


def connector_jars() -> str:
    """Return the jars, for the class path of a driver; Maven fetches them the first time.

    Raises:
        KafkaMissingError: there is no mvn, it failed, or a jar has another SHA-256.
    """
    home = ROOT / ".cache" / "kafka" / f"spark-connector-{CONNECTOR_RELEASE}"
    fetch(home, tuple(CONNECTOR), _check_jars)
    return f"{home}/libs/*"


def _check_jars(home: Path) -> None:
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (home / "libs").iterdir()}
    wanted = {f"{each.name}-{each.version}.jar": sha256 for each, sha256 in CONNECTOR.items()}
    if wrong := sorted(name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name)):
        raise KafkaMissingError(f"Maven brought {', '.join(wrong)} with another SHA-256 than the one that is wanted")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = {kind.name: kind for kind in KINDS}
    parser.add_argument("--size-mib", type=int, default=256, help="of the keys and values of each kind (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="(%(default)s)")
    parser.add_argument("--kinds", nargs="+", choices=names, default=list(names), metavar="KIND", help=", ".join(names))
    parser.add_argument("--directory", type=Path, help="where the broker's and the stored logs are written")
    options = parser.parse_args(arguments)
    result: dict[str, Any] = {"machine": machine_description(), "connector": CONNECTOR_RELEASE, "kinds": {}}
    try:
        with tempfile.TemporaryDirectory(prefix="bench-connector-", dir=options.directory) as scratch:
            for name, measured in _all_kinds(Path(scratch), [names[each] for each in options.kinds], options, result):
                result["kinds"][name] = measured
                print(name, json.dumps(measured), file=sys.stderr, flush=True)
    except KafkaMissingError as error:
        print(f"no broker: {error}", file=sys.stderr)
        return 1
    print(json.dumps(result))
    strict = result["kinds"].get(STRICT.name)
    return int(strict is not None and strict["times_connector"] < _LEAST_RATIO)


def _all_kinds(
    scratch: Path, kinds: Sequence[Kind], options: argparse.Namespace, result: dict[str, Any]
) -> Iterator[tuple[str, dict[str, Any]]]:
    jars, cores = connector_jars(), sorted(os.sched_getaffinity(0))
    with kafka_cluster(scratch / "kafka", remote_dir=scratch / "remote", heap_mib=512, niceness=0) as cluster:
        deployment = broker_deployment(cluster, scratch / "platform", ["records-*"])
        written = {kind: _write(cluster, deployment, kind, options.size_mib * MIB) for kind in kinds}
        os.sched_setaffinity(0, cores[:1])
        for thread in Path(f"/proc/{cluster.broker.pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), cores[1:] or cores)
        begun = time.monotonic()
        with _session(jars) as session:
            readers = Readers(session, cluster.bootstrap, deployment.config)
            few = next(Offsets(each.topic, min(each.end, _AT_ONCE), 0) for each in written.values())
            readers.seconds_of(few)
            result["session_seconds"] = round(time.monotonic() - begun, 1)
            result["few_records_seconds"] = readers.seconds_of(few)
            for kind, offsets in written.items():
                yield kind.name, readers.compare(offsets, options.rounds)


def _write(cluster: KafkaCluster, deployment: BrokerDeployment, kind: Kind, size_bytes: int) -> Offsets:
    """Produce records, and copy the rolled segments of them; return the offsets that are in both places."""
    topic = f"records-{kind.name}"
    cluster.create_topic(topic, segment_bytes=SEGMENT_BYTES)
    producer = Producer(
        {
            **client_configuration(cluster.bootstrap),
            "compression.type": kind.codec,
            "batch.size": _BATCH_BYTES,
            "linger.ms": 100,
            "acks": "all",
            "queue.buffering.max.messages": _AT_ONCE,
        }
    )
    contents, end = list(values(kind.value_bytes, _VALUES, seed=1)), size_bytes // kind.value_bytes
    for number in range(end):
        _produce(producer, topic, contents[number % _VALUES], b"customer-%08d" % number)
    _flush(producer, topic)
    # One record more closes the last segment, which could not be copied otherwise.
    cluster.alter_topic(topic, internal_segment_bytes=str(KIB))
    _produce(producer, topic, b"not read", b"")
    _flush(producer, topic)
    copied = deployment.copy_all(topic)
    if (last := max(each["end_offset"] for each in copied)) != end - 1:
        raise RuntimeError(f"{topic}: offsets up to {last} were copied, not up to {end - 1}")
    return Offsets(topic, end, end * (kind.value_bytes + len(b"customer-00000000")))


def _produce(producer: Producer, topic: str, value: bytes, key: bytes) -> None:
    while True:
        try:
            producer.produce(topic, value, key, partition=0)
            return
        except BufferError:
            producer.poll(0.1)


def _flush(producer: Producer, topic: str) -> None:
    if left := producer.flush(_WAIT_SECONDS):
        raise RuntimeError(f"{topic}: {left} records were not acknowledged within {_WAIT_SECONDS} s")


@contextmanager
def _session(jars: str) -> Iterator["SparkSession"]:
    from pyspark.sql import SparkSession

    from spark_jobs.kafka_tiered import register

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    options = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }
    builder = SparkSession.builder.master("local[1]").config("spark.driver.extraClassPath", jars)
    for name, value in options.items():
        builder = builder.config(name, value)
    with builder.getOrCreate() as session:
        register(session)
        yield session


@dataclass(frozen=True, slots=True)
class Readers:
    """The ways to read offsets."""

    session: "SparkSession"
    bootstrap: str
    config: Path

    def seconds_of(self, offsets: Offsets) -> dict[str, float]:
        """Read once in each way. The first time, classes are loaded, and Spark starts its Python process."""
        seconds = {}
        for name, read in self.ways().items():
            begun = time.monotonic()
            read(offsets)
            seconds[name] = round(time.monotonic() - begun, 2)
        return seconds

    def ways(self) -> Mapping[str, Callable[[Offsets], None]]:
        return {
            "tiered": lambda offsets: _into_nothing(self.tiered(offsets)),
            "connector": lambda offsets: _into_nothing(self.connector(offsets)),
            "scan": self.scan,
            "consumer": self.consume,
        }

    def compare(self, offsets: Offsets, rounds: int) -> dict[str, Any]:
        """Measure the ways by turns.

        Raises:
            RuntimeError: the two sources differ in what they read.
        """
        if (tiered := _sums(self.tiered(offsets))) != (connector := _sums(self.connector(offsets))):
            raise RuntimeError(f"{offsets.topic}: {tiered} in remote storage, {connector} on the broker")
        ways = self.ways()
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(rounds):
            turn = number % len(ways)
            for name in [*ways][turn:] + [*ways][:turn]:
                begun = time.monotonic()
                ways[name](offsets)
                seconds[name].append(time.monotonic() - begun)
        medians = {name: statistics.median(found) for name, found in seconds.items()}
        rates = {
            name: {
                "seconds": round(median, 2),
                "records_per_second": round(offsets.end / median),
                "mb_per_second": round(offsets.size_bytes / median / 1e6, 1),
            }
            for name, median in medians.items()
        }
        ratios = {
            f"times_{other}": _ratio(seconds[other], seconds[ours])
            for ours, other in (("tiered", "connector"), ("scan", "consumer"))
        }
        return {"records": offsets.end, "mb": round(offsets.size_bytes / 1e6), **rates, **ratios}

    def tiered(self, offsets: Offsets) -> "DataFrame":
        reader = self.session.read.format("kafka-tiered").option("config", str(self.config))
        return reader.option("subscribe", offsets.topic).option("endingOffsets", offsets.ending).load()

    def connector(self, offsets: Offsets) -> "DataFrame":
        reader = self.session.read.format("kafka").option("kafka.bootstrap.servers", self.bootstrap)
        return reader.option("subscribe", offsets.topic).option("endingOffsets", offsets.ending).load()

    def scan(self, offsets: Offsets) -> None:
        """Read as a task of `kafka-tiered` does, the plan included.

        Raises:
            RuntimeError: other records were read.
        """
        from spark_jobs.kafka_tiered import BATCH_BYTES

        with open_app(load_settings(self.config)) as app:
            (partition,) = (each for each in app.adapters.stores.metadata.partitions() if each.topic == offsets.topic)
            end = Bound(BoundKind.OFFSET, offsets.end)
            plan = app.reading.plan_scan(ScanRequest((PartitionScan(partition, end=end),)))
            columns = RecordColumns(offsets.topic, 0, max_bytes=BATCH_BYTES)
            found = sum(batch.num_rows for task in plan.tasks for batch in app.reading.scan(task, columns))
        if found != offsets.end:
            raise RuntimeError(f"{offsets.topic}: {found} records were read, not {offsets.end}")

    def consume(self, offsets: Offsets) -> None:
        """Read with confluent-kafka, as fast as it gives records by the ten thousand."""
        consumer = Consumer({**client_configuration(self.bootstrap), "group.id": "bench", "enable.auto.commit": False})
        try:
            consumer.assign([TopicPartition(offsets.topic, 0, 0)])
            left = offsets.end
            while left > 0:
                messages = consumer.consume(min(_AT_ONCE, left), timeout=_WAIT_SECONDS)
                if not messages:
                    raise RuntimeError(f"{offsets.topic}: {left} records did not come within {_WAIT_SECONDS} s")
                for message in messages:
                    if message.error() is not None:
                        raise RuntimeError(f"{offsets.topic}: {message.error()}")
                    _ = message.key(), message.value(), message.timestamp()
                    left -= 1
        finally:
            consumer.close()


def _ratio(others: Sequence[float], ours: Sequence[float]) -> float:
    return round(statistics.median(other / own for other, own in zip(others, ours, strict=True)), 2)


def _into_nothing(frame: "DataFrame") -> None:
    frame.write.format("noop").mode("overwrite").save()


def _sums(frame: "DataFrame") -> Sequence[Any]:
    from pyspark.sql import functions as f

    crc = f.sum(f.crc32(f.concat("key", "value", f.col("offset").cast("string"), f.col("timestamp").cast("string"))))
    return list(frame.agg(f.count("*"), f.min("offset"), f.max("offset"), crc).first() or ())


if __name__ == "__main__":
    # Without it, the broker and the directory would outlive this process.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main(sys.argv[1:]))
