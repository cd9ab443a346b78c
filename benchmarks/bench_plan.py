"""What plans cost over archives of different sizes: nothing to do, and 100 segments of which something is to be done.

    python -m benchmarks.bench_plan [--segments 1000,1000000] [--databases sqlite,postgresql] [--rounds 5]

An archive has ten partitions. Of each plan: processor time of this process and of PostgreSQL's processes for it, and
elapsed time (the best round of each, in turns over the archives), SQL statements, and the most memory that Python's
objects take. Firm: each plan with 100 changes takes over the largest archive at most twice the processor time that it
takes over the smallest, and at most twice the memory. The seconds that building an archive took are given, too.
"""

import argparse
import json
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from sqlalchemy import Engine, event, insert, select, update

from benchmarks.bench_sizes import database_urls, note
from benchmarks.sizes_scene import CLUSTER_ID, EPOCHS, build, partition_number
from include.tiering.configs.config_store import TopicRetention
from include.tiering.copying.finish_abandoned import abandoned_copies_of
from include.tiering.copying.plan_copy import plan_copy
from include.tiering.copying.run_scope import RunScope
from include.tiering.database.engine import open_engine
from include.tiering.database.schema import segment_epochs, segments
from include.tiering.expiration.plan import ExpirationPlanner
from include.tiering.kafka.log_dirs.contract import IneligibleReason, LogSegment, ReplicaId, ScanReport
from include.tiering.metadata_sync.publish import Publisher
from include.tiering.metadata_sync.sql_publication import SqlPublicationStore
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import Depth
from include.tiering.quotas.contract import QuotasInForce
from include.tiering.runs.store import SqlWorkStore
from include.tiering.segments.sql import SqlRemoteLogMetadata
from include.tiering.segments.sql_rows import count_in, epoch_values_of, values_of
from include.tiering.segments.sql_topics import SqlTopicRegistry
from include.tiering.verification.plan import PLAIN_OBJECTS, VerificationSample
from include.tiering.verification.service import VerificationService
from include.tiering.verification.verify_segments import _of_run
from tests.doubles.segments import STARTED, segment_of, whole_replica

SEGMENTS: Final = (1_000, 1_000_000)
PARTITIONS: Final = 10
CHANGES: Final = 100
OF_EACH: Final = CHANGES // PARTITIONS
FIRST_MS: Final = 1_700_000_000_000
DAY_MS: Final = 86_400_000
MOST_SLOWER: Final = 2.0
MOST_GROWN: Final = 2.0
OFFSETS: Final = 1_000
SEGMENT_BYTES: Final = 500_000


