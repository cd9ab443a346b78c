"""Why a topic is not tiered: on real broker data, with the real parts."""

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from include.tiering.app import App, open_app
from include.tiering.configs.config_store import ALL_BROKERS
from include.tiering.copying.run_scope import RunScope
from include.tiering.metadata_sync.publication_contract import Intent
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.segments import RemoteLogSegmentState, TopicIdPartition, Uuid
from include.tiering.operations.doctor import Cause, Diagnosis
from include.tiering.settings import load_settings
from tests.doubles.broker_data import copy_of


@pytest.fixture
def brokers(tmp_path: Path) -> Path:
    return copy_of("public", tmp_path, part="stopped")


@pytest.fixture
def app(tmp_path: Path, brokers: Path) -> Iterator[App]:
    settings = load_settings(
        environ={
            "TIERING_LOG_DIRS": f"1:{brokers / 'broker-1'},2:{brokers / 'broker-2'}",
            "TIERING_TOPICS__INCLUDE": "orders,bigrecs,payments*,audit_log,never-written,state-compacted",
            "TIERING_METADATA__URL": f"sqlite:///{tmp_path / 'tiering.db'}",
            "TIERING_REMOTE_STORAGE__URL": f"file://{tmp_path / 'remote'}",
        }
    )
    with open_app(settings) as opened:
        opened.set_up.migrate()
        yield opened


def one(app: App, topic: str) -> Diagnosis:
    (found,) = app.operations.diagnose(topic)
    return found


def test_what_can_be_copied_waits_for_a_run_and_is_then_up_to_date(app: App) -> None:
    waiting = one(app, "bigrecs")
    assert (waiting.cause, waiting.cause.tiers) == (Cause.WAITS_FOR_A_RUN, True)
    assert waiting.finding.startswith("1 segment, ")
    app.copying.plan("run-1", scope=RunScope(("bigrecs",)))
    app.copying.run_batch("run-1", "run-1/0")
    done = one(app, "bigrecs")
    assert (done.cause, done.cause.tiers) == (Cause.UP_TO_DATE, True)
    assert done.finding.startswith("all that has rolled is remote; active segment from offset 3")


def test_an_open_transaction_is_named_with_producer_age_and_the_way_out(app: App) -> None:
    app.copying.plan("run-1", scope=RunScope(("payments*",)))
    app.copying.run_batch("run-1", "run-1/0")
    found = one(app, "payments.v1-eu")
    assert found.cause is Cause.OPEN_TRANSACTION
    assert found.finding.startswith("open transaction of producer 3005 for ")
    assert found.finding.endswith(" from offset 727; last stable offset 727, high watermark 1259")
    assert found.advice.endswith("kafka-transactions.sh abort --topic payments.v1-eu --partition 0 --start-offset 727")


def test_a_topic_that_nobody_asked_for(app: App) -> None:
    found = one(app, "trimmed")
    assert (found.cause, found.advice) == (Cause.NOT_INCLUDED, "add trimmed to topics.include")


def test_only_an_active_segment(app: App) -> None:
    found = one(app, "never-written")
    assert (found.cause, found.cause.tiers) == (Cause.NOTHING_ROLLED, True)


@pytest.mark.parametrize(
    ("topic", "cause", "finding"),
    [
        ("state-compacted", Cause.NOT_ELIGIBLE, "compacted topic"),
        (
            "nothing-of-it",
            Cause.NOT_FOUND,
            "no directory of log_dirs has a partition of this topic, and none of its segments is remote",
        ),
    ],
)
def test_topics_without_a_partition_to_look_at(app: App, topic: str, cause: Cause, finding: str) -> None:
    found = one(app, topic)
    assert (found.partition, found.cause, found.finding) == (None, cause, finding)


def test_a_pool_of_size_0(app: App) -> None:
    app.adapters.stores.pool_mirror.record("remote_log_copier", 0, seen=None, author="ada")
    found = one(app, "bigrecs")
    assert found.cause is Cause.PLATFORM
    assert (
        found.finding == "pool: pool remote_log_copier has 0 slots, which pauses its batches: give it slots to continue"
    )


def test_a_pause_of_one_topic_and_of_all(app: App) -> None:
    app.adapters.stores.work.pause("bigrecs", author="ada")
    found = one(app, "bigrecs")
    assert (found.cause, found.finding) == (Cause.NOT_READY, "paused: ./tiering resume --topic bigrecs")
    app.adapters.stores.work.pause(None, author="ada")
    assert one(app, "bigrecs").finding == "pause: all topics are paused: ./tiering resume"


def publish_one(app: App, partition: TopicIdPartition) -> None:
    """Write STARTED and FINISHED of one segment into the journal of a partition."""
    stores = app.adapters.stores
    rows = stores.metadata.list_segments(partition)
    segment_id = rows[0].metadata.remote_log_segment_id.id if rows else Uuid(bytes(range(16)))
    lease = stores.publications.claim(partition, run_id="run", batch_id="one", lease_ms=60_000)
    assert lease is not None
    stores.publications.begin(lease.fence, metadata_partition=0, partition_count=1, next_offset=0)
    for number, state in enumerate(tuple(RemoteLogSegmentState)[:2]):
        stores.publications.intend(lease.fence, number, Intent(segment_id, state, 0, 9, b"record"))
        stores.publications.advance(lease.fence, number + 1, found=number)


