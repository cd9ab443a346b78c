"""A topic is deleted in the cluster: its archive stays and is read; if it is to expire, a person is asked first."""

import json

import pytest
from sqlalchemy import func, select, update

from include.tiering.database.schema import events, segments, topics
from include.tiering.errors import ApprovalRequiredError
from include.tiering.expiration.plan import Waits
from include.tiering.model.retention import DeletionReason
from include.tiering.model.segments import Uuid, Verdict
from include.tiering.runs.deletion_run import DeletionOutcome
from tests.doubles.archive import EVERYTHING, ORDERS, Archive
from tests.doubles.tiered_topic import partition_record, remove_topic, topic_record

pytestmark = pytest.mark.integration

AGAIN = Uuid(b"orders-once-more")
DAY_MS = 24 * 60 * 60 * 1000


def let_days_pass(archive: Archive, days: int) -> None:
    """By moving back when the deletion was seen."""
    with archive.open() as opened, opened.adapters.engine.begin() as connection:
        seen = topics.c.deletion_seen_at_ms
        connection.execute(update(topics).where(seen.is_not(None)).values(deletion_seen_at_ms=seen - days * DAY_MS))


def tombstones(archive: Archive) -> int:
    with archive.open() as opened, opened.adapters.engine.connect() as connection:
        return connection.execute(select(func.count()).select_from(segments)).scalar_one()


def recorded(archive: Archive) -> list[str]:
    with archive.open() as opened:
        with opened.adapters.engine.connect() as connection:
            said = connection.execute(events.select().where(events.c.kind == "topic-deletion")).all()
        assert len(opened.adapters.stores.topic_deletions.all()) in (0, 1)
    return [row.detail.partition(":")[0] for row in said]


def test_it_is_kept_and_read_by_its_name_and_id(archive, app, tmp_path) -> None:
    archive.delete_topic()
    run, _ = archive.expire()
    assert (run.items, recorded(archive)) == ([], ["recorded"])
    let_days_pass(archive, 10_000)
    assert archive.expire()[0].items == []
    assert archive.left() == EVERYTHING
    archive.require_served()
    with archive.open() as opened:
        (topic_id,) = {partition.topic_id for partition in opened.adapters.stores.metadata.partitions()}
        for segment in (one for segments in archive.remote().values() for one in segments):
            opened.adapters.stores.metadata.record_verdict(segment.remote_log_segment_id, Verdict.PASSED)
    for number, meant in enumerate(([], ["--topic-id", str(topic_id)])):
        fetched = app("fetch", ORDERS, "1", "--output", str(tmp_path / str(number)), *meant)
        assert fetched.exit_code == 0, fetched.stdout


def test_a_directory_that_is_gone_is_no_deletion(archive) -> None:
    archive.set_default(tiering_on_topic_delete="expire:1d")
    archive.delete_topic(say_so=False)
    archive.expire()
    archive.lose_log_dirs()
    archive.expire()
    assert recorded(archive) == []
    assert archive.left() == EVERYTHING