@dataclass(frozen=True)
class Scene:
    """An archive in one database."""

    engine: Engine
    segments: int

    @property
    def metadata(self) -> SqlRemoteLogMetadata:
        return SqlRemoteLogMetadata(self.engine, CLUSTER_ID)

    @property
    def registry(self) -> SqlTopicRegistry:
        return SqlTopicRegistry(self.engine, CLUSTER_ID)

    @property
    def end_offset(self) -> int:
        """Of each partition, exclusive."""
        return self.segments // PARTITIONS * OFFSETS

    def expiration(self, changes: int, *, by_size: bool = False) -> int:
        """The plan; its retention is such that the oldest `changes` segments expire."""
        metadata = self.metadata
        retention = TopicRetention(retention_ms=DAY_MS)
        if by_size:
            (size_bytes,) = {total.size_bytes for total in metadata.partition_sizes()}
            retention = TopicRetention(retention_bytes=size_bytes - changes // PARTITIONS * SEGMENT_BYTES)
        partitions = [partition_number(number) for number in range(PARTITIONS)]
        planner = ExpirationPlanner(
            metadata,
            self.registry,
            SqlWorkStore(self.engine, CLUSTER_ID),
            {partition.topic: retention for partition in partitions},
            DAY_MS,
            held=SqlPublicationStore(self.engine, CLUSTER_ID).held_segments,
        )
        now_ms = FIRST_MS + DAY_MS + changes
        return planner.plan("run", planner.partitions(), None, now_ms=now_ms).segments

    def abandoned_copies(self, _changes: int) -> int:
        return sum(len(abandoned_copies_of(self.metadata, partition_number(n))) for n in range(PARTITIONS))

    def quality_check(self, _changes: int) -> int:
        return len(list(_of_run(self.metadata, "run")))

    def verification(self, _changes: int) -> int:
        settings = SimpleNamespace(verdict=SimpleNamespace(max_age_ms=DAY_MS))
        given: dict[str, Any] = dict.fromkeys(
            ("quotas", "failed_copies", "verifications", "log_dirs", "partition_evaluator", "recorder", "clock")
        )
        given |= {
            "storage": lambda: SimpleNamespace(reading_costs=PLAIN_OBJECTS),
            "stored_quotas": lambda: QuotasInForce(0, {}),
            "metadata": self.metadata,
            "ingestion": SimpleNamespace(unread=dict),
            "ownership": SimpleNamespace(require=lambda: None),
            "segment_evaluator": lambda _: SimpleNamespace(rules=()),
            "effective": lambda: settings,
            "now_ms": lambda: FIRST_MS,
        }
        plan = VerificationService(**given).plan("run", VerificationSample(due=True), depth=Depth.SHALLOW, dry_run=True)
        return len(plan.planned)

    def copy(self, changes: int) -> int:
        nothing_known: Any = SimpleNamespace(topic=lambda _: None)
        replicas = [self._replica(number, changes // PARTITIONS) for number in range(PARTITIONS)]
        plan = plan_copy(
            "run",
            ScanReport("cluster", tuple(replicas), ()),
            scope=RunScope(),
            metadata=self.metadata,
            registry=self.registry,
            cluster_metadata=nothing_known,
            now_ms=FIRST_MS,
        )
        return sum(len(partition.segments) for partition in plan.partitions)

    def publication(self, changes: int) -> int:
        metadata: Any = self.metadata
        parts: dict[str, Any] = dict.fromkeys(("topic", "work", "clock", "observe"))
        publisher = Publisher(
            journals=SqlPublicationStore(self.engine, CLUSTER_ID),
            metadata=metadata,
            registry=self.registry,
            broker_id=-1,
            settle_ms=0,
            **parts,
        )
        log_start_offset = self.end_offset - changes // PARTITIONS * OFFSETS
        plans = [publisher.plan(partition_number(n), log_start_offset=log_start_offset) for n in range(PARTITIONS)]
        return sum(len(plan.steps) for plan in plans) // 2

    def _replica(self, number: int, new: int) -> Any:
        """A leader with segments that were copied, and behind them new ones and the active one."""
        first, epochs = self.end_offset // OFFSETS - 5, LeaderEpochs.of([(EPOCHS - 1, self.end_offset - 5 * OFFSETS)])
        rolled = [
            LogSegment(n * OFFSETS, (n + 1) * OFFSETS - 1, 1_000, FIRST_MS, epochs, False, None)
            for n in range(first, first + 5 + new)
        ]
        active = replace(
            rolled[-1],
            base_offset=rolled[-1].end_offset + 1,
            end_offset=rolled[-1].end_offset + OFFSETS,
            active=True,
            reason=IneligibleReason.ACTIVE,
        )
        end_offset = active.end_offset + 1
        replica_id = ReplicaId(partition_number(number), 1, "directory")
        return whole_replica(
            replica_id, [*rolled, active], end_offset, leader_epochs=epochs, log_start_offset=rolled[0].base_offset
        )

    def begin_copies(self) -> None:
        """Record copies that were begun and never finished."""
        with self.engine.begin() as connection:
            for n in range(CHANGES):
                partition, start = partition_number(n % PARTITIONS), self.end_offset + (n // PARTITIONS) * OFFSETS
                copy = segment_of(partition, n, start, start + OFFSETS - 1, {EPOCHS - 1: start}, state=STARTED)
                more = {"verdict": "none", "verdict_detail": "", "fencing_token": 1, "started_at_ms": FIRST_MS}
                row = connection.execute(insert(segments).values(**values_of(CLUSTER_ID, copy), **more))
                (key,) = row.inserted_primary_key or (0,)
                connection.execute(insert(segment_epochs), epoch_values_of(CLUSTER_ID, key, copy))
                count_in(connection, CLUSTER_ID, copy)

    def take_verdicts_away(self) -> None:
        """The newest segments lose their verdict, as after a copy."""
        with self.engine.begin() as connection:
            last = select(segments.c.segment_key).where(segments.c.state == 1)
            last = last.order_by(segments.c.segment_key.desc()).limit(CHANGES)
            newest = update(segments).where(segments.c.segment_key.in_(last))
            connection.execute(newest.values(verdict="none", verdict_at_ms=None))


Plan = Callable[[Scene, int], int]
PLANS: Final[Mapping[str, tuple[Plan, Callable[[Scene], None] | None]]] = {
    "expiration by time": (Scene.expiration, None),
    "expiration by size": (lambda scene, changes: scene.expiration(changes, by_size=True), None),
    "copy": (Scene.copy, None),
    "publication": (Scene.publication, None),
    "quality check": (Scene.quality_check, Scene.take_verdicts_away),
    "verification": (Scene.verification, None),
    "abandoned copies": (Scene.abandoned_copies, Scene.begin_copies),
}
"""Each with what makes its changes in the database, if something has to; later plans find these changes, too."""


def measured(scenes: Mapping[str, Scene], plan: Plan, changes: int, rounds: int) -> dict[str, Any]:
    """By the scenes' names. The first round warms up, and the rounds take turns over the scenes: other work on the
    machine meets all of them."""
    backends: dict[str, list[int]] = {}
    cpu: dict[str, list[float]] = {name: [] for name in scenes}
    elapsed: dict[str, list[float]] = {name: [] for name in scenes}
    found: dict[str, Any] = {}
    for name, scene in scenes.items():
        plan(scene, changes)
        backends[name] = backends_of(scene.engine)
    for _ in range(rounds):
        for name, scene in scenes.items():
            began_cpu, began = cpu_seconds(backends[name]), time.perf_counter()
            found[name] = plan(scene, changes)
            elapsed[name].append(time.perf_counter() - began)
            cpu[name].append(cpu_seconds(backends[name]) - began_cpu)
    return {
        name: {
            "found": found[name],
            "cpu_ms": round(min(cpu[name]) * 1000, 2),
            "elapsed_ms": round(min(elapsed[name]) * 1000, 2),
            **statements_and_memory(scene, plan, changes),
        }
        for name, scene in scenes.items()
    }


def statements_and_memory(scene: Scene, plan: Plan, changes: int) -> dict[str, int]:
    with counted_statements(scene.engine) as statements:
        tracemalloc.start()
        plan(scene, changes)
        peak_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return {"statements": statements[0], "peak_bytes": peak_bytes}


def backends_of(engine: Engine) -> list[int]:
    """The processes that work for the connections of this engine; none with SQLite, which works in this process."""
    if engine.dialect.name == "sqlite":
        return []
    with engine.connect() as connection:
        query = (
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'"
        )
        return list(connection.exec_driver_sql(query).scalars())


def cpu_seconds(backends: Sequence[int]) -> float:
    """Of this process and of these ones."""
    nanoseconds = (int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for pid in backends)
    return time.process_time() + sum(nanoseconds) / 1e9


@contextmanager
def counted_statements(engine: Engine) -> Iterator[list[int]]:
    count = [0]

    def add(*_: object) -> None:
        count[0] += 1

    event.listen(engine, "before_cursor_execute", add)
    try:
        yield count
    finally:
        event.remove(engine, "before_cursor_execute", add)


def over(
    database: str, directory: Path, sizes: Sequence[int], rounds: int, filled_seconds: dict[str, float]
) -> dict[str, Any]:
    """By plan, then by changes, then by the number of segments; `filled_seconds` gets what building them took."""
    found: dict[str, Any] = {name: {} for name in PLANS}
    with ExitStack() as stack:
        url_of = stack.enter_context(database_urls(database, directory))
        scenes = {}
        for size in sizes:
            url, began = url_of(f"plan_{size}"), time.monotonic()
            build(url, size, PARTITIONS, all_finished=True)
            filled_seconds[f"{database}: {size:,}"] = round(time.monotonic() - began, 1)
            note(f"{database}: {size:,} segments built in {time.monotonic() - began:.1f} s")
            engine = open_engine(url)
            stack.callback(engine.dispose)
            scenes[f"{size:,}"] = Scene(engine, size)
        for name, (plan, change) in PLANS.items():
            if name != "verification":
                found[name]["nothing"] = measured(scenes, plan, 0, rounds)
            if name == "quality check":
                found["verification"]["nothing"] = measured(scenes, Scene.verification, 0, rounds)
            if change is not None:
                for scene in scenes.values():
                    change(scene)
            found[name][str(CHANGES)] = measured(scenes, plan, CHANGES, rounds)
    return found


def held(found: Mapping[str, Any]) -> dict[str, bool]:
    """Of the plans with changes, over the most segments and the fewest."""
    bounds = {}
    for database, plans in found.items():
        pairs = [list(plan[str(CHANGES)].values()) for plan in plans.values()]
        for name, value, most in (("time", "cpu_ms", MOST_SLOWER), ("memory", "peak_bytes", MOST_GROWN)):
            is_held = all(last[value] <= most * first[value] for first, *_, last in pairs)
            bounds[f"{database}: {name}"] = is_held
    return bounds


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Measure plans; prints JSON.")
    parser.add_argument("--segments", default=",".join(map(str, SEGMENTS)), help="of the archives, with commas")
    parser.add_argument("--databases", default="sqlite,postgresql", help="with commas")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    sizes = [int(number) for number in options.segments.split(",")]
    filled: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="bench-plan-") as name:
        found = {each: over(each, Path(name), sizes, options.rounds, filled) for each in options.databases.split(",")}
    bounds = held(found) if len(sizes) > 1 else {}
    print(json.dumps({"plans": found, "filled_seconds": filled, "held": bounds}))
    return int(not all(bounds.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
