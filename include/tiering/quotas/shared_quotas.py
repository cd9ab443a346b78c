"""`Quotas` that all threads, processes and hosts of a deployment share through one ledger.

A thread of each process, `AllocationRenewer`, renews the process's entry in the ledger in rounds, about every 0.6 s:

    step                        a crash after it leaves
    1 read the row              the entry of an earlier round, if any; as after 3
    2 reduce the own rates      as after 1
    3 store the new entry       an entry without an owner; other processes drop it when its heartbeat stands still
    4 raise the own rates       as after 3

A process lowers a rate before the row with its lower share is committed (step 2), because another process may take the
difference afterwards, and raises a known rate only after the row with its higher share is committed (step 4). A rate
that is not known is set in step 2. A round that fails raises no known rate, and rates that step 2 lowered stay lowered,
because after an error in the commit it is unknown whether the row changed. All rates expire if no later round succeeds
in time. If no quota is set, no ledger is needed: after a round that failed, the process reads the stored quotas, and if
they set no limit in any scope, it goes on without limits for half a second, then reads again.

`SqlLedgerStore` has one row per cluster; a round costs two statements. On PostgreSQL the row is in the platform's
database and is locked while a round reads and writes it. On SQLite the row is in a separate file next to the database
file, so that rounds never wait for a commit that must reach the disk. What a power failure loses of this file, the next
rounds write again; delete a file that it damaged. A row that is no valid text is replaced in the next round, and no
process gets a share until all earlier leases have ended (`healed_row`). A process never uses quotas older than those
that it has used before, so a row that was lost or replaced puts no limit out of force.

The content of the row is JSON text, short because every process reads and writes it in each of its rounds:

    {"version": 7, "quotas": {"copy/total/": 1000000},
     "workers": {"<worker id>": [<heartbeat>, <version>, {"copy/total/": [<share>, <wanted, null for no bound>]}]},
     "reads": {"fetch/total/": [<last record>, <current sample>, [[<begin>, <last event>, <bytes>], ...]]}}

`reads` are the windows of `FetchAdmission`. Their times, in the database's ms, decide only about answers to readers.
"""

import json
import logging
import os
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import astuple
from pathlib import Path
from typing import Any, Final, Protocol

from sqlalchemy import Engine, bindparam, inspect, select, update
from sqlalchemy.engine import make_url

from include.tiering.clock import Clock
from include.tiering.database.engine import open_engine
from include.tiering.database.schema import quota_ledger
from include.tiering.database.transactions import database_now_ms, insert_if_absent, reading, writing
from include.tiering.errors import RemoteMetadataError, TieringError
from include.tiering.quotas.contract import (
    ByteLimiter,
    GoOn,
    QuotaKind,
    QuotaObserver,
    QuotasInForce,
    QuotaWorker,
    ReadAdmission,
    RequestLimiter,
    RequestsAsBytes,
    Scope,
    copy_scopes,
    delete_scopes,
    fetch_scopes,
    keep_on,
)
from include.tiering.quotas.fetch_admission import FetchAdmission
from include.tiering.quotas.pacing import ProcessPacing, ScopedLimiter
from include.tiering.quotas.shares import (
    LEASE_SECONDS,
    NO_QUOTAS,
    UNLIMITED_DEMAND,
    Allocation,
    LedgerRow,
    Liveness,
    WorkerEntry,
    healed_row,
    renewed,
)
from include.tiering.quotas.window import WindowState

LedgerRowChange = Callable[[LedgerRow], LedgerRow]


class LedgerStore(Protocol):
    """One ledger row, changed by one process at a time."""

    def exchange(self, change: LedgerRowChange) -> LedgerRow:
        """Replace the row by the result of `change`, in one transaction; return the new row.

        If `change` returns the row object that it got, the row need not be written. `change` is called at most once,
        while no other `exchange` reads or writes the row.

        Raises:
            MetadataUnavailableError: the row was not changed, or it is unknown whether it was.
        """
        ...

    def database_ms(self) -> int:
        """Return the time of the database, which dates reads and nothing else. Raises MetadataUnavailableError."""
        ...


