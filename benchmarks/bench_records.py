"""How fast one core turns stored segments into columns of records, beside a plain decode as consumers in Python do it.

    python -m benchmarks.bench_records
    python -m benchmarks.bench_records --size-mib 64 --rounds 3 --spark
    python -m benchmarks.bench_records --size-mib 256 --rounds 3 --far

For records of each size and codec it stores a log of one segment in a directory, reads it once so that it is in the
page cache, and reads all its records, by turns:

    source   the scan of the data source `kafka-tiered`: batches checked, decompressed, and made into Arrow batches
    plain    the same batches, each record decoded into a tuple of Python; of a large log the first 8 MiB
    spark    with --spark: a query of the data source in local[1] that keeps nothing of what it gets, after a first one

With --far it reads segments of three sizes from a real S3 server instead, by turns as it is and as if it were 15 ms
away and gave a connection 85 MB/s (`far_store`). Nothing of them was read before.

Standard output is one JSON object: the machine, and for each kind of records, the best of all rounds in records and in
MB (10^6 bytes of decompressed records) per second, by CPU time; for spark by the clock, as the JVM works beside Python.
For the S3 server: MB of the logs a second by the clock (medians), requests for each GB, bytes that were read for each
byte of the logs, and the requests of a look-up of one offset where nothing, or all, of its segment was read before.
"""

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from benchmarks.bench_far import far_from
from benchmarks.machine import machine_description
from benchmarks.stored_segment import segment_of_log
from include.tiering.app import App, open_app
from include.tiering.formats.record_batch import HEADER_SIZE, Codec
from include.tiering.formats.record_columns import RecordColumns
from include.tiering.formats.records import Decompressor, records_of
from include.tiering.model.segments import TopicIdPartition
from include.tiering.reading.fetch import PartitionFetch
from include.tiering.reading.plan_scan import PartitionScan, ScanRequest
from include.tiering.reading.scan import batches_of
from include.tiering.settings import load_settings
from include.tiering.settings.fields import index_cache_directory
from include.tiering.units import KIB, MIB
from tests.doubles.broker_data import broker_data
from tests.doubles.many_segments import compressed
from tests.doubles.marker_requests import counted, s3_deployment
from tests.doubles.quotas import NoQuotas, SameLimiter
from tests.doubles.record_batches import record, record_batch
from tests.doubles.s3_server import find_versitygw, versitygw_server
from tests.doubles.stored_log import CountingLimiter
from tests.doubles.whole_logs import copy, deployment, finish_all

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SIZES: Final = (100, KIB)
_CODECS: Final = (Codec.NONE, Codec.LZ4, Codec.ZSTD)
_BATCH_BYTES: Final = 64 * KIB
_PLAIN_BYTES: Final = 8 * MIB
_LOOKED_UP: Final = 1_000
_WORDS: Final = ("order", "customer", "paid", "open", "street", "amount", "currency", "article", "returned", "parcel")


def values(size_bytes: int, count: int, seed: int) -> Iterator[bytes]:
    """JSON-like values of words and numbers, which compress about as records of applications do."""
    drawn = random.Random(seed)
    for number in range(count):
        words = [f'{{"id":{number}']
        while sum(map(len, words)) + len(words) < size_bytes:
            words.append(f'"{drawn.choice(_WORDS)}":{drawn.randrange(10**6)}')
        yield ",".join(words).encode()[:size_bytes]


