"""The row of shares: one suite over memory, SQLite and PostgreSQL, and what only the databases have to show."""

import multiprocessing
import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import Engine, event, update

from include.tiering.clock import SystemClock
from include.tiering.database.engine import open_engine
from include.tiering.database.migrations import upgrade
from include.tiering.database.schema import quota_ledger
from include.tiering.database.transactions import writing
from include.tiering.errors import MetadataUnavailableError
from include.tiering.quotas.contract import QuotasInForce, QuotaWorker, copy_scopes
from include.tiering.quotas.shared_quotas import AnnouncingLedger, LedgerStore, SqlLedgerStore, open_ledger_engine
from include.tiering.quotas.shares import SILENT_SECONDS, Demand, LedgerRow, renewed
from tests.doubles.databases import SHARED, SQLITE_FILE
from tests.doubles.manual_clock import ManualClock
from tests.doubles.patience import PATIENCE_SECONDS
from tests.doubles.quotas import MemoryLedgerStore

TOTAL = copy_scopes(1, "orders")[0]


@pytest.fixture
def cluster_id(request: pytest.FixtureRequest) -> str:
    """Another row for each test."""
    return str(request.node.name)


@pytest.fixture
def ledger_engine(database_url: str) -> Iterator[Engine]:
    main = open_engine(database_url)
    upgrade(main)
    main.dispose()
    engine = open_ledger_engine(database_url, SystemClock())
    yield engine
    engine.dispose()


@pytest.fixture
def sql_ledger(ledger_engine: Engine, cluster_id: str) -> SqlLedgerStore:
    return SqlLedgerStore(ledger_engine, cluster_id)


