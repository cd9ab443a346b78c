"""The mirror of Airflow's pools, on every database."""

import threading

from sqlalchemy import select

from include.tiering.configs.config_store import ALL_BROKERS
from include.tiering.configs.sql_configs import SqlConfigStore, SqlPoolMirror
from include.tiering.database.schema import events
from tests.doubles.databases import SHARED, each_database

CLUSTER_ID = "cluster-1"
POOL = "remote_log_copier"
CONFIG = "remote.log.manager.copier.thread.pool.size"


database_kind = each_database(SHARED)


class TestPoolMirror:
    def test_what_was_seen_last_with_its_time(self, engine):
        mirror = SqlPoolMirror(engine, CLUSTER_ID, now_ms=lambda _: 5)
        assert mirror.seen() == {}
        assert not mirror.record(POOL, 2, seen=None, author="x")
        assert not SqlPoolMirror(engine, CLUSTER_ID, now_ms=lambda _: 9).record(POOL, 2, seen=2, author="x")
        assert (mirror.seen()[POOL].slots, mirror.seen()[POOL].seen_at_ms) == (2, 9)
        assert SqlPoolMirror(engine, "cluster-2").seen() == {}

    def test_a_change_is_in_the_history_and_in_the_event_log(self, engine):
        mirror = SqlPoolMirror(engine, CLUSTER_ID, now_ms=lambda _: 7)
        mirror.record(POOL, 2, seen=None, author="x")
        assert mirror.record(POOL, 0, seen=2, author="ada (Airflow)\n")
        configs = SqlConfigStore(engine, CLUSTER_ID)
        (change,) = configs.history(ALL_BROKERS)
        assert (change.name, change.old_value, change.new_value, change.author, change.changed_at_ms) == (
            CONFIG,
            "2",
            "0",
            "ada (Airflow)\\n",
            7,
        )
        with engine.connect() as connection:
            (event,) = connection.execute(select(events)).all()
        assert (event.kind, event.subject, event.detail) == ("pool size", POOL, "2 -> 0")
        # A value of ours would be a second truth.
        assert configs.snapshot().values == {}

    def test_old_news_is_dropped(self, engine):
        mirror = SqlPoolMirror(engine, CLUSTER_ID)
        mirror.record(POOL, 2, seen=None, author="x")
        mirror.record(POOL, 4, seen=2, author="x")
        assert not mirror.record(POOL, 2, seen=2, author="late")
        assert not mirror.record(POOL, 9, seen=2, author="late")
        assert not mirror.record(POOL, 9, seen=None, author="late")
        assert mirror.seen()[POOL].slots == 4
        assert [change.author for change in SqlConfigStore(engine, CLUSTER_ID).history()] == ["x"]


def test_of_many_who_notice_one_change_one_writes_it_down(engine):
    SqlPoolMirror(engine, CLUSTER_ID).record(POOL, 2, seen=None, author="x")
    began = threading.Barrier(6)
    noticed = []

    def notice() -> None:
        began.wait()
        noticed.append(SqlPoolMirror(engine, CLUSTER_ID).record(POOL, 6, seen=2, author="x"))

    threads = [threading.Thread(target=notice) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(noticed) == [False] * 5 + [True]
    assert len(SqlConfigStore(engine, CLUSTER_ID).history()) == 1