class AnnouncingLedger:
    """`QuotaLedger` over a ledger store.

    `workers` drops a worker from the row if its heartbeat has not changed between calls of `workers` for longer than
    `SILENT_SECONDS`.
    """

    def __init__(self, store: LedgerStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._liveness = Liveness()

    def announce(self, quotas: QuotasInForce) -> None:
        self._store.exchange(lambda row: row.with_quotas(quotas))

    def in_force(self) -> QuotasInForce:
        return self._store.exchange(lambda row: row).quotas

    def workers(self) -> tuple[QuotaWorker, ...]:
        row = self._store.exchange(self._without_silent)
        return tuple(QuotaWorker(name, entry.version) for name, entry in row.workers.items())

    def _without_silent(self, row: LedgerRow) -> LedgerRow:
        return row.without(self._liveness.silent(row.heartbeats(), self._clock.monotonic()))


_log: Final = logging.getLogger(__name__)

PERIOD_SECONDS: Final = 0.6
"""Time between two regular rounds. With two statements a round this process sends 3.3 statements a second."""

_EARLY_ROUND_SECONDS: Final = 0.2
"""Time between two rounds while a sender waits for a share (`starved`).

It is longer if rounds would otherwise be more frequent than one in `_MEAN_SECONDS` on average. Three such rounds take
one `PERIOD_SECONDS`, in which every other process has a regular round and can reduce its share."""

_MEAN_SECONDS: Final = 0.55
_ROUNDS_AHEAD: Final = 3

NO_LIMIT_SECONDS: Final = 0.5
"""How long a process goes on without the ledger after it has read that no quota is set in any scope."""

_SILENT_PERIOD_SECONDS: Final = 0.4
"""Time between two rounds of a process without a ledger: below `NO_LIMIT_SECONDS`, so that work does not halt."""

RELOAD_SECONDS: Final = 10.0
"""Shortest time between two regular reads of the stored quotas; they put unannounced changes in force."""


class AllocationRenewer:
    """Renews the entry of this process from `start` to `close`. `stored_quotas` reads the dynamic configs."""

    def __init__(
        self,
        ledger: LedgerStore,
        pacing: ProcessPacing,
        clock: Clock,
        *,
        worker_id: str,
        stored_quotas: Callable[[], QuotasInForce],
        on_round: Callable[[LedgerRow], None] = lambda _: None,
    ) -> None:
        self._ledger = ledger
        self._pacing = pacing
        self._clock = clock
        self._worker_id = worker_id
        self._stored_quotas = stored_quotas
        self._on_round = on_round
        self._liveness = Liveness()
        self._heartbeat = 0
        self._reload_at = float("-inf")
        self._quotas = NO_QUOTAS
        self._goes_without = False
        self._allowed_at = float("-inf")
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="quota-shares", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """End the rounds and remove this process's entry from the ledger.

        If the ledger is unreachable, other processes drop the entry when its heartbeat stands still.
        """
        self._closing.set()
        self._pacing.starved.set()
        self._thread.join()
        self._pacing.hold({}, float("-inf"))
        if self._heartbeat:
            try:
                self._ledger.exchange(lambda row: row.without([self._worker_id]))
            except TieringError as error:
                _log.info("the shares of %s are left to expire: %s", self._worker_id, error)

    def round(self) -> None:
        """Renew the entry of this process, and use the shares that it has in the new ledger row.

        Raises:
            MetadataUnavailableError: the stored quotas or the ledger cannot be read, or the ledger not changed.
        """
        began = self._clock.monotonic()
        stored = self._reloaded(began)
        self._heartbeat += 1

        def change(row: LedgerRow) -> LedgerRow:
            current = row.with_quotas(self._quotas) if stored is None else row.with_quotas(stored)
            others = current.without([self._worker_id]).heartbeats()
            silent = self._liveness.silent(others, self._clock.monotonic())
            demands = self._pacing.demands()
            new = renewed(current.without(silent), self._worker_id, demands, self._heartbeat)
            allocations = new.workers[self._worker_id].allocations
            self._pacing.reduce({scope: held.share for scope, held in allocations.items()})
            self._asked = {scope for demand in demands for scope in demand.scopes}
            return new

        row = self._ledger.exchange(change)
        self._quotas = row.quotas
        allocations = row.workers[self._worker_id].allocations
        rates = {scope: allocations[scope].share if scope in allocations else None for scope in self._asked}
        self._pacing.hold(rates, began + LEASE_SECONDS)
        self._on_round(row)

    def _run(self) -> None:
        while not self._closing.is_set():
            began = self._clock.monotonic()
            self._allowed_at = max(self._allowed_at, began) + _MEAN_SECONDS
            try:
                self.round()
                self._goes_without = False
            except TieringError as error:
                self._go_without(error)
            except Exception:  # noqa: BLE001
                # Without this thread every sender would wait endlessly, without a message.
                _log.exception("renewing the quota shares failed")
            self._wait(began)

    def _go_without(self, error: TieringError) -> None:
        """After a round that failed with `error`: go on without limits for a moment, if no quota is stored."""
        was_going, self._goes_without = self._goes_without, False
        began = self._clock.monotonic()
        stored = None
        with suppress(Exception):  # Not even an unexpected error may end this thread; the next round logs it.
            stored = self._stored_quotas()
        if stored is None or not stored.set_no_limit:
            _log.warning("the quotas could not be renewed: %s", error)
            return
        self._goes_without = True
        self._pacing.hold_no_limit(began + NO_LIMIT_SECONDS)
        if not was_going:
            _log.warning("the quota ledger does not answer, but no quota is set, so work goes on: %s", error)

    def _wait(self, began: float) -> None:
        """Wait until the next round is due: early if a sender has no share and the mean rate of rounds allows it."""
        soon = max(began + _EARLY_ROUND_SECONDS, self._allowed_at - _ROUNDS_AHEAD * _MEAN_SECONDS)
        now = self._clock.monotonic()
        self._closing.wait(max(0.0, soon - now))
        period_seconds = _SILENT_PERIOD_SECONDS if self._goes_without else PERIOD_SECONDS
        rest_seconds = began + period_seconds - self._clock.monotonic()
        if rest_seconds > 0 and not self._closing.is_set():
            self._pacing.starved.wait(rest_seconds)

    def _reloaded(self, now: float) -> QuotasInForce | None:
        if now < self._reload_at:
            return None
        stored = self._stored_quotas()
        self._reload_at = now + RELOAD_SECONDS
        return stored


class SharedQuotas:
    """`Quotas` of a process. The first limiter, or `share`, starts the rounds with the ledger; `close` ends them."""

    def __init__(
        self,
        ledger: LedgerStore,
        clock: Clock,
        *,
        random_bytes: Callable[[int], bytes],
        stored_quotas: Callable[[], QuotasInForce],
        observer: QuotaObserver,
    ) -> None:
        self._ledger = ledger
        self._stored_quotas = stored_quotas
        self._observer = observer
        self._reported: Mapping[Scope, int] | None = None
        self._pacing = ProcessPacing(clock)
        self._renewer = AllocationRenewer(
            ledger,
            self._pacing,
            clock,
            worker_id=f"{socket.gethostname()}:{os.getpid()}:{random_bytes(4).hex()}",
            stored_quotas=stored_quotas,
            on_round=self._report,
        )
        self._lock = threading.Lock()
        self._started = False

    def copy(self, broker_id: int, topic: str, *, go_on: GoOn) -> ByteLimiter:
        return self._limiter(copy_scopes(broker_id, topic), topic, go_on, keeps_turn=True)

    def fetch(self, broker_id: int, topic: str, client: str | None = None, *, go_on: GoOn = keep_on) -> ByteLimiter:
        return self._limiter(fetch_scopes(broker_id, topic, client), topic, go_on, keeps_turn=False)

    def delete(self, topic: str, *, go_on: GoOn) -> RequestLimiter:
        return RequestsAsBytes(self._limiter(delete_scopes(), topic, go_on, keeps_turn=False))

    def held_back(self, kind: QuotaKind, seconds: float) -> None:
        """Implement `Quotas.held_back`."""
        if seconds > 0:
            self._observer.held_back(kind, seconds)

    def share(self, scope: Scope) -> float | None:
        """Implement `Quotas.share`."""
        share = self._pacing.share(scope)
        self._start()
        return share

    def admission(self, *, samples: int, sample_ms: int) -> ReadAdmission:
        """Implement `Quotas.admission`."""
        return FetchAdmission(
            self._ledger.exchange,
            self._ledger.database_ms,
            stored=self._stored_quotas,
            has_no_limit=lambda scope: self.share(scope) is None,
            samples=samples,
            sample_ms=sample_ms,
        )

    def close(self) -> None:
        with self._lock:
            if self._started:
                self._renewer.close()

    def _limiter(self, scopes: tuple[Scope, ...], topic: str, go_on: GoOn, *, keeps_turn: bool) -> ByteLimiter:
        limiter = ScopedLimiter(self._pacing, scopes, topic, go_on, self._observer, keeps_turn=keeps_turn)
        self._start()
        return limiter

    def _report(self, row: LedgerRow) -> None:
        now = row.quotas.bytes_per_second
        if now != self._reported:
            self._observer.in_force(now)
            self._reported = now

    def _start(self) -> None:
        """Start the rounds, after the caller's scopes are known: else they would have to wait for the second round."""
        with self._lock:
            if not self._started:
                self._renewer.start()
                self._started = True


def ledger_row_to_text(row: LedgerRow) -> str:
    return json.dumps(
        {
            "version": row.quotas.version,
            "quotas": {str(scope): quota for scope, quota in row.quotas.bytes_per_second.items()},
            "workers": {
                name: [entry.heartbeat, entry.version, _allocations_to_json(entry.allocations)]
                for name, entry in row.workers.items()
            },
            "reads": {str(scope): astuple(state) for scope, state in row.reads.items()},
        },
        separators=(",", ":"),
    )


def ledger_row_from_text(text: str) -> LedgerRow:
    """Parse the text of a ledger row; raise RemoteMetadataError for any other text."""
    try:
        document = json.loads(text)
        quotas = {Scope.parse(scope): int(quota) for scope, quota in document["quotas"].items()}
        workers = {
            name: WorkerEntry(int(heartbeat), int(version), _allocations_from_json(allocations))
            for name, (heartbeat, version, allocations) in document["workers"].items()
        }
        reads = {Scope.parse(scope): WindowState.parse(*state) for scope, state in document.get("reads", {}).items()}
        return LedgerRow(QuotasInForce(int(document["version"]), quotas), workers, reads)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise RemoteMetadataError(f"the quota ledger holds no valid row: {type(error).__name__}") from None


def _allocations_to_json(allocations: Mapping[Scope, Allocation]) -> dict[str, Any]:
    return {
        str(scope): [round(held.share, 1), None if held.wanted == UNLIMITED_DEMAND else round(held.wanted, 1)]
        for scope, held in allocations.items()
    }


def _allocations_from_json(document: Mapping[str, Any]) -> dict[Scope, Allocation]:
    return {
        Scope.parse(scope): Allocation(float(share), UNLIMITED_DEMAND if wanted is None else float(wanted))
        for scope, (share, wanted) in document.items()
    }


PATIENCE_MS: Final = 500
"""The longest wait of a round for the ledger's lock and, on PostgreSQL, for each statement.

Shares expire `LEASE_SECONDS` after their round began, so a longer wait would be of no use."""

_READ: Final = select(quota_ledger.c.content).where(quota_ledger.c.cluster_id == bindparam("cluster")).with_for_update()
_WRITE: Final = (
    update(quota_ledger)
    .where(quota_ledger.c.cluster_id == bindparam("cluster"))
    .values(content=bindparam("new_content"))
)


class SqlLedgerStore:
    """`LedgerStore` over an engine of `open_ledger_engine`."""

    def __init__(self, engine: Engine, cluster_id: str) -> None:
        self._engine = engine
        self._cluster_id = cluster_id

    def exchange(self, change: Callable[[LedgerRow], LedgerRow]) -> LedgerRow:
        with writing(self._engine) as connection:
            text = connection.execute(_READ, {"cluster": self._cluster_id}).scalar_one_or_none()
            if text is None:
                insert_if_absent(
                    connection,
                    quota_ledger,
                    {"cluster_id": self._cluster_id, "content": ledger_row_to_text(LedgerRow())},
                )
                text = connection.execute(_READ, {"cluster": self._cluster_id}).scalar_one()
            before = self._parsed(text)
            row = change(before)
            if row is not before:
                connection.execute(_WRITE, {"cluster": self._cluster_id, "new_content": ledger_row_to_text(row)})
        return row

    def database_ms(self) -> int:
        with reading(self._engine) as connection:
            return database_now_ms(connection)

    def _parsed(self, text: str) -> LedgerRow:
        try:
            return ledger_row_from_text(text)
        except RemoteMetadataError as error:
            _log.warning("%s: the next change replaces it, from the stored quotas", error)
            return healed_row(text)


def open_ledger_engine(metadata_url: str, clock: Clock, *, patience_ms: int = PATIENCE_MS) -> Engine:
    """Return the engine for the ledger of this metadata database, by default with the short time limits of rounds.

    For SQLite, first create the ledger's table in a separate file, if it is absent.

    Raises:
        SettingError: as for `open_engine`.
        MetadataUnavailableError: the file of a SQLite ledger cannot be created.
    """
    url = make_url(metadata_url)
    if url.get_backend_name() != "sqlite":
        return open_engine(metadata_url, clock=clock, patience_ms=patience_ms)
    path = Path(str(url.database))
    ledger_url = str(url.set(database=str(path.with_name(f"{path.stem}-quota{path.suffix}"))))
    _make_table(ledger_url, clock)
    return open_engine(ledger_url, clock=clock, patience_ms=patience_ms, durable=False)


def _make_table(ledger_url: str, clock: Clock) -> None:
    """Create the table if it is absent, with long waits for the lock: many processes may start at the same time."""
    engine = open_engine(ledger_url, clock=clock, durable=False)
    try:
        with reading(engine) as connection:
            exists = inspect(connection).has_table(quota_ledger.name)
        if not exists:
            with writing(engine) as connection:
                quota_ledger.create(connection, checkfirst=True)
    finally:
        engine.dispose()