def write_log(path: Path, log_bytes: int, value_bytes: int, codec: Codec, offset: int = 0) -> tuple[int, int]:
    """Write records from an offset on; return the last offset, and the decompressed bytes of the records."""
    count = max(1, _BATCH_BYTES // value_bytes)
    kinds = []
    for seed in range(16):
        drawn = enumerate(values(value_bytes, count, seed))
        kinds.append([record(delta, value, b"customer-%08d" % (seed * count + delta)) for delta, value in drawn])
    packed = [(compressed(codec, records), sum(map(len, records))) for records in kinds]
    plain_bytes = number = 0
    with path.open("wb") as log:
        while log.tell() < log_bytes:
            records, size_bytes = packed[number % len(packed)]
            time_ms = 1_700_000_000_000 + offset
            log.write(record_batch(offset, count=count, records=records, attributes=codec, timestamp_ms=time_ms))
            offset, plain_bytes, number = offset + count, plain_bytes + size_bytes, number + 1
    return offset - 1, plain_bytes


def read_source(app: App, partition: TopicIdPartition) -> int:
    plan = app.reading.plan_scan(ScanRequest((PartitionScan(partition),)))
    return sum(
        batch.num_rows
        for task in plan.tasks
        for batch in app.reading.scan(task, RecordColumns(partition.topic, partition.partition))
    )


def read_plain(log: Path) -> int:
    records, decompressor = 0, Decompressor()
    with log.open("rb") as file:
        content = file.read()
    for position, header, batch in batches_of([content], 0):
        if position > _PLAIN_BYTES:
            break
        for _ in records_of(header, batch[HEADER_SIZE:], decompressor):
            records += 1
    return records


def read_spark(session: "SparkSession", config: Path, topic: str) -> int:
    frame = session.read.format("kafka-tiered").option("config", str(config)).option("subscribe", topic).load()
    frame.write.format("noop").mode("overwrite").save()
    return 0


@dataclass(frozen=True, slots=True)
class Distant:
    """Segments in an S3 server, and two ways to it."""

    near: Path
    far: Path
    topic: str
    log_bytes: int

    def read(self, config: Path) -> dict[str, float]:
        """Read all of it with nothing kept of before, and say what that took."""
        _forget(config)
        limiter = CountingLimiter()
        with open_app(load_settings(config), quotas=SameLimiter(limiter)) as app, counted(app) as sent:
            (partition,) = (each for each in app.adapters.stores.metadata.partitions() if each.topic == self.topic)
            begun = time.monotonic()
            read_source(app, partition)
            seconds, requests = time.monotonic() - begun, sum(sent.take().values())
            found = {
                "mb_per_second": self.log_bytes / seconds / 1e6,
                "requests_per_gb": requests / (self.log_bytes / 1e9),
                "bytes_read_per_byte": limiter.total_bytes / self.log_bytes,
            }
        _forget(config)
        for before in ("cold", "warm"):
            with open_app(load_settings(config), quotas=SameLimiter(CountingLimiter())) as app, counted(app) as sent:
                begun = time.monotonic()
                (answer,) = app.reading.fetch_records([PartitionFetch(partition, _LOOKED_UP, KIB)])
                found[f"look_up_{before}_ms"] = (time.monotonic() - begun) * 1000
                found[f"look_up_{before}_requests"] = sum(sent.take().values())
                if not answer.records:
                    raise RuntimeError(f"{self.topic}: offset {_LOOKED_UP} was not read: {answer.error}")
        return found


def _forget(config: Path) -> None:
    """Remove the indexes that were kept."""
    for kept in index_cache_directory(load_settings(config).metadata.url.get_secret_value(), {}).glob("*"):
        kept.unlink()


def measure_far(directory: Path, delay_ms: float, rounds: int, total_bytes: int) -> dict[str, Any]:
    """Read segments of three sizes from near and from far, by turns; empty without an S3 server."""
    binary, found = find_versitygw(), dict[str, Any]()
    if binary is None:
        return found
    with versitygw_server(binary, directory / "s3") as server, far_from(server.endpoint_url, delay_ms) as far_url:
        near = s3_deployment(directory, server)
        (directory / "far").mkdir()
        far = directory / "far" / "tiering.toml"
        far.touch(mode=0o600)
        far.write_text(near.read_text().replace(server.endpoint_url, far_url))
        with open_app(load_settings(near), quotas=NoQuotas()) as app:
            app.set_up.migrate()
            for segment_mib in (2, 16, 64):
                stored = _store_segments(app, directory, segment_mib * MIB, max(1, total_bytes // (segment_mib * MIB)))
                distant = Distant(near, far, *stored)
                measured: dict[str, list[dict[str, float]]] = {"near": [], "far": []}
                for number in range(rounds):
                    ways = [("near", near), ("far", far)]
                    for name, config in ways if number % 2 else reversed(ways):
                        measured[name].append(distant.read(config))
                found[f"{segment_mib} MiB"] = {
                    name: {what: round(median(each[what] for each in those), 3) for what in those[0]}
                    for name, those in measured.items()
                }
    return found


def _store_segments(app: App, directory: Path, segment_bytes: int, count: int) -> tuple[str, int]:
    """Store a partition of so many segments; return its topic, and the bytes of its logs."""
    topic, log, segments, next_offset = f"far-{segment_bytes}", directory / "far.log", [], 0
    for _ in range(count):
        last_offset, _ = write_log(log, segment_bytes, KIB, Codec.NONE, next_offset)
        metadata, data = segment_of_log(log, last_offset, topic, next_offset)
        copy(app, metadata, data)
        segments.append(metadata)
        next_offset = last_offset + 1
    finish_all(app, segments, 0)
    return topic, sum(each.segment_size_bytes for each in segments)


def _best(read: Callable[[], int], clock: Callable[[], float], rounds: int, records: int, size_bytes: int) -> Any:
    """The rates of the fastest round; a reader that counts what it read may have read a part."""
    rates = []
    for _ in range(rounds):
        begun = clock()
        counted = read()
        share = counted / records if counted else 1.0
        rates.append(share / (clock() - begun))
    return {"records_per_second": round(max(rates) * records), "mb_per_second": round(max(rates) * size_bytes / 1e6, 1)}


def _measured(
    app: App, config: Path, log: Path, kind: tuple[int, Codec], options: argparse.Namespace, session: Any
) -> dict[str, Any]:
    value_bytes, codec = kind
    topic = f"records-{value_bytes}-{codec.name.lower()}"
    last_offset, plain_bytes = write_log(log, options.size_mib * MIB, value_bytes, codec)
    metadata, data = segment_of_log(log, last_offset, topic)
    copy(app, metadata, data)
    finish_all(app, [metadata], 0)
    partition, records = metadata.topic_id_partition, last_offset + 1
    if read_source(app, partition) != records:
        raise RuntimeError(f"{topic}: not all {records} records were read")
    rates = {
        "source": _best(lambda: read_source(app, partition), time.process_time, options.rounds, records, plain_bytes),
        "plain": _best(lambda: read_plain(log), time.process_time, options.rounds, records, plain_bytes),
    }
    if session is not None:
        read_spark(session, config, topic)
        rates["spark"] = _best(
            lambda: read_spark(session, config, topic), time.perf_counter, options.rounds, records, plain_bytes
        )
    stored_bytes = metadata.segment_size_bytes
    return {"value_bytes": value_bytes, "codec": codec.name, "records": records, "log_bytes": stored_bytes, **rates}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size-mib", type=int, default=64, help="size of each log, or of all in the store")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--spark", action="store_true", help="measure queries of Spark, too")
    parser.add_argument("--far", action="store_true", help="measure a far store instead; needs `make s3-server`")
    parser.add_argument("--delay-ms", type=float, default=15.0, help="of the far store, each way (%(default)s)")
    parser.add_argument("--directory", type=Path, help="where temporary logs are written")
    options = parser.parse_args(arguments)
    if options.far:
        with tempfile.TemporaryDirectory(prefix="bench-far-", dir=options.directory) as scratch:
            far = measure_far(Path(scratch), options.delay_ms, options.rounds, options.size_mib * MIB)
        print(json.dumps({"machine": machine_description(), "far": far}, indent=2))
        return 0
    machine, results = machine_description(), []
    log_dirs = {number: broker_data("public") / "stopped" / f"broker-{number}" for number in (1, 2)}
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-", dir=options.directory)))
        app, config = stack.enter_context(deployment(directory, log_dirs, (directory / "store").as_uri()))
        session = stack.enter_context(_session()) if options.spark else None
        for kind in ((size, codec) for size in _SIZES for codec in _CODECS):
            print(f"records of {kind[0]} bytes, {kind[1].name}", file=sys.stderr, flush=True)
            results.append(_measured(app, config, directory / "log", kind, options, session))
    print(json.dumps({"machine": machine, "results": results}, indent=2))
    return 0


def _session() -> "SparkSession":
    from pyspark.sql import SparkSession

    from spark_jobs.kafka_tiered import register

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    session = builder.config("spark.log.level", "ERROR").config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
    register(session)
    return session


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