class LedgerStoreContract:
    """What every ledger does."""

    def test_the_first_row_is_empty(self, ledger: LedgerStore) -> None:
        assert ledger.exchange(lambda row: row) == LedgerRow()

    def test_what_was_exchanged_is_what_the_next_one_sees(self, ledger: LedgerStore) -> None:
        AnnouncingLedger(ledger, SystemClock()).announce(QuotasInForce(3, {TOTAL: 100}))
        written = ledger.exchange(lambda row: renewed(row, "a", [Demand((TOTAL,))], 1))
        assert ledger.exchange(lambda row: row) == written
        assert AnnouncingLedger(ledger, SystemClock()).workers() == (QuotaWorker("a", 3),)
        assert AnnouncingLedger(ledger, SystemClock()).in_force().of(TOTAL) == 100

    def test_who_looks_for_longer_than_a_lease_sees_no_dead_worker(self, ledger: LedgerStore) -> None:
        clock = ManualClock()
        seen = AnnouncingLedger(ledger, clock)
        for heartbeat in (1, 2):
            ledger.exchange(partial(renewed, worker_id="alive", demands=[], heartbeat=heartbeat))
            if heartbeat == 1:
                ledger.exchange(lambda row: renewed(row, "dead", [], 1))
            assert {worker.worker_id for worker in seen.workers()} == {"alive", "dead"}
            clock.advance(SILENT_SECONDS / 2 + 0.1)
        ledger.exchange(lambda row: renewed(row, "alive", [], 3))
        assert [worker.worker_id for worker in seen.workers()] == ["alive"]

    def test_a_change_that_fails_changes_nothing(self, ledger: LedgerStore) -> None:
        def fail(row: LedgerRow) -> LedgerRow:
            raise RuntimeError("in the middle")

        with pytest.raises(RuntimeError):
            ledger.exchange(fail)
        assert ledger.exchange(lambda row: row) == LedgerRow()

    def test_threads_change_it_one_after_another(self, ledger: LedgerStore) -> None:
        threads = [threading.Thread(target=_renew_often, args=(ledger, name)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert _heartbeats(ledger) == dict.fromkeys("abcd", ROUNDS)


class TestMemory(LedgerStoreContract):
    @pytest.fixture
    def ledger(self) -> LedgerStore:
        return MemoryLedgerStore()


@pytest.mark.parametrize("database_kind", SHARED, indirect=True)
class TestSql(LedgerStoreContract):
    @pytest.fixture
    def ledger(self, sql_ledger: SqlLedgerStore) -> LedgerStore:
        return sql_ledger

    def test_each_cluster_has_its_own_row(self, ledger_engine: Engine, sql_ledger: SqlLedgerStore) -> None:
        sql_ledger.exchange(lambda row: renewed(row, "a", [], 1))
        assert SqlLedgerStore(ledger_engine, "another").exchange(lambda row: row) == LedgerRow()

    def test_processes_change_it_one_after_another(
        self, database_url: str, cluster_id: str, sql_ledger: SqlLedgerStore
    ) -> None:
        spawn = multiprocessing.get_context("spawn")
        processes = [spawn.Process(target=_renew_in_process, args=(database_url, cluster_id, name)) for name in "abc"]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        assert [process.exitcode for process in processes] == [0, 0, 0]
        assert _heartbeats(sql_ledger) == dict.fromkeys("abc", ROUNDS)

    def test_a_round_takes_two_statements(self, ledger_engine: Engine, sql_ledger: SqlLedgerStore) -> None:
        sql_ledger.exchange(lambda row: row)
        statements: list[str] = []
        event.listen(ledger_engine, "before_cursor_execute", lambda *call: statements.append(call[2]))
        sql_ledger.exchange(lambda row: renewed(row, "a", [], 1))
        assert len([text for text in statements if not text.startswith("BEGIN")]) == 2

    @pytest.mark.parametrize("garbage", ["", "not json", '{"version": 7}', "[]"])
    def test_a_row_that_is_no_row_heals_and_gives_nothing_until_old_leases_ended(
        self, ledger_engine: Engine, cluster_id: str, sql_ledger: SqlLedgerStore, garbage: str
    ) -> None:
        sql_ledger.exchange(lambda row: row)
        with writing(ledger_engine) as connection:
            of_this = quota_ledger.c.cluster_id == cluster_id
            connection.execute(update(quota_ledger).where(of_this).values(content=garbage))
        clock = ManualClock()
        seen = AnnouncingLedger(sql_ledger, clock)
        seen.announce(QuotasInForce(3, {TOTAL: 100}))
        assert seen.in_force().of(TOTAL) == 100
        shares = []
        for heartbeat in range(4):
            seen.workers()
            demands = [Demand((TOTAL,), 1.0)]
            row = sql_ledger.exchange(partial(renewed, worker_id="a", demands=demands, heartbeat=heartbeat))
            shares.append((clock.monotonic(), row.workers["a"].allocations[TOTAL].share))
            clock.advance(SILENT_SECONDS / 2 + 0.01)
        began = shares[0][0]
        assert [share > 0 for at, share in shares] == [at - began > SILENT_SECONDS for at, _ in shares]
        assert seen.workers() == (QuotaWorker("a", 3),)

    def test_a_row_that_another_process_holds_fails_before_the_shares_end(
        self, database_url: str, cluster_id: str, sql_ledger: SqlLedgerStore
    ) -> None:
        sql_ledger.exchange(lambda row: row)
        other = open_ledger_engine(database_url, SystemClock())
        with Held(sql_ledger), pytest.raises(MetadataUnavailableError):
            SqlLedgerStore(other, cluster_id).exchange(lambda row: row)
        other.dispose()


@pytest.mark.parametrize("database_kind", [SQLITE_FILE], indirect=True)
def test_on_sqlite_the_row_has_a_file_of_its_own(database_url: str, sql_ledger: SqlLedgerStore) -> None:
    sql_ledger.exchange(lambda row: row)
    metadata = Path(database_url.removeprefix("sqlite:///"))
    assert metadata.with_name(f"{metadata.stem}-quota{metadata.suffix}").exists()


ROUNDS = 20


def _renew_often(ledger: LedgerStore, name: str) -> None:
    def change(row: LedgerRow) -> LedgerRow:
        heartbeat = row.workers[name].heartbeat + 1 if name in row.workers else 1
        return renewed(row, name, [Demand((TOTAL,), 1.0)], heartbeat)

    done = 0
    while done < ROUNDS:
        # A round gives up when another holds the row for longer than a moment: nothing was changed then.
        with suppress(MetadataUnavailableError):
            ledger.exchange(change)
            done += 1


def _renew_in_process(url: str, cluster_id: str, name: str) -> None:
    _renew_often(SqlLedgerStore(open_ledger_engine(url, SystemClock()), cluster_id), name)


def _heartbeats(ledger: LedgerStore) -> dict[str, int]:
    return {name: entry.heartbeat for name, entry in sorted(ledger.exchange(lambda row: row).workers.items())}


class Held:
    """An exchange of another thread that does not end."""

    def __init__(self, ledger: LedgerStore) -> None:
        self._entered, self._leave = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=ledger.exchange, args=(self._stay,))

    def __enter__(self) -> None:
        self._thread.start()
        assert self._entered.wait(PATIENCE_SECONDS)

    def __exit__(self, *_: object) -> None:
        self._leave.set()
        self._thread.join()

    def _stay(self, row: LedgerRow) -> LedgerRow:
        self._entered.set()
        self._leave.wait(PATIENCE_SECONDS)
        return row
