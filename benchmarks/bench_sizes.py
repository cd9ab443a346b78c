"""Sizes over a thousand, a hundred thousand and a million segments; their recount over a million and ten million.

    python -m benchmarks.bench_sizes [--only counters|recount] [--segments 1000000,10000000] [--rounds 5]
                                     [--counted 1000,100000,1000000] [--shape even|overlapping|skewed]

Counters, on SQLite and PostgreSQL: `remote_log_size` of a leader epoch and the total of a partition, databases taking
turns within a round; firm: at most 1.5 times slower over a million segments than over a thousand, and under 2 ms.
State changes a second beside a million segments, of one worker and of two.

Recount: the whole job over SQLite (spark-submit on local[2]) with CPU and peak memory of its processes; then its
grouping alone, of rows as Spark's tasks read and keep them, beside DuckDB with two threads on Parquet files with the
same rows, in turns and without either's start. `idle` is the same Spark job without rows. Firm: equal results, and ten
times the segments take at most 1.5 times the memory. Goal, which fails nothing: at most 2 times DuckDB's time at the
most segments. Shapes: partitions of equal length without an overlap; each segment overlapping the next; nine tenths of
all segments in one partition, whose segments overlap.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Engine

from benchmarks.job_usage import watched_usage
from benchmarks.sizes_scene import CLUSTER_ID, EPOCHS, Shape, build, partition_number
from include.tiering.database.engine import open_engine
from include.tiering.model.segments import RemoteLogSegmentState, TopicIdPartition, Uuid
from include.tiering.segments.sql import SqlRemoteLogMetadata
from spark_jobs.task_settings import TaskSettings
from tests.doubles.databases import postgresql_server
from tests.doubles.segments import lease_of, segment_of, update_of
from tests.doubles.spark import submit_command, submit_environment

COUNTED: Final = (1_000, 100_000, 1_000_000)
RECOUNTED: Final = (1_000_000, 10_000_000)
COUNTER_PARTITIONS: Final = 100
RECOUNT_PARTITIONS: Final = 1_000
QUESTIONS: Final = 300
WORK_SECONDS: Final = 5.0
MOST_SLOWER: Final = 1.5
MOST_MS: Final = 2.0
MOST_GROWN: Final = 1.5
GOAL_OF_DUCKDB: Final = 2.0
CONFIG: Final = "tiering.toml"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Measure sizes; prints JSON.")
    parser.add_argument("--only", choices=("counters", "recount"))
    parser.add_argument("--segments", default=",".join(map(str, RECOUNTED)), help="of the recount, with commas")
    parser.add_argument("--counted", default=",".join(map(str, COUNTED)), help="of the counters, with commas")
    parser.add_argument("--shape", choices=[shape.value for shape in Shape], default=Shape.EVEN.value)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--work-seconds", type=float, default=WORK_SECONDS, help="of state changes")
    parser.add_argument(
        "--worker", nargs=3, metavar=("URL", "NUMBER", "SECONDS"), help="change states, in this process"
    )
    parser.add_argument("--beside-duckdb", type=Path, metavar="DIRECTORY", help="compare groupings, in this process")
    options = parser.parse_args(arguments)
    if options.worker:
        url, number, seconds = options.worker
        return say({"changes": change_states(url, int(number), float(seconds))})
    if options.beside_duckdb:
        return say(beside_duckdb(options.beside_duckdb, options.rounds))
    found: dict[str, Any] = {}
    held: dict[str, bool] = {}
    with tempfile.TemporaryDirectory(prefix="bench-sizes-") as name:
        directory = Path(name)
        if options.only != "recount":
            found["counters"] = {
                database: counters(
                    database, directory, options.rounds, numbers_of(options.counted), options.work_seconds
                )
                for database in ("sqlite", "postgresql")
            }
            held |= counters_held(found["counters"])
        if options.only != "counters":
            numbers, shape = numbers_of(options.segments), Shape(options.shape)
            found["recount"] = {
                f"{number:,}": recounted(directory, number, options.rounds, shape) for number in numbers
            }
            held |= recount_held(list(found["recount"].values()))
    ratios = [recount["grouping"]["ratio"] for recount in found.get("recount", {}).values()]
    say({**found, "held": held, "goals": {"twice DuckDB": all(ratio <= GOAL_OF_DUCKDB for ratio in ratios[-1:])}})
    return int(not all(held.values()))


def numbers_of(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def say(document: dict[str, Any]) -> int:
    sys.stdout.write(json.dumps(document) + "\n")
    return 0


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# --- counters -------------------------------------------------------------------------------------------------------


@contextmanager
def database_urls(database: str, directory: Path) -> Iterator[Callable[[str], str]]:
    """PostgreSQL writes its log to the disk as it does in production."""
    if database == "sqlite":
        yield lambda name: f"sqlite:///{directory / name}.sqlite"
        return
    with postgresql_server() as create_database:
        engine = open_engine(create_database("settings"))
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            for statement in ("ALTER SYSTEM SET fsync = on", "SELECT pg_reload_conf()"):
                connection.exec_driver_sql(statement)
        engine.dispose()
        yield create_database


def counters(
    database: str, directory: Path, rounds: int, counted: Sequence[int], work_seconds: float
) -> dict[str, Any]:
    """Milliseconds of each question by the number of segments, and state changes a second beside the most of them."""
    with ExitStack() as stack:
        url_of = stack.enter_context(database_urls(database, directory))
        urls = {}
        for segments in counted:
            urls[segments] = url_of(f"counters_{segments}")
            begun = time.monotonic()
            build(urls[segments], segments, COUNTER_PARTITIONS)
            note(f"{database}: {segments:,} segments built in {time.monotonic() - begun:.1f} s")
        engines = {segments: open_engine(url) for segments, url in urls.items()}
        for engine in engines.values():
            stack.callback(engine.dispose)
        questions = {
            "remote_log_size": {n: asked(engine, leader_epoch=True) for n, engine in engines.items()},
            "partition total": {n: asked(engine, leader_epoch=False) for n, engine in engines.items()},
        }
        answered = {question: milliseconds(ask, rounds) for question, ask in questions.items()}
        workers = {f"{n} workers": changes_a_second(urls[counted[-1]], n, work_seconds) for n in (1, 2)}
    return {**answered, "state changes a second": workers}


def asked(engine: Engine, *, leader_epoch: bool) -> Callable[[int], object]:
    metadata = SqlRemoteLogMetadata(engine, CLUSTER_ID)

    def ask(number: int) -> object:
        partition = partition_number(number * 7 % COUNTER_PARTITIONS)
        if leader_epoch:
            return metadata.remote_log_size(partition, number % EPOCHS)
        return metadata.partition_sizes(partition)

    return ask


def milliseconds(ask: dict[int, Callable[[int], object]], rounds: int) -> dict[str, Any]:
    """Medians by number of segments, of all rounds and of the best one (other work on the machine only
    adds). `slower` is the median over rounds of the most segments' to the fewest's."""
    taken: dict[int, list[float]] = {segments: [] for segments in ask}
    for _ in range(rounds + 1):
        for segments, question in ask.items():
            single = []
            for number in range(QUESTIONS):
                begun = time.perf_counter()
                question(number)
                single.append((time.perf_counter() - begun) * 1000)
            taken[segments].append(statistics.median(single))
    warm = {segments: medians[1:] for segments, medians in taken.items()}
    few, *_, most = warm.values()
    slower = statistics.median(b / a for a, b in zip(few, most, strict=True))
    by_segments = {f"{segments:,}": round(statistics.median(medians), 3) for segments, medians in warm.items()}
    best = {f"{segments:,}": round(min(medians), 3) for segments, medians in warm.items()}
    return {"ms": by_segments, "best_ms": best, "slower": round(slower, 2)}


def changes_a_second(url: str, workers: int, seconds: float) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.bench_sizes", "--worker", url]
    started = [
        subprocess.Popen([*command, f"{workers}{number}", str(seconds)], stdout=subprocess.PIPE)
        for number in range(workers)
    ]
    changes = [json.loads(process.communicate()[0])["changes"] for process in started]
    return {"each": round(statistics.mean(changes) / seconds), "all": round(sum(changes) / seconds)}


def change_states(url: str, number: int, seconds: float) -> int:
    """State changes of one worker on a partition of its own: STARTED, FINISHED, and again."""
    engine = open_engine(url)
    partition = TopicIdPartition(Uuid.parse(f"{900_000 + number:021d}A"), 0, f"worker-{number}")
    fence = lease_of(engine, partition, f"run-{number}").fence
    metadata = SqlRemoteLogMetadata(engine, CLUSTER_ID)
    changes = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        segment = segment_of(partition, 10_000_000 * number + changes, changes * 50, changes * 50 + 99)
        metadata.add_segment(segment, fence=fence)
        metadata.update_segment(
            update_of(segment, RemoteLogSegmentState.COPY_SEGMENT_FINISHED),
            expected=RemoteLogSegmentState.COPY_SEGMENT_STARTED,
            fence=fence,
        )
        changes += 2
    engine.dispose()
    return changes


def counters_held(found: dict[str, Any]) -> dict[str, bool]:
    questions = [found[database][question] for database in found for question in ("remote_log_size", "partition total")]
    return {
        "not slower over a million": all(question["slower"] <= MOST_SLOWER for question in questions),
        "under 2 ms": all(max(question["best_ms"].values()) < MOST_MS for question in questions),
    }


# --- recount --------------------------------------------------------------------------------------------------------


def recounted(directory: Path, segments: int, rounds: int, shape: Shape) -> dict[str, Any]:
    database = directory / f"recount-{segments}.sqlite"
    begun = time.monotonic()
    build(f"sqlite:///{database}", segments, RECOUNT_PARTITIONS, for_scans=True, shape=shape)
    filled = time.monotonic() - begun
    note(f"{segments:,} segments built in {filled:.1f} s")
    job = run_job(directory, database)
    note(f"{segments:,} segments recounted: {job}")
    command = [sys.executable, "-m", "benchmarks.bench_sizes", "--rounds", str(rounds)]
    compared = subprocess.run([*command, "--beside-duckdb", str(directory)], stdout=subprocess.PIPE, check=True)
    database.unlink()
    return {"filling_seconds": round(filled, 1), "job": job, "grouping": json.loads(compared.stdout)}


def run_job(directory: Path, database: Path) -> dict[str, Any]:
    """The job as Airflow submits it. `rows_per_second` is that of the recount: SQL to sizes, without starts."""
    scratch = directory / "scratch"
    scratch.mkdir(exist_ok=True)
    config = directory / CONFIG
    config.write_text(f'metadata.url = "sqlite:///{database}"\nsizes.history_path = "{directory / "history"}"\n')
    arguments = ["--output", str(directory / "out"), "--config", str(config)]
    command = submit_command("sizes.py", arguments, scratch)
    command[command.index("local[1]")] = "local[2]"
    begun = time.monotonic()
    with (
        subprocess.Popen(command, env=submit_environment(scratch), stdout=subprocess.PIPE, text=True) as process,
        watched_usage(process.pid) as usage,
    ):
        output = process.communicate()[0]
    seconds = time.monotonic() - begun
    summary = json.loads(output.splitlines()[-1])
    if process.returncode:
        raise SystemExit(f"the job ended with {process.returncode}: {summary}")
    rows = sum(state["segments"] for state in summary["states"].values())
    return {
        "seconds": round(seconds, 1),
        "recount_seconds": summary["computation_ms"] / 1000,
        "rows_per_second": round(rows / summary["computation_ms"] * 1000),
        "overlapping_partitions": len(summary["overlaps"]),
        "overlapping_bytes": sum(overlap["bytes"] for overlap in summary["overlaps"]),
        **usage.document(),
    }


_DUCKDB: Final = """
    WITH by_epochs AS (
        SELECT topic_id, partition, state, leader_epochs, sum(size_bytes) AS size_bytes, count(*) AS segments,
               min(start_offset) AS first_offset, max(end_offset) AS last_offset,
               sum(end_offset - start_offset + 1) AS offsets
        FROM read_parquet('{files}') GROUP BY ALL
    )
    SELECT topic_id, partition, state, leader_epoch, sum(size_bytes), sum(segments), min(first_offset),
           max(last_offset), sum(offsets)
    FROM (SELECT *, unnest(list_concat([NULL], CAST(string_split(leader_epochs, ',') AS INTEGER[]))) AS leader_epoch
          FROM by_epochs)
    GROUP BY ALL"""


def beside_duckdb(directory: Path, rounds: int) -> dict[str, Any]:
    """Seconds of both, in turns; the first round warms both up and is told apart."""
    begun = time.perf_counter()
    import duckdb
    from pyspark.sql import SparkSession

    from include.tiering.app import open_app
    from include.tiering.settings import load_settings
    from spark_jobs.packed_rows import SESSION_CONF
    from spark_jobs.sizes import READ_RANGES
    from spark_jobs.sizes_rows import partial_sizes, read_segments, remote_log_sizes

    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.local.dir", str(directory))
        .config("spark.log.level", "ERROR")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", str(READ_RANGES))
        .config(map=dict(SESSION_CONF))
        .getOrCreate()
    )
    started = time.perf_counter() - begun
    config = directory / CONFIG
    begun = time.perf_counter()
    with open_app(load_settings(config)) as app:
        packed = read_segments(session, app, ranges=READ_RANGES, settings=TaskSettings.of_driver(config))
    read = time.perf_counter() - begun
    parquet = directory / "parquet"
    write_parquet(packed, parquet)
    without_rows = packed.limit(0).localCheckpoint()
    duck = duckdb.connect(config={"threads": 2})
    query = _DUCKDB.format(files=parquet / "*.parquet")
    states = {state.name: int(state) for state in RemoteLogSegmentState}

    def by_spark() -> Any:
        return remote_log_sizes(partial_sizes(packed)).drop("marks").toArrow()

    def by_duckdb() -> Any:
        return duck.sql(query).to_arrow_table()

    def rows_of(table: Any) -> set[tuple[Any, ...]]:
        columns = [column.to_pylist() for column in table.columns]
        return {(*row[:2], states.get(row[2], row[2]), *row[3:8], int(row[8])) for row in zip(*columns, strict=True)}

    def idle() -> None:
        remote_log_sizes(partial_sizes(without_rows)).toArrow()

    seconds: dict[str, list[float]] = {"spark": [], "duckdb": [], "idle": []}
    equal = True
    for _ in range(rounds + 1):
        results = []
        for name, compute in (("spark", by_spark), ("duckdb", by_duckdb)):
            begun = time.perf_counter()
            results.append(compute())
            seconds[name].append(time.perf_counter() - begun)
        equal &= rows_of(results[0]) == rows_of(results[1])
        begun = time.perf_counter()
        idle()
        seconds["idle"].append(time.perf_counter() - begun)
    session.stop()
    shutil.rmtree(parquet)
    ratios = [spark / duck_ for spark, duck_ in zip(seconds["spark"][1:], seconds["duckdb"][1:], strict=True)]
    return {
        "start_seconds": round(started, 1),
        "read_seconds": round(read, 1),
        "first": {name: round(taken[0], 2) for name, taken in seconds.items()},
        "seconds": {name: round(statistics.median(taken[1:]), 2) for name, taken in seconds.items()},
        "ratio": round(statistics.median(ratios), 2),
        "ratio_spread": [round(min(ratios), 2), round(max(ratios), 2)],
        "equal": equal,
    }


def write_parquet(packed: Any, target: Path) -> None:
    """Write the rows that Spark keeps for DuckDB: a file for each value, as Arrow writes it unless told otherwise."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from spark_jobs.packed_rows import batches_of

    target.mkdir()
    for number, row in enumerate(packed.toLocalIterator()):
        value = pa.RecordBatch.from_pylist([row.asDict()])
        (batch,) = batches_of(iter([value]))
        pq.write_table(pa.Table.from_batches([batch]), target / f"{number:05}.parquet")


def recount_held(found: Sequence[dict[str, Any]]) -> dict[str, bool]:
    peaks = [result["job"]["peak_bytes"] for result in found]
    return {
        "equal to DuckDB": all(result["grouping"]["equal"] for result in found),
        "memory flat": max(peaks) <= MOST_GROWN * peaks[0],
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
