"""kill -9 at every step of an ingest, page after page: each record is applied once, and rows are what a broker knows
that read as far. The crash table of `metadata_sync/ingest.py` is the specification.
"""

from collections.abc import Iterator

import pytest

from include.tiering.app import App, open_app
from include.tiering.kafka.metadata_topic.contract import OffsetBounds
from include.tiering.metadata_sync.ingest import IngestStep
from include.tiering.model.ownership import TopicOwner
from include.tiering.settings import load_settings
from tests.doubles.broker_data import broker_data
from tests.doubles.copy_process import kill_worker, run_worker
from tests.doubles.ingest_worker import BEFORE_COMMIT, PAGE_RECORDS, POISONED_PARTITION, ingested_topic
from tests.doubles.memory_metadata_topic import MemoryMetadataTopic
from tests.doubles.tiered_topic import replayed_caches

pytestmark = pytest.mark.chaos

WORKER = "ingest_worker"
CHAINS = 13
"""Pages at each of which the ingester dies at every step: with the other steps 50 deaths and more."""


@pytest.fixture
def app(tmp_path, monkeypatch) -> Iterator[App]:
    variables = {
        "TIERING_REMOTE_STORAGE__URL": f"file://{tmp_path}/remote",
        "TIERING_LOG_DIRS": f"5:{broker_data('tiered') / 'data-stopped'}",
        "TIERING_METADATA__URL": f"sqlite:///{tmp_path}/metadata.sqlite",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "remote").mkdir()
    with open_app(load_settings()) as opened:
        opened.set_up.migrate()
        yield opened


def die(*options: str) -> None:
    kill_worker("one", *options, worker=WORKER)


def read_so_far(app: App) -> int:
    """How many records the positions are behind, after a look at everything that must follow from them."""
    positions = app.adapters.stores.ingestion.positions()
    outcomes = app.adapters.stores.ingestion.outcomes()
    cut = MemoryMetadataTopic(len(positions))
    topic = ingested_topic()
    for position in positions:
        number = position.metadata_partition
        for record in topic.read(number, 0, end_offset=position.next_offset):
            cut.append(number, record.value)
        assert cut.offsets(number) == OffsetBounds(0, position.next_offset)
        assert sum(outcomes.get(number, {}).values()) == position.next_offset, "each record once"
    caches = replayed_caches(cut)
    for partition, cache in caches.items():
        assert app.adapters.stores.ingestion.broker_view(partition).cache == cache.state()
        rows = {
            row.metadata.remote_log_segment_id: row.metadata
            for row in app.adapters.stores.metadata.list_segments(partition)
        }
        assert rows == {one.remote_log_segment_id: one for one in cache.list_segments()}
    assert set(app.adapters.stores.metadata.partitions()) <= set(caches)
    return sum(position.next_offset for position in positions)


def test_killed_at_each_step_of_each_page_it_loses_and_doubles_nothing(app: App) -> None:
    deaths = 0
    die("--kill-at", IngestStep.BOUNDS_STORED)
    assert read_so_far(app) == 0
    for page in range(CHAINS):
        before = read_so_far(app)
        for point in (IngestStep.READ, BEFORE_COMMIT):
            die("--kill-at", point)
            assert read_so_far(app) == before, f"page {page}, {point}"
        die("--kill-at", IngestStep.APPLIED)
        assert before < read_so_far(app) <= before + PAGE_RECORDS
        deaths += 3
    die("--kill-at", IngestStep.FOLLOWED)
    assert read_so_far(app) == 164
    owners = {
        one.topic: app.adapters.stores.registry.owner(one.topic_id) for one in app.adapters.stores.metadata.partitions()
    }
    assert set(owners.values()) == {TopicOwner.BROKER}
    assert run_worker("one", worker=WORKER) == 0
    assert read_so_far(app) == 164
    assert deaths + 2 >= 40


def test_killed_while_it_reads_again_nobody_is_served_before_all_is_there(app: App) -> None:
    assert run_worker("one", worker=WORKER) == 0
    partitions = app.adapters.stores.metadata.partitions()
    rows = {one: app.adapters.stores.metadata.list_segments(one) for one in partitions}
    die("--again", "--kill-at", IngestStep.BOUNDS_STORED)
    assert not any(app.adapters.stores.metadata.is_ready(one) for one in partitions)
    for point in (IngestStep.READ, BEFORE_COMMIT, IngestStep.APPLIED) * 3:
        die("--kill-at", point)
        assert not all(app.adapters.stores.metadata.is_ready(one) for one in partitions)
    assert run_worker("one", worker=WORKER) == 0
    assert all(app.adapters.stores.metadata.is_ready(one) for one in partitions)
    assert {one: app.adapters.stores.metadata.list_segments(one) for one in partitions} == rows
    assert read_so_far(app) == 164


def test_killed_when_it_stopped_it_stops_again(app: App) -> None:
    for _ in range(2):
        die("--poison", "--kill-at", IngestStep.STOPPED)
        position = app.adapters.stores.ingestion.positions()[POISONED_PARTITION]
        assert position.stopped is not None
        assert position.lag_records == 1
    assert run_worker("one", "--poison", worker=WORKER) == 0
    assert read_so_far(app) == 164
