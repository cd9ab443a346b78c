"""Quotas under real processes, as a receiver and the ledger see them: what holds on any machine, however busy.

`make bench-quota` measures how well: averages, bursts, how soon. Nothing of that is asked here, because a machine that
stands still for a while would fail it. What is asked:

* By any moment no more has come than the quota allows since the beginning, and a quarter of a second of it. Bytes that
  come late lower this; a limit that is not shared, or not kept, soon exceeds it.
* Shares in the ledger come to be what they have to be, sooner or later.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import pytest

from benchmarks.quota_nested import NESTED, nested
from benchmarks.quota_scenarios import outage_of
from benchmarks.quota_scene import CLUSTER_ID, EACH_BROKER, TOTAL, Scene, Worker, begin, end, scene
from benchmarks.quota_trace import farthest_ahead_bytes
from include.tiering.clock import SystemClock
from include.tiering.database.engine import LOCK_WAIT_MS
from include.tiering.quotas.contract import QuotaKind, QuotaLevel, Scope
from include.tiering.quotas.shared_quotas import SqlLedgerStore, open_ledger_engine
from include.tiering.quotas.shares import FILL, LEASE_SECONDS, WorkerEntry
from include.tiering.units import GIB, MIB
from tests.doubles.databases import create_postgresql_database
from tests.doubles.patience import eventually

__all__ = ["create_postgresql_database"]

QUOTA: Final = 4_000_000
AHEAD_SECONDS: Final = 0.25
"""Of the highest quota in force. A pacer catches up 0.02 s at once, and a little more at each change of its share."""
Quotas = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Watched:
    """A deployment, and its quota ledger."""

    scene: Scene
    ledger: SqlLedgerStore

    def received_bytes(self) -> int:
        return self.scene.trace().total_bytes

    def entries(self) -> Mapping[int, WorkerEntry]:
        """By process id, dead processes among them until others have seen them silent."""
        row = self.ledger.exchange(lambda row: row)
        return {int(name.split(":")[1]): entry for name, entry in row.workers.items()}

    def shares(self, scope: Scope) -> dict[int, float]:
        return {
            pid: entry.allocations[scope].share for pid, entry in self.entries().items() if scope in entry.allocations
        }

    def has_shares(self, scope: Scope, expected: Mapping[int, object]) -> bool:
        return self.shares(scope) == expected

    @contextmanager
    def sending(self, *groups: tuple[Worker, ...]) -> Iterator[float]:
        """All send from the time that it yields; whoever still runs when it ends is killed."""
        workers = [worker for group in groups for worker in group]
        self.scene.forget()
        try:
            yield begin(workers)
        finally:
            for worker in workers:
                worker.kill()

    def alter(self, quotas: Mapping[Scope, int]) -> None:
        """Returns when these are in force in every process."""
        version = self.scene.alter_quotas(quotas).version
        eventually(lambda: all(entry.version >= version for entry in self.entries().values()), "all took the change")

    def await_received(self, size_bytes: int) -> None:
        eventually(lambda: self.received_bytes() >= size_bytes, f"{size_bytes} bytes come")

    def require_within(self, quotas: Quotas) -> None:
        trace = self.scene.trace()
        assert trace.total_bytes
        assert farthest_ahead_bytes(trace, quotas) <= AHEAD_SECONDS * max(quota for _, quota in quotas)


@contextmanager
def watched(url: str) -> Iterator[Watched]:
    with scene(url) as opened:
        engine = open_ledger_engine(url, SystemClock(), patience_ms=LOCK_WAIT_MS)
        yield Watched(opened, SqlLedgerStore(engine, CLUSTER_ID))
        engine.dispose()


@pytest.fixture(scope="module")
def database_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('database') / 'metadata.sqlite'}"


@pytest.fixture(scope="module")
def opened(database_url: str) -> Iterator[Watched]:
    with watched(database_url) as one:
        yield one


def whole(quota: int) -> object:
    return pytest.approx(quota * FILL)


def test_many_processes_share_one_quota(opened: Watched) -> None:
    opened.alter({TOTAL: QUOTA})
    workers = opened.scene.start(3, "busy", MIB)
    with opened.sending(workers) as begun_s:
        opened.await_received(3 * QUOTA)
        charged_bytes = sum(account["charged_bytes"] for account in end(workers))
        opened.require_within([(begun_s, QUOTA)])
    assert opened.received_bytes() <= charged_bytes


def test_a_segment_that_takes_longer_than_a_window_is_paced_inside(opened: Watched) -> None:
    """Were it sent in one go, or in parts, there would be few moments at which bytes come."""
    opened.alter({TOTAL: QUOTA})
    workers = opened.scene.start(1, "busy", GIB)
    with opened.sending(workers) as begun_s:
        opened.await_received(2 * QUOTA)
        eventually(lambda: np.count_nonzero(opened.scene.trace().counts) >= 50, "bytes come little by little")
        opened.require_within([(begun_s, QUOTA)])
        end(workers)


def test_a_change_takes_effect_in_running_jobs(opened: Watched) -> None:
    """The busy process has all of every quota: the other one, which is there and needs nothing, holds nothing."""
    low, high = QUOTA // 2, 2 * QUOTA
    opened.alter({TOTAL: QUOTA})
    idle, busy = opened.scene.start(1, "idle"), opened.scene.start(1, "busy", MIB)
    pid = busy[0].process.pid
    with opened.sending(idle, busy) as begun_s:
        opened.await_received(QUOTA)
        opened.alter({TOTAL: low})
        taken_s = time.monotonic()
        eventually(lambda: opened.shares(TOTAL).get(pid) == whole(low), "the busy process has all of the lower quota")
        opened.await_received(opened.received_bytes() + 4 * low)
        opened.require_within([(begun_s, QUOTA), (taken_s, low)])
        opened.alter({TOTAL: high})
        eventually(lambda: opened.shares(TOTAL).get(pid) == whole(high), "the busy process has all of the higher quota")
        end([*idle, *busy])


def test_what_a_killed_process_held_comes_back(opened: Watched) -> None:
    opened.alter({TOTAL: QUOTA})
    workers = opened.scene.start(3, "busy", MIB)
    *dying, survivor = workers
    with opened.sending(workers) as begun_s:
        pids = {worker.process.pid for worker in workers}
        eventually(
            lambda: {pid for pid, share in opened.shares(TOTAL).items() if share} >= pids, "every process has a share"
        )
        for worker in dying:
            worker.kill()
        only = {survivor.process.pid: whole(QUOTA)}
        eventually(lambda: opened.shares(TOTAL) == only, "the one that lives has all of the quota")
        opened.await_received(opened.received_bytes() + QUOTA)
        opened.require_within([(begun_s, QUOTA)])
        end([survivor])


def test_two_brokers_have_a_quota_each_and_the_total_holds_both(opened: Watched) -> None:
    total = QUOTA * 3 // 2
    opened.alter({EACH_BROKER: QUOTA})
    workers = {broker_id: opened.scene.start(1, "busy", MIB, broker_id=broker_id) for broker_id in (1, 2)}
    with opened.sending(*workers.values()) as begun_s:
        for broker_id, (worker,) in workers.items():
            scope = Scope(QuotaKind.COPY, QuotaLevel.BROKER, str(broker_id))
            only = {worker.process.pid: whole(QUOTA)}
            eventually(partial(opened.has_shares, scope, only), f"broker {broker_id} has its quota")
        opened.await_received(2 * QUOTA)
        opened.alter({EACH_BROKER: QUOTA, TOTAL: total})
        taken_s = time.monotonic()
        eventually(lambda: 0 < sum(opened.shares(TOTAL).values()) <= total, "the total holds both")
        opened.await_received(opened.received_bytes() + 3 * total)
        opened.require_within([(begun_s, 2 * QUOTA), (taken_s, total)])
        end([worker for (worker,) in workers.values()])


@pytest.mark.parametrize("name", ["topic 0.30 on 3 processes", "fetch client 0.30 on 3 processes"])
def test_what_a_narrower_quota_leaves_goes_to_others(opened: Watched, name: str) -> None:
    """In a short form: how near to the whole quota they come, `make bench-quota` measures."""
    outcome = nested(opened.scene, NESTED[name], QUOTA, seconds=3.0)
    opened.require_within(outcome.quotas)
    limited = {check.name: check for check in outcome.checks}["the limited together, of their quota"]
    assert limited.figure is not None
    assert 0 < limited.figure <= 1 + AHEAD_SECONDS


def test_without_the_ledger_nothing_is_sent_until_it_is_back(opened: Watched, database_url: str) -> None:
    require_nothing_sent_without_ledger(opened, database_url)


def test_the_same_holds_with_the_ledger_in_postgresql(create_postgresql_database: Callable[[str], str]) -> None:
    url = create_postgresql_database("quota_scenarios")
    with watched(url) as one:
        require_nothing_sent_without_ledger(one, url)


def require_nothing_sent_without_ledger(one: Watched, url: str) -> None:
    one.alter({TOTAL: QUOTA})
    workers = one.scene.start(2, "busy", MIB)
    with one.sending(workers) as begun_s:
        one.await_received(QUOTA // 2)
        with outage_of(url)():
            gone_s = time.monotonic()
            eventually(lambda: silent_for_a_second(one), "nothing comes any more", pause_seconds=0.5)
            silent_bytes, back_s = one.received_bytes(), time.monotonic()
        one.await_received(silent_bytes + QUOTA)
        one.require_within([(begun_s, QUOTA), (gone_s + LEASE_SECONDS, 0), (back_s, QUOTA)])
        end(workers)


def silent_for_a_second(one: Watched) -> bool:
    before_bytes = one.received_bytes()
    time.sleep(1.0)
    return one.received_bytes() == before_bytes