def test_what_brokers_knew_of_an_older_topic_of_the_name_is_not_told(app: App) -> None:
    app.copying.plan("run", scope=RunScope(("bigrecs",)))
    app.copying.run_batch("run", "batch")
    older = TopicIdPartition(Uuid(bytes([7] * 16)), 0, "bigrecs")
    set_owner = partial(app.adapters.stores.registry.set_owner, older.topic_id, "bigrecs", author="test")
    set_owner(TopicOwner.HANDING_OVER, expected=TopicOwner.NONE)
    publish_one(app, older)
    set_owner(TopicOwner.PLATFORM, expected=TopicOwner.HANDING_OVER)
    assert Cause.PUBLISHED not in [line.cause for line in app.operations.diagnose("bigrecs")]


def test_what_of_an_archived_topic_brokers_may_take_over(app: App) -> None:
    app.copying.plan("run", scope=RunScope(("bigrecs",)))
    app.copying.run_batch("run", "batch")
    stores = app.adapters.stores
    (partition,) = stores.metadata.partitions()
    set_owner = partial(stores.registry.set_owner, partition.topic_id, "bigrecs", author="test")
    set_owner(TopicOwner.HANDING_OVER, expected=TopicOwner.PLATFORM)
    publish_one(app, partition)
    assert Cause.PUBLISHED not in [line.cause for line in app.operations.diagnose("bigrecs")]
    set_owner(TopicOwner.PLATFORM, expected=TopicOwner.HANDING_OVER)
    line = app.operations.diagnose("bigrecs")[0]
    assert (line.cause, line.cause.is_finding, line.partition) == (Cause.PUBLISHED, False, None)
    assert line.finding.startswith("archived again after a handover: brokers know of 1 segment;")
    assert "./tiering publish bigrecs" in line.advice


def test_a_store_that_is_not_ours(app: App, tmp_path: Path) -> None:
    marker = tmp_path / "remote" / "_tiering-store.json"
    marker.write_text(marker.read_text().replace('"generation": 1', '"generation": 9'))
    found = one(app, "bigrecs")
    assert found.cause is Cause.PLATFORM
    assert found.finding.startswith("storage: ")


def test_a_leader_that_is_out_of_sight(app: App, brokers: Path) -> None:
    shutil.rmtree(brokers / "broker-2")
    found = app.operations.diagnose("orders")
    assert [(line.partition and line.partition.partition, line.cause.tiers) for line in found] == [
        (0, True),
        (1, False),
        (2, True),
    ]
    assert (found[1].cause, "broker-2" in found[1].finding) == (Cause.NOT_READY, True)


def test_a_missing_producer_snapshot(app: App, brokers: Path) -> None:
    for snapshot in (brokers / "broker-2" / "bigrecs-0").glob("*.snapshot"):
        snapshot.unlink()
    found = one(app, "bigrecs")
    assert (found.cause, found.finding) == (Cause.NOT_ELIGIBLE, "segment at 0: no producer snapshot at its end")


def test_a_batch_holds_it_under_a_quota(app: App) -> None:
    app.configs.alter(ALL_BROKERS, {"remote.log.manager.copy.max.bytes.per.second": "1024"}, author="ada")
    app.copying.plan("run-1", scope=RunScope(("bigrecs",)))
    lease = app.adapters.stores.work.claim("run-1", "run-1/0", lease_ms=600_000)
    assert lease is not None
    found = one(app, "bigrecs")
    assert (found.cause, found.cause.tiers) == (Cause.BEING_COPIED, True)
    assert found.finding.startswith("batch run-1/0 has held its lease for ")
    assert "; copy quota 1.0 KiB/s of broker 2: " in found.finding
    app.adapters.stores.work.release(lease)
    assert one(app, "bigrecs").cause is Cause.WAITS_FOR_A_RUN


def test_a_hole_is_somebodys_decision(app: App, brokers: Path) -> None:
    app.copying.plan("run-1", scope=RunScope(("orders",)), limit_bytes=1)
    app.copying.run_batch("run-1", "run-1/0")
    (held,) = [size.topic_id_partition for size in app.sizes.partition_sizes()]
    log_dir = next(brokers.glob(f"broker-*/{held}"))
    bases = sorted(int(path.stem) for path in log_dir.glob("*.log"))
    for path in log_dir.glob(f"{bases[0]:020d}.*"):
        path.unlink()
    for path in log_dir.glob(f"{bases[1]:020d}.*"):
        path.unlink()
    found = {line.partition and line.partition.partition: line for line in app.operations.diagnose("orders")}
    hole = found[held.partition]
    assert hole.cause is Cause.HELD_BACK
    assert f"offsets {bases[1]}..{bases[2] - 1} are no longer in the source" in hole.finding
