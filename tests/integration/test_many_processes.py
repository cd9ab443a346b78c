"""Several processes change one database at once."""

import itertools
import os
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Iterable

import pytest
from sqlalchemy import Engine

from include.tiering.clock import SystemClock
from include.tiering.configs.config_store import ALL_BROKERS, FreshTopicQuotaConfigs
from include.tiering.configs.sql_configs import SqlConfigStore
from include.tiering.database.engine import open_engine
from include.tiering.database.migrations import HEAD
from include.tiering.model.sizes import partition_size
from include.tiering.quotas.sql_topic_quotas import SqlTopicQuotas
from include.tiering.quotas.topic_quotas import TOTAL_THRESHOLD, MeterKind, TopicMeters, TopicQuotaReport
from include.tiering.runs.contract import SegmentOutcome
from include.tiering.runs.store import SqlWorkStore
from include.tiering.segments.sql import SqlRemoteLogMetadata
from tests.doubles import databases
from tests.doubles.databases import POSTGRESQL, SQLITE_FILE
from tests.doubles.metadata_workers import (
    Held,
    change_all,
    copy_all,
    copy_until_killed,
    finish_or_delete,
    migrate,
    run_together,
    take_turns,
    worker_context,
)
from tests.doubles.patience import eventually
from tests.doubles.present import present
from tests.doubles.segments import (
    CLUSTER_ID,
    DELETE_STARTED,
    FINISHED,
    expire_lease_of,
    fence_of,
    partition_of,
    planned,
    segment_of,
)
from tests.doubles.topic_quota_workers import Counted, bring_in, bring_in_for_ever

# Several processes change one database at once: nothing is lost, no lease is held twice, counters stay exact.

PROCESSES = 4

create_postgresql_database = databases.create_postgresql_database
database_url = databases.database_url
migrated_engine = databases.migrated_engine
engine = databases.engine


@pytest.fixture(scope="module", params=[SQLITE_FILE, POSTGRESQL])
def database_kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def metadata(engine: Engine) -> SqlRemoteLogMetadata:
    return SqlRemoteLogMetadata(engine, CLUSTER_ID)


@pytest.fixture
def work(engine: Engine) -> SqlWorkStore:
    return SqlWorkStore(engine, CLUSTER_ID)


def _require_one_holder_at_a_time(leases: Iterable[Held]) -> None:
    by_partition = defaultdict(list)
    for held in leases:
        by_partition[held.partition].append(held)
    for partition, of_partition in by_partition.items():
        in_order = sorted(of_partition, key=lambda held: held.token)
        for before, after in itertools.pairwise(in_order):
            assert before.token < after.token, f"{partition}: token {after.token} was given twice"
            assert before.until <= after.since, f"{partition}: {before} and {after} overlap"


def _require_exact_counters(metadata: SqlRemoteLogMetadata) -> None:
    partitions = metadata.partitions()
    recounted = [
        partition_size(partition, [row.metadata for row in metadata.list_segments(partition)])
        for partition in partitions
    ]
    assert [size for size in recounted if size.segments] == list(metadata.partition_sizes())


def test_all_migrate_at_once(database_kind, request, tmp_path):
    url = f"sqlite:///{tmp_path / 'new.db'}"
    if database_kind == POSTGRESQL:
        url = request.getfixturevalue("create_postgresql_database")("migrated_by_many")
    assert run_together(PROCESSES, migrate, url) == [HEAD] * PROCESSES


def test_leases_are_held_by_one_and_tokens_ascend(work, database_url):
    work.save_plan("run-1", [planned(partition_of("orders", number)) for number in range(3)])
    turns = list(itertools.chain.from_iterable(run_together(PROCESSES, take_turns, database_url, "run-1", 60)))
    _require_one_holder_at_a_time(turns)
    assert len({(held.partition, held.token) for held in turns}) == PROCESSES * 60


def test_every_segment_is_copied_once_though_leases_are_lost(work, metadata, database_url):
    plan = [planned(partition_of("orders", number), 12, urgency=number % 2) for number in range(5)]
    work.save_plan("run-1", plan)
    results = run_together(PROCESSES, copy_all, database_url, "run-1", 7)
    _require_one_holder_at_a_time(held for leases, _ in results for held in leases)
    assert {item.outcome for item in work.items("run-1")} <= {SegmentOutcome.COPIED, SegmentOutcome.SKIPPED}
    for one in plan:
        rows = metadata.list_segments(one.replica_id.topic_id_partition)
        finished = [(row.metadata.start_offset, row.metadata.end_offset) for row in rows if row.metadata.is_finished]
        assert finished == [(segment.base_offset, segment.end_offset) for segment in one.segments]
    _require_exact_counters(metadata)


def test_of_two_changes_one_wins(engine, metadata, database_url):
    partition, count = partition_of("orders", 0), 40
    fence = fence_of(engine, partition)
    for index in range(count):
        metadata.add_segment(segment_of(partition, index, 100 * index, 100 * index + 99), fence=fence)
    targets = [int(FINISHED), int(DELETE_STARTED)]
    won = run_together(PROCESSES, change_all, database_url, fence, count, targets)
    states = [row.metadata.state for row in metadata.list_segments(partition)]
    for target, winners in ((FINISHED, won[0::2]), (DELETE_STARTED, won[1::2])):
        # Who wants what another already did is told that it is done, so both of a pair may have won.
        assert states.count(target) <= sum(winners) <= states.count(target) * len(winners)
    assert set(states) <= {FINISHED, DELETE_STARTED}
    assert len(states) == count
    _require_exact_counters(metadata)


def test_of_a_copy_and_an_expiration_one_wins(engine, metadata, database_url):
    partition, count = partition_of("orders", 0), 60
    copying, expiring = fence_of(engine, partition), expire_lease_of(engine, partition).fence
    for index in range(count):
        metadata.add_segment(segment_of(partition, index, 100 * index, 100 * index + 99), fence=copying)
    copied, deleted = run_together(2, finish_or_delete, database_url, copying, expiring, count)
    states = [row.metadata.state for row in metadata.list_segments(partition)]
    assert [index for index, state in enumerate(states) if state is FINISHED] == copied
    assert [index for index, state in enumerate(states) if state is DELETE_STARTED] == deleted
    assert sorted([*copied, *deleted]) == list(range(count))
    _require_exact_counters(metadata)


def test_a_killed_writer_leaves_whole_changes(work, metadata, database_url):
    partition = partition_of("orders", 0)
    work.save_plan("run-1", [planned(partition, 1_000)])
    writer = worker_context().Process(target=copy_until_killed, args=(database_url, "run-1", 20))
    writer.start()
    writer.join()
    assert writer.exitcode == -signal.SIGKILL
    _require_exact_counters(metadata)
    lease = work.claim("run-1", "batch-1", lease_ms=600_000)
    assert lease is not None
    finished = [row for row in metadata.list_segments(partition) if row.metadata.is_finished]
    assert len(finished) - 1 <= 1_000 - len(work.remaining(lease)) <= len(finished)


def test_a_database_that_was_never_migrated_is_told(tmp_path, database_kind, request):
    url = f"sqlite:///{tmp_path / 'empty.db'}"
    if database_kind == POSTGRESQL:
        url = request.getfixturevalue("create_postgresql_database")("never_migrated")
    fresh = open_engine(url)
    try:
        assert not SqlRemoteLogMetadata(fresh, CLUSTER_ID).is_ready(partition_of())
    finally:
        fresh.dispose()


# Meters of topics under several processes: not a byte is lost or counted twice, whatever the clock does.

ROUNDS = 100


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
