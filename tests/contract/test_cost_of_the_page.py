"""What the routes of the page *Tiering* read: at most ten statements, and no segments of a whole partition.

The preview of a retention decides about each partition that it is asked about, so it is counted by partition.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import pytest
from sqlalchemy import Connection, Engine, event

from include.tiering.app import App, open_app
from include.tiering.configs.report import describe_now
from include.tiering.operations.attention import attention_document
from include.tiering.operations.quality import quality_document
from include.tiering.operations.timeline import timeline_document
from include.tiering.operations.topic_list import AskedPage
from include.tiering.settings import load_settings
from tests.contract.test_cost_of_plans import archive_url, recorded, whole_reads
from tests.doubles.databases import SHARED, each_database

__all__ = ["archive_url"]

SIZES: Final = (1_000, 10_000)
PARTITIONS: Final = 10
MOST_STATEMENTS: Final = 10
MOST_OF_A_PARTITION: Final = 60
TOPIC: Final = "topic-0"
READS: Final[Mapping[str, Callable[[App], Any]]] = {
    "now": lambda app: app.operations.overview.now(),
    "throughput": lambda app: app.operations.throughput.last_hours(6),
    "topics": lambda app: app.operations.topic_list.page(AskedPage()),
    "topics by what waits": lambda app: app.operations.topic_list.page(AskedPage(sort="waiting_bytes")),
    "topics as CSV": lambda app: app.operations.topic_list.all(),
    "topic": lambda app: app.operations.topic_details.of(TOPIC),
    "backfill": lambda app: app.operations.backfill.of(),
    "quality": lambda app: quality_document(app.operations.quality.now()),
    "segments": lambda app: timeline_document(app.operations.timeline.of(TOPIC, 0)),
    "older segments": lambda app: timeline_document(app.operations.timeline.of(TOPIC, 0, before=50_000)),
    "attention": lambda app: attention_document(app.operations.attention.now()),
    "limits": lambda app: (
        describe_now(app.adapters.stores.configs, app.settings, lambda: app.configs.pools_status(ask_airflow=False)),
        app.adapters.stores.events.newest(100),
    ),
}
KEEPS: Final[Mapping[str, Mapping[str, str | None]]] = {
    "all": {"retention.ms": "3650000d"},
    "less by size": {"retention.bytes": "0"},
}

database_kind = each_database(SHARED)


@pytest.fixture(scope="module")
def archives(archive_url: Callable[[int], str]) -> Mapping[int, str]:
    return {segments: archive_url(segments) for segments in SIZES}


@contextmanager
def opened(url: str) -> Iterator[App]:
    with open_app(
        load_settings(environ={"TIERING_METADATA__URL": url, "TIERING_REMOTE_STORAGE__URL": "file:///x"})
    ) as app:
        yield app


def asked(app: App, read: Callable[[App], Any]) -> list[tuple[str, Any]]:
    """Return the statements of a second read, those about metrics included, which have an engine of their own.

    The first read opens what the others share.
    """
    read(app)
    with recorded(Engine) as statements:
        read(app)
    return statements


@pytest.mark.parametrize("name", READS)
def test_a_route_takes_few_statements_of_which_none_follows_the_archive(archives: Mapping[int, str], name: str) -> None:
    found = {}
    for segments, url in archives.items():
        with opened(url) as app:
            statements = asked(app, READS[name])
            assert not [steps for each in statements if (steps := whole_reads(app.adapters.engine, *each))]
            assert not [steps for each in statements if (steps := reads_of_epochs(app.adapters.engine, *each))]
            found[segments] = len(statements)
    assert len(set(found.values())) == 1, found
    assert 0 < found[SIZES[0]] <= MOST_STATEMENTS, found


@pytest.mark.parametrize("name", ["now", "backfill"])
def test_an_answer_is_one_transaction_in_the_database_and_one_about_metrics(
    archives: Mapping[int, str], name: str
) -> None:
    begun: list[Engine] = []

    def note(connection: Connection) -> None:
        begun.append(connection.engine)

    with opened(archives[SIZES[0]]) as app:
        READS[name](app)
        event.listen(Engine, "begin", note)
        try:
            READS[name](app)
        finally:
            event.remove(Engine, "begin", note)
    assert len(begun) == len(set(begun)) == 2


def reads_of_epochs(engine: Engine, statement: str, parameters: Any) -> list[str]:
    """What SQLite says it reads of the counters of all leader epochs of all topics."""
    if engine.dialect.name != "sqlite":
        return []
    with engine.connect() as connection:
        steps = [row.detail for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)]
    of_all = [step for step in steps if "size_counters" in step and step.endswith("(cluster_id=?)")]
    return [step for step in of_all if "ix_size_counters_totals" not in step]


def test_a_preview_that_deletes_nothing_reads_the_same_of_each_archive(archives: Mapping[int, str]) -> None:
    found = {}
    for segments, url in archives.items():
        with opened(url) as app:
            statements = asked(app, lambda app: app.expiration.preview(TOPIC, KEEPS["all"]))
            assert not [steps for each in statements if (steps := whole_reads(app.adapters.engine, *each))]
            found[segments] = len(statements)
            assert app.expiration.preview(TOPIC, KEEPS["all"]).horizons[-1].asked.segments == 0
    assert len(set(found.values())) == 1, found
    assert found[SIZES[0]] <= PARTITIONS * MOST_OF_A_PARTITION, found


def test_a_preview_that_deletes_everything_says_so(archives: Mapping[int, str]) -> None:
    segments = SIZES[0]
    with opened(archives[segments]) as app:
        statements = asked(app, lambda app: app.expiration.preview(TOPIC, KEEPS["less by size"], at_most=1))
        assert len(statements) <= 2 * MOST_OF_A_PARTITION, len(statements)
        everything = app.expiration.preview(TOPIC, KEEPS["less by size"])
    assert everything.horizons[0].asked.segments == segments
    assert sum(each.remote_bytes for each in everything.partitions) == everything.horizons[0].asked.size_bytes
