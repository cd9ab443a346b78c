"""A topic is created again under its old name. What is set on the name is about the topic that has it now, and about
none while the cluster does not say which that is: the older one's archive stays, and the plan names it."""

import shutil
from pathlib import Path

import pytest

from include.tiering.copying.plan import HeldBack
from include.tiering.expiration.plan import Waits
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.segments import Uuid
from tests.doubles.archive import EVERYTHING, ORDERS, Archive
from tests.doubles.tiered_topic import metadata_batch, partition_record, topic_record

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("on_each_database")]

AGAIN = Uuid(b"orders-once-more")
HOUR_MS = 3_600_000


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive.of(tmp_path)


def without_metadata_log(archive: Archive) -> None:
    for broker in (1, 2):
        shutil.rmtree(archive.brokers / f"broker-{broker}" / "__cluster_metadata-0")


def snapshot_says(archive: Archive, topic_id: Uuid) -> None:
    """A metadata log that began anew: one topic has the name, of no other it says anything, not even a removal."""
    without_metadata_log(archive)
    records = [topic_record(ORDERS, topic_id)]
    records += [partition_record(topic_id, number, leader=1 if number == 0 else 2) for number in EVERYTHING]
    for broker in (1, 2):
        log = archive.brokers / f"broker-{broker}" / "__cluster_metadata-0"
        log.mkdir()
        (log / f"{0:020d}.log").write_bytes(metadata_batch(0, records))


def old_id(archive: Archive) -> Uuid:
    return next(one.topic_id for one in archive.remote() if one.topic_id != AGAIN)


def offsets_of(archive: Archive, topic_id: Uuid) -> dict[int, list[int]]:
    remote = archive.remote().items()
    return {p.partition: [one.start_offset for one in found] for p, found in remote if p.topic_id == topic_id}


def ids_that_wait(run: object) -> set[Uuid]:
    return {one.topic_id_partition.topic_id for one in run.waiting if one.reason is Waits.NAME_TAKEN}  # type: ignore[attr-defined]


def test_where_no_metadata_ever_were_retention_of_the_name_is_about_neither(archive, app) -> None:
    without_metadata_log(archive)
    archive.copy()
    old = old_id(archive)
    archive.recreate_topic(str(AGAIN))
    archive.copy()
    assert offsets_of(archive, AGAIN)
    archive.set(retention_ms=HOUR_MS)
    before = archive.remote()
    run, _ = archive.expire()
    assert run.items == []
    assert ids_that_wait(run) == {old, AGAIN}
    assert archive.remote() == before
    shown = app("expire", "--dry-run").stdout
    assert str(old) in shown
    assert str(AGAIN) in shown


@pytest.mark.parametrize("retention", [{"retention_ms": HOUR_MS}, {"retention_bytes": 0}])
def test_a_deletion_that_was_never_seen_and_metadata_that_are_away(archive, retention) -> None:
    """The removal's record went with a snapshot: the log says who has the name, and nothing of the older topic."""
    archive.copy()
    old = old_id(archive)
    archive.recreate_topic(str(AGAIN))
    snapshot_says(archive, AGAIN)
    archive.copy()
    copied = offsets_of(archive, AGAIN)
    assert any(copied.values())
    archive.set(**retention)
    away = archive.brokers.rename(archive.directory / "unmounted")
    run, _ = archive.expire()
    assert (run.items, ids_that_wait(run)) == ([], {old, AGAIN})
    assert (offsets_of(archive, old), offsets_of(archive, AGAIN)) == (EVERYTHING, copied)

    away.rename(archive.brokers)
    run, _ = archive.expire()
    assert {item.planned.segment_id.topic_id_partition.topic_id for item in run.items} == {AGAIN}
    assert ids_that_wait(run) == {old}
    assert offsets_of(archive, old) == EVERYTHING
    assert offsets_of(archive, AGAIN) == {}


def test_a_newer_topic_of_which_nothing_is_remote_yet(archive) -> None:
    """It is registered, and retention was set for it."""
    without_metadata_log(archive)
    archive.copy()
    with archive.open() as opened:
        opened.adapters.stores.registry.set_owner(
            AGAIN, ORDERS, TopicOwner.PLATFORM, expected=TopicOwner.NONE, author="test"
        )
    archive.set(retention_ms=HOUR_MS)
    run, _ = archive.expire()
    assert (run.items, ids_that_wait(run)) == ([], {old_id(archive)})
    assert offsets_of(archive, old_id(archive)) == EVERYTHING


def test_what_was_approved_is_withdrawn_when_a_second_topic_of_the_name_shows_up(archive) -> None:
    without_metadata_log(archive)
    archive.copy()
    archive.set(retention_ms=HOUR_MS)
    with archive.open() as opened:
        planned = opened.expiration.plan("shown")
        assert planned.segments
        assert opened.expiration.withdrawn("shown") == []
        opened.adapters.stores.registry.set_owner(
            AGAIN, ORDERS, TopicOwner.PLATFORM, expected=TopicOwner.NONE, author="test"
        )
        assert len(opened.expiration.withdrawn("shown")) == planned.segments


def test_a_plan_of_some_topics_knows_all_names(archive) -> None:
    """Whatever a pattern leaves out."""
    without_metadata_log(archive)
    archive.copy()
    archive.recreate_topic(str(AGAIN))
    archive.copy()
    archive.set(retention_ms=HOUR_MS)
    with archive.open() as opened:
        plan = opened.expiration.plan("some", topics=[ORDERS], leave_out=[AGAIN])
        assert plan.expirations == ()
        assert {one.topic_id_partition.topic_id for one in plan.waiting} == {old_id(archive)}


def test_a_first_copy_is_not_cut_by_what_may_be_another_topic_s_retention(archive) -> None:
    without_metadata_log(archive)
    archive.copy()
    archive.recreate_topic(str(AGAIN))
    archive.set(retention_ms=HOUR_MS)
    plan = archive.copy()
    assert [one for one in plan.held_back if one.reason is HeldBack.PAST_RETENTION] == []
    assert offsets_of(archive, AGAIN) == EVERYTHING


def test_records_are_dropped_of_the_topic_that_is_named(archive, app) -> None:
    """The name is another topic's by now, of which nothing is remote: who truncates it does not mean the older one."""
    archive.copy()
    old = old_id(archive)
    snapshot_says(archive, AGAIN)
    dropped = ("delete-records", ORDERS, "--partition", "0", "--before-offset", "188", "--approve")
    refused = app(*dropped)
    assert refused.exit_code == 2
    assert f"the cluster gives the name to topic id {AGAIN} now" in " ".join(refused.output.split())
    with archive.open() as opened:
        (partition,) = (one for one in opened.adapters.stores.metadata.partitions() if one.partition == 0)
        assert opened.adapters.stores.metadata.retention_state(partition).log_start_offset == 0
        assert app(*dropped, "--topic-id", str(old)).exit_code == 0
        assert opened.adapters.stores.metadata.retention_state(partition).log_start_offset == 188