def test_after_its_days_all_of_it_goes_with_an_approval_however_little_it_is(archive, app) -> None:
    archive.set_default(tiering_on_topic_delete="expire:30d")
    archive.delete_topic()
    archive.copy()
    assert recorded(archive) == ["recorded"]
    waits, _ = archive.expire()
    assert waits.items == []
    assert {one.reason for one in waits.waiting} == {Waits.TOPIC_DELETED}
    let_days_pass(archive, 30)

    shown = json.loads(app("expire", "--dry-run", "--json").stdout)
    assert shown["needs_approval"]
    assert "the topic was deleted (seen " in shown["reasons"][0]
    assert "RemoveTopicRecord in __cluster_metadata-0 of " in shown["reasons"][0]
    assert {one["reason"] for one in shown["decisions"]} == {str(DeletionReason.TOPIC_DELETED)}
    assert archive.expire(approved=False)[1] is None
    with archive.open() as opened:
        opened.expiration.plan("unapproved")
        opened.expiration.apply_limits("unapproved")
        with pytest.raises(ApprovalRequiredError):
            opened.expiration.run_batch("unapproved", "unapproved/0")
    assert archive.left() == EVERYTHING

    run, result = archive.expire()
    assert {item.outcome for item in run.items} == {DeletionOutcome.DELETED}
    assert len(result.deleted) == sum(map(len, EVERYTHING.values()))
    assert archive.left() == {0: [], 1: []}
    archive.require_no_other_objects()
    assert tombstones(archive) == len(result.deleted)
    assert app("expire").exit_code == 0
    assert tombstones(archive) == len(result.deleted), "too young"
    with archive.open() as opened, opened.adapters.engine.begin() as connection:
        connection.execute(update(segments).values(deleted_at_ms=segments.c.deleted_at_ms - 91 * DAY_MS))
    assert app("expire", "--dry-run").exit_code == 0
    assert tombstones(archive) == len(result.deleted), "a dry run changes nothing"
    assert app("expire").exit_code == 0
    assert tombstones(archive) == 0


def test_a_topic_created_again_is_another_one_and_untouched(archive) -> None:
    """Its own directories hold what the old one had: the same offsets under another id."""
    archive.set_default(tiering_on_topic_delete="expire:30d")
    with archive.open() as opened:
        (old,) = {partition.topic_id for partition in opened.adapters.stores.metadata.partitions()}
    archive.recreate_topic(str(AGAIN))
    created = [topic_record(ORDERS, AGAIN), *(partition_record(AGAIN, number) for number in EVERYTHING)]
    for broker in (1, 2):
        archive.append_metadata(broker, remove_topic(old), *created)
    archive.copy()
    by_topic = {topic: offsets_of(archive, topic) for topic in (old, AGAIN)}
    assert by_topic[old] == EVERYTHING
    assert any(by_topic[AGAIN].values())
    let_days_pass(archive, 30)
    run, _ = archive.expire()
    assert {item.planned.segment_id.topic_id_partition.topic_id for item in run.items} == {old}
    assert offsets_of(archive, old) == {}
    assert offsets_of(archive, AGAIN) == by_topic[AGAIN]


def offsets_of(archive: Archive, topic_id: Uuid) -> dict[int, list[int]]:
    return {
        partition.partition: [one.start_offset for one in segments]
        for partition, segments in archive.remote().items()
        if partition.topic_id == topic_id
    }


def test_a_topic_that_shows_up_again_takes_its_deletion_back(archive) -> None:
    """Each broker's replica of the metadata log may be cut where the next leader's begins."""
    archive.set_default(tiering_on_topic_delete="expire:30d")
    before = {log: log.read_bytes() for log in archive.brokers.glob("broker-*/__cluster_metadata-0/*.log")}
    archive.delete_topic()
    archive.expire()
    let_days_pass(archive, 30)
    with archive.open() as opened:
        planned = opened.expiration.plan("shown")
        assert planned.segments == sum(map(len, EVERYTHING.values()))
        for log, content in before.items():
            log.write_bytes(content)
        assert len(opened.expiration.withdrawn("shown")) == planned.segments
    assert archive.expire()[0].items == []
    assert recorded(archive) == ["recorded", "withdrawn"]
    assert archive.left() == EVERYTHING


def test_without_anybody_to_ask_whether_it_is_still_gone_it_stays(archive) -> None:
    archive.set_default(tiering_on_topic_delete="expire:30d")
    archive.delete_topic()
    archive.expire()
    let_days_pass(archive, 30)
    archive.lose_log_dirs()
    run, _ = archive.expire()
    assert run.items == []
    why = "the cluster's metadata cannot be read, so the deletion is not confirmed"
    assert {waiting.detail for waiting in run.waiting} == {why}
    assert archive.left() == EVERYTHING
