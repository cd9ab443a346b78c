"""Plans read the segments that something happens to: the databases' own plans of their statements say so.

`benchmarks/bench_plan.py` measures the same plans over larger archives.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest
from sqlalchemy import Engine, event, update

from benchmarks.bench_plan import CHANGES, PLANS, Scene
from benchmarks.sizes_scene import build
from include.tiering.database.engine import open_engine
from include.tiering.database.schema import partitions
from tests.doubles.databases import POSTGRESQL, SHARED, SQLITE_FILE, each_database, new_name

SEGMENTS: Final = 20_000
MOST_ROWS: Final = 400
"""Of the 2,000 of a partition; a plan with changes finds 100 in all."""
STEPS: Final = 100
OF_FEW: Final = ("ix_segments_under_way", "ix_segments_known_to_brokers")
"""Partial indexes that have few segments of a partition. SQLite, which has no statistics, takes them because they are
newer than those that have all segments."""

database_kind = each_database(SHARED)


@pytest.fixture(scope="module")
def archive_url(
    database_kind: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[int], str]:
    """Builds an archive of so many segments; returns its URL."""

    def built(segments: int) -> str:
        if database_kind == POSTGRESQL:
            create: Callable[[str], str] = request.getfixturevalue("create_postgresql_database")
            url = create(new_name())
        else:
            url = f"sqlite:///{tmp_path_factory.mktemp('archive') / 'archive.sqlite'}"
        build(url, segments, 10, all_finished=True)
        return url

    return built


@pytest.fixture(scope="module")
def scene(archive_url: Callable[[int], str]) -> Iterator[Scene]:
    engine = open_engine(archive_url(SEGMENTS))
    yield Scene(engine, SEGMENTS)
    engine.dispose()


@contextmanager
def recorded(engine: Engine | type[Engine]) -> Iterator[list[tuple[str, Any]]]:
    """The SELECT statements that are executed, with their parameters."""
    asked: list[tuple[str, Any]] = []

    def record(_connection, _cursor, statement: str, parameters: Any, _context, _many) -> None:
        if statement.startswith("SELECT"):
            asked.append((statement, parameters))

    event.listen(engine, "before_cursor_execute", record)
    try:
        yield asked
    finally:
        event.remove(engine, "before_cursor_execute", record)


def whole_reads(engine: Engine, statement: str, parameters: Any) -> list[str]:
    """What the database says it reads whole: a table, or all segments of a partition."""
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            steps = [row.detail for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)]
            return [step for step in steps if _is_whole(step)]
        explained = connection.exec_driver_sql(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", parameters).scalar_one()
    plan = explained if isinstance(explained, list) else json.loads(explained)
    return [json.dumps(node) for node in _nodes(plan[0]["Plan"]) if _rows_read(node) > MOST_ROWS]


def _is_whole(step: str) -> bool:
    of_segments = any(
        f"{verb} {table} " in f"{step} " for verb in ("SCAN", "SEARCH") for table in ("segments", "segment_epochs")
    )
    is_partition = step.endswith("(cluster_id=? AND topic_id=? AND partition=?)") and not any(
        name in step for name in OF_FEW
    )
    return of_segments and (step.startswith("SCAN") or is_partition)


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from _nodes(child)


def _rows_read(node: dict[str, Any]) -> int:
    if "Relation Name" not in node:
        return 0
    return int((node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"])


def test_no_statement_of_a_plan_reads_a_whole_partition(scene: Scene) -> None:
    found = {}
    for name, (plan, change) in PLANS.items():
        if change is not None:
            change(scene)
        with recorded(scene.engine) as asked:
            assert plan(scene, CHANGES) == CHANGES
        assert asked
        for statement, parameters in asked:
            found[name, statement] = whole_reads(scene.engine, statement, parameters)
    assert not {place: steps for place, steps in found.items() if steps}


def test_rows_are_added_up_from_an_index_alone(scene: Scene) -> None:
    """If the counter of a partition is not what the triggers of the database added up."""
    partition = scene.metadata.partitions()[0]
    wrong = update(partitions).where(partitions.c.partition == partition.partition)
    with scene.engine.begin() as connection:
        connection.execute(wrong.values(finished_bytes=partitions.c.finished_bytes + 1))
    with recorded(scene.engine) as asked:
        assert scene.metadata.selected.counters_agree(partition)
    with scene.engine.begin() as connection:
        connection.execute(wrong.values(finished_bytes=partitions.c.finished_bytes - 1))
    [[step]] = [steps for each in asked if (steps := whole_reads(scene.engine, *each))]
    assert "COVERING INDEX ix_segments_start" in step or "Index Only" in step


def test_a_list_of_a_partition_is_found_to_be_one(scene: Scene) -> None:
    with recorded(scene.engine) as asked:
        scene.metadata.list_segments(scene.metadata.partitions()[0])
    assert any(whole_reads(scene.engine, statement, parameters) for statement, parameters in asked)


@contextmanager
def counted_steps(url: str) -> Iterator[tuple[Engine, list[int]]]:
    """An engine for SQLite, and how often its virtual machine executed so many instructions."""
    engine, count = open_engine(url), [0]

    def count_up() -> int:
        count[0] += 1
        return 0

    def watch(connection: Any, _record: object) -> None:
        connection.set_progress_handler(count_up, STEPS)

    event.listen(engine, "connect", watch)
    yield engine, count
    engine.dispose()


def test_the_work_of_the_database_follows_the_changes(database_kind: str, archive_url: Callable[[int], str]) -> None:
    """Counted, not timed: instructions of SQLite's virtual machine."""
    if database_kind != SQLITE_FILE:
        pytest.skip("only SQLite counts its instructions")
    work: dict[str, list[int]] = {name: [] for name in PLANS}
    for segments in (1_000, SEGMENTS):
        with counted_steps(archive_url(segments)) as (engine, count):
            scene = Scene(engine, segments)
            for name, (plan, change) in PLANS.items():
                if change is not None:
                    change(scene)
                plan(scene, CHANGES)
                count[0] = 0
                plan(scene, CHANGES)
                work[name].append(count[0])
    assert not {name: steps for name, steps in work.items() if steps[1] > 2 * steps[0] + 10}, work
