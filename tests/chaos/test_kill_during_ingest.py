"""Kills while metadata is ingested, rebuilt and published, and while segments are verified."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from include.tiering.app import App, open_app
from include.tiering.database.engine import open_engine
from include.tiering.database.migrations import upgrade
from include.tiering.errors import ForeignStoreError, MetadataUnavailableError
from include.tiering.kafka.metadata_topic.contract import OffsetBounds
from include.tiering.metadata_sync.ingest import IngestStep
from include.tiering.metadata_sync.publish import PublishStep
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.segments import Verdict
from include.tiering.recovery.rebuild import RebuildStep
from include.tiering.settings import load_settings
from include.tiering.verification.plan import VerificationOutcome
from tests.doubles.broker_data import broker_data
from tests.doubles.copy_process import kill_worker, run_worker
from tests.doubles.ingest_worker import BEFORE_COMMIT, PAGE_RECORDS, POISONED_PARTITION, ingested_topic
from tests.doubles.memory_metadata_topic import FileMetadataTopic, MemoryMetadataTopic
from tests.doubles.publication_world import PublicationWorld, orders
from tests.doubles.publisher_kills import PARTITION, RANGES, Kills
from tests.doubles.segments import delete
from tests.doubles.tiered_topic import replayed_caches
from tests.doubles.verify_worker import GROUP

# kill -9 at every step of an ingest, page after page: each record is applied once, and rows are what a broker knows
# that read as far. The crash table of `metadata_sync/ingest.py` is the specification.

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


# kill -9 at every named step of a rebuild, one after another: in the end the metadata are whole, and nobody used
# them before. The crash table of `recovery/rebuild.py` is the specification.

REBUILD_WORKER = "rebuild_worker"


@pytest.mark.usefixtures("deployment")
def test_killed_at_each_step_in_turn_it_comes_to_its_end(tmp_path, monkeypatch) -> None:
    lost = load_settings()
    with open_app(lost) as app:
        app.set_up.migrate()
        app.copying.plan("run-1")
        assert app.copying.run_batch("run-1", "run-1/0").copied
        sizes = app.sizes.partition_sizes()
        objects = set(app.adapters.storage.list_objects())
    monkeypatch.setenv("TIERING_METADATA__URL", f"sqlite:///{tmp_path}/new.sqlite")
    for step in RebuildStep:
        kill_worker("one", "--kill-at", step, worker=REBUILD_WORKER)
        with open_app(lost) as old:
            if step is RebuildStep.BEGUN:
                old.adapters.storage.check_writable()
            else:
                with pytest.raises(ForeignStoreError):
                    old.adapters.storage.check_writable()
        if step is not RebuildStep.FINISHED:
            with open_app(load_settings()) as half, pytest.raises(MetadataUnavailableError, match="rebuild"):
                half.sizes.partition_sizes()
    assert run_worker("one", worker=REBUILD_WORKER) != 0
    with open_app(load_settings()) as app:
        assert app.sizes.partition_sizes() == sizes
        assert {key for key, _ in app.adapters.storage.list_objects()} == {key for key, _ in objects}
        app.adapters.storage.check_writable()


# kill -9 of the publisher at each of its steps, 54 times in all: whoever reads the topic in between finds what a
# broker could be switched on with. The crash table of `metadata_sync/publish.py` is the specification. The topic is
# kept in files, so it outlives its writers as brokers do; tests/kafka has the same against a broker.


def test_killed_at_every_step_in_turn_it_leaves_a_valid_prefix_and_comes_to_its_end(tmp_path: Path) -> None:
    engine = open_engine(f"sqlite:///{tmp_path}/metadata.sqlite")
    upgrade(engine)
    world = PublicationWorld(engine)
    segments, fence = world.copied(orders(PARTITION), RANGES)
    place = tmp_path / "topic"
    place.mkdir()
    kills = Kills(world, FileMetadataTopic(place), str(place))
    _, *later = PublishStep
    died = kills.while_publishing(later)
    for segment in segments:
        delete(world.metadata, segment, fence)
    assert died + kills.while_telling_deletions(list(PublishStep)) == 54
    engine.dispose()


# kill -9 at every step of a planned verification: what was stored stays, and the next process does the rest. The
# crash table of `verify_planned` is the specification.

VERIFY_WORKER = "verify_worker"
# Verdicts, and outcomes in the plan, of the first group and of what the second came to.
LEFT = {
    "measured": (GROUP, GROUP),
    "results": (GROUP, GROUP),
    "recorded": (GROUP + 1, GROUP),
    "all-recorded": (2 * GROUP, GROUP),
    "noted": (2 * GROUP, 2 * GROUP),
}


@pytest.fixture
def stored(tmp_path) -> dict[str, str]:
    """Where the objects are makes no difference to how they are verified."""
    (tmp_path / "remote").mkdir()
    return {"TIERING_REMOTE_STORAGE__URL": f"file://{tmp_path}/remote"}


def passed() -> tuple[int, int, int]:
    """Segments with the verdict, with the outcome in the plan, and planned ones in all."""
    with open_app(load_settings()) as app:
        verdicts = {total.verdict: total.segments for total in app.adapters.stores.metadata.verdict_totals()}
        outcomes = {total.outcome: total.segments for total in app.adapters.stores.verifications.totals("one")}
    assert verdicts[Verdict.FAILED] == outcomes[VerificationOutcome.FAILED] == 0
    return verdicts[Verdict.PASSED], outcomes[VerificationOutcome.PASSED], sum(outcomes.values())


@pytest.mark.usefixtures("deployment")
@pytest.mark.parametrize("point", LEFT)
def test_at_a_point(point, monkeypatch):
    monkeypatch.setenv("TIERING_TOPICS__INCLUDE", "normal,prealloc")
    kill_worker("one", "--kill-at", point, worker=VERIFY_WORKER)
    *left, planned = passed()
    assert tuple(left) == LEFT[point]
    assert planned > 2 * GROUP
    assert run_worker("one", worker=VERIFY_WORKER) == 0
    assert passed() == (planned, planned, planned)
