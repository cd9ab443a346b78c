"""Meters of topics under several processes: not a byte is lost or counted twice, whatever the clock does."""

import os
import signal
import time
from collections import Counter

import pytest
from sqlalchemy import Engine

from include.tiering.clock import SystemClock
from include.tiering.configs.config_store import ALL_BROKERS, FreshTopicQuotaConfigs
from include.tiering.configs.sql_configs import SqlConfigStore
from include.tiering.quotas.sql_topic_quotas import SqlTopicQuotas
from include.tiering.quotas.topic_quotas import TOTAL_THRESHOLD, MeterKind, TopicMeters, TopicQuotaReport
from tests.doubles import databases
from tests.doubles.databases import POSTGRESQL, SQLITE_FILE
from tests.doubles.metadata_workers import run_together, worker_context
from tests.doubles.patience import eventually
from tests.doubles.present import present
from tests.doubles.segments import CLUSTER_ID
from tests.doubles.topic_quota_workers import Counted, bring_in, bring_in_for_ever

PROCESSES = 4
ROUNDS = 100

create_postgresql_database = databases.create_postgresql_database
database_url = databases.database_url
migrated_engine = databases.migrated_engine
engine = databases.engine


@pytest.fixture(scope="module", params=[SQLITE_FILE, POSTGRESQL])
def database_kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def quotas(engine: Engine) -> SqlTopicQuotas:
    store = SqlConfigStore(engine, CLUSTER_ID)
    store.alter(ALL_BROKERS, {TOTAL_THRESHOLD: "1"}, author="test")
    return SqlTopicQuotas(engine, CLUSTER_ID, FreshTopicQuotaConfigs(store, SystemClock(), enabled=True))


def _counted(report: TopicQuotaReport) -> Counted:
    return {
        (broker.broker_id, usage.topic, str(kind)): (meter.bytes.count, meter.records.count)
        for broker in report.brokers
        for usage in broker.topics
        for kind, meter in usage.meters.kinds.items()
        if meter.records.count
    }


def _require_totals_of_brokers(report: TopicQuotaReport) -> None:
    for broker in report.brokers:
        for kind in MeterKind:
            parts = [_pair(usage.meters, kind) for usage in broker.topics]
            assert _pair(broker.meters, kind) == tuple(map(sum, zip(*parts, strict=True)))


def _pair(meters: TopicMeters, kind: MeterKind) -> tuple[int, int]:
    return meters.kinds[kind].bytes.count, meters.kinds[kind].records.count


def test_all_processes_together_add_up_to_the_byte(quotas, database_url):
    told: Counter[tuple[int, str, str, int]] = Counter()
    for counted in run_together(PROCESSES, bring_in, database_url, ROUNDS, 11):
        for key, pair in counted.items():
            told.update({(*key, unit): value for unit, value in enumerate(pair)})
    report = quotas.report()
    found = {(*key, unit): value for key, pair in _counted(report).items() for unit, value in enumerate(pair)}
    assert found == {key: value for key, value in told.items() if value}
    _require_totals_of_brokers(report)
    kinds = {kind for _, _, kind in _counted(report)}
    assert kinds == set(MeterKind), "the run was to have segments of every kind"
    for broker in report.brokers:
        ends = [_pair(broker.meters, kind)[0] for kind in MeterKind if kind is not MeterKind.IO]
        assert _pair(broker.meters, MeterKind.IO)[0] == sum(ends)


def test_a_killed_process_leaves_topics_and_total_in_step(quotas, database_url):
    worker = worker_context().Process(target=bring_in_for_ever, args=(database_url,))
    worker.start()
    try:
        eventually(lambda: quotas.report().brokers, "something is counted")
        time.sleep(0.2)
    finally:
        os.kill(present(worker.pid), signal.SIGKILL)
        worker.join()
    report = quotas.report()
    _require_totals_of_brokers(report)
    io, *ends = (_pair(report.brokers[0].meters, kind)[1] for kind in MeterKind)
    assert io - sum(ends) in (0, 1), "at most the segment that was in flight"
