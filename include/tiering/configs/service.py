"""Change dynamic configs and the sizes of Airflow's pools while jobs run, and wait until the jobs use the new values.

A change of configs, `alter_configs`:

| step | what a crash after it leaves | who repairs it |
|---|---|---|
| check | nothing | |
| store values and history, one transaction | stored, not in force | the same change again, or any other |
| announce | in force: workers read it by themselves | |
| claim the store | a backup of the database from before the change is not refused | the same change, or the next plan |
| wait | as before: waiting changes nothing | |

Every change announces all quotas, with the version of the values that they come from; the ledger keeps the newest. So
changes may overlap, be repeated, or be interrupted, and the quotas in force are never older than those announced.

A copy of the database from before a change would delete by the values of that time. So a change claims the store as a
plan does, after its own steps. The change is valid even if that fails: an unreachable store must not prevent a
person from lengthening a retention.

A change of pools, `resize_pools`, under Kafka's names of its thread pools:

| step | what a crash after it leaves | who repairs it |
|---|---|---|
| check | nothing | |
| resize in Airflow, pool by pool | resized, not recorded | the next read of Airflow's pools; author from its log |
| mirror, history, event: one transaction | | |

Airflow's sizes are authoritative: no size is stored that Airflow has not accepted. Waiting batches start within its
next scheduling loop; surplus batches read the mirror and end after their segment.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from include.tiering.clock import Clock
from include.tiering.configs.config_store import (
    ConfigChange,
    ConfigCheck,
    ConfigEntity,
    ConfigStore,
    ConfigValues,
    accept_all,
)
from include.tiering.configs.pools import (
    BATCH_SLOTS,
    POOLS,
    READER_POOL,
    UNLIMITED_SLOTS,
    LiveBatches,
    PoolMirror,
    Pools,
    PoolsStatus,
    PoolUsage,
    compare_pools,
    mirror_pools,
    mirrored_pools,
)
from include.tiering.configs.rules import check_rules, checked_changes, quotas_in_force
from include.tiering.errors import ConfigRefusedError, SettingError
from include.tiering.quotas.contract import QuotaLedger, QuotaWorker
from include.tiering.settings import TieringSettings

WAIT_SECONDS: Final = 5.0
POLL_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class AlteredConfigs:
    """The changes (none if the values were the same before), and which running workers use them.

    `not_taken_by` includes workers that died a moment ago, until their heartbeat has stood still for long enough.
    `notes` say what follows from new sizes of pools, which workers do not read. `not_claimed` says why the store could
    not be claimed after the change.
    """

    entity: ConfigEntity
    version: int
    changes: tuple[ConfigChange, ...]
    taken_by: tuple[QuotaWorker, ...]
    not_taken_by: tuple[QuotaWorker, ...]
    notes: tuple[str, ...] = ()
    not_claimed: str | None = None


def alter_configs(
    entity: ConfigEntity,
    changes: Mapping[str, str | None],
    *,
    store: ConfigStore,
    ledger: QuotaLedger,
    clock: Clock,
    author: str,
    check: ConfigCheck = accept_all,
    wait_seconds: float = WAIT_SECONDS,
    claim: Callable[[], str | None] = lambda: None,
) -> AlteredConfigs:
    """Set, or with None remove, all of `changes` or none of them. Idempotent; each call announces the quotas.

    `check` is called in addition to the fixed rules; errors that it raises are passed on. `claim` claims the store and
    returns why that failed, None if it did not.

    Raises:
        SettingError: a name, value or entity is invalid by itself.
        ConfigRefusedError: the change breaks a rule together with the other values.
        MetadataUnavailableError: the database is unreachable, perhaps after the change was stored; repeat it.
    """
    checked = checked_changes(entity, changes, stored=store.of_entity(entity))

    def check_all(before: ConfigValues, after: ConfigValues) -> None:
        check_rules(after)
        check(before, after)

    altered = store.alter(entity, checked, author=author, check=check_all)
    ledger.announce(quotas_in_force(altered.snapshot))
    version, not_claimed = altered.snapshot.version, claim()
    taken_by, not_taken_by = _wait_for(version, ledger, clock, wait_seconds)
    return AlteredConfigs(entity, version, altered.changes, taken_by, not_taken_by, not_claimed=not_claimed)


def _wait_for(
    version: int, ledger: QuotaLedger, clock: Clock, wait_seconds: float
) -> tuple[tuple[QuotaWorker, ...], tuple[QuotaWorker, ...]]:
    """Return the workers that use `version`, and those that still do not when the time is over."""
    deadline = clock.monotonic() + wait_seconds
    while True:
        workers = ledger.workers()
        late = tuple(worker for worker in workers if worker.version < version)
        if not late or clock.monotonic() >= deadline:
            return tuple(worker for worker in workers if worker.version >= version), late
        clock.sleep(POLL_SECONDS)


_POOL_OF_CONFIG: Final = {spec.config_name: spec.name for spec in POOLS}


def asks_for_pools(changes: Mapping[str, str | None]) -> bool:
    """Return whether these changes are about pools, and so for `resize_pools`.

    Raises:
        SettingError: they are about pools and other configs, which cannot be changed in one step.
    """
    about_pools = [name for name in changes if name in _POOL_OF_CONFIG]
    others = [name for name in changes if name not in _POOL_OF_CONFIG]
    if about_pools and others:
        raise SettingError(
            f"{about_pools[0]} is stored by Airflow, {others[0]} by this platform: change them one after the other"
        )
    return bool(about_pools)


def resize_pools(
    entity: ConfigEntity,
    changes: Mapping[str, str | None],
    *,
    pools: Pools,
    mirror: PoolMirror,
    store: ConfigStore,
    clock: Clock,
    author: str,
) -> AlteredConfigs:
    """Set the sizes of pools, first in Airflow, then in the mirror. Idempotent.

    Raises:
        SettingError: a name, value or entity is invalid by itself.
        ConfigRefusedError: a size is removed or has fewer slots than a batch takes, or Airflow has no such pool.
        AirflowApiError: Airflow refused, or this login has no permission.
        AirflowApiUnavailableError: Airflow did not answer.
        MetadataUnavailableError: the database is unreachable, perhaps after a change in Airflow; repeat it.
    """
    sizes = {_POOL_OF_CONFIG[name]: _slots(name, value) for name, value in checked_changes(entity, changes).items()}
    before = mirror_pools(pools, mirror)
    for pool in sizes:
        if pool not in before:
            raise ConfigRefusedError(f"Airflow has no pool {pool}: ./tiering cannot create it, Airflow's set-up does")
    warnings = _warnings(sizes, before, pools)
    made = []
    for spec in (pool_spec for pool_spec in POOLS if pool_spec.name in sizes):
        old, new = before[spec.name].slots, sizes[spec.name]
        if old == new:
            continue
        pools.resize(spec.name, new)
        mirror.record(spec.name, new, seen=old, author=author)
        made.append(ConfigChange(entity, spec.config_name, str(old), str(new), author, clock.now_ms()))
    return AlteredConfigs(entity, store.snapshot().version, tuple(made), (), (), (*_words(sizes, before), *warnings))


def _slots(name: str, value: str | None) -> int:
    if value is None:
        raise ConfigRefusedError(f"{name} cannot be removed: a pool always has a size; 0 pauses it")
    slots = int(value)
    if 0 < slots < BATCH_SLOTS:
        raise ConfigRefusedError(
            f"{name} = {slots} is below the {BATCH_SLOTS} slots of a batch: no batch would ever start"
        )
    return slots


def _words(sizes: Mapping[str, int], before: Mapping[str, PoolUsage]) -> list[str]:
    """Sentences about what follows from each change, by Airflow's figures just before it."""
    return [_sentence(pool, slots, before[pool]) for pool, slots in sizes.items()]


def _sentence(pool: str, slots: int, usage: PoolUsage) -> str:
    occupied = usage.running + usage.queued
    if slots == 0:
        return (
            f"{pool} is paused: {occupied} running end after their segment, {usage.scheduled} wait until it has slots"
        )
    if slots < occupied:
        return f"{pool} has {slots} slots: {occupied - slots} of {occupied} running end after their segment"
    if not usage.scheduled:
        return f"{pool} has {slots} slots: {occupied} in use, nothing waits"
    return f"{pool} has {slots} slots: {min(slots - occupied, usage.scheduled)} of {usage.scheduled} waiting start"


def _warnings(sizes: Mapping[str, int], before: Mapping[str, PoolUsage], pools: Pools) -> list[str]:
    """Warnings about pools with more slots than the executor can run tasks."""
    grown = {pool: slots for pool, slots in sizes.items() if slots > before[pool].slots}
    parallelism = pools.parallelism() if grown else None
    if parallelism is None:
        return []
    return [
        f"warning: {pool} has {slots} slots, the executor runs {parallelism} tasks at once ([core] parallelism): "
        f"{slots - parallelism} slots stay empty"
        for pool, slots in grown.items()
        if slots > parallelism
    ]


class ConfigService:
    """Changes dynamic configs and pool sizes, and returns the state of pools.

    Args:
        ledger: announces changed quotas, and shows which running workers use them.
        claim: claims the store, so that a copy of the database from before a change can no longer use it; returns why
            that failed, None if it did not.
    """

    def __init__(
        self,
        *,
        settings: TieringSettings,
        store: ConfigStore,
        pools: Callable[[], Pools],
        mirror: PoolMirror,
        work: LiveBatches,
        ledger: Callable[[], QuotaLedger],
        clock: Clock,
        claim: Callable[[], str | None],
    ) -> None:
        self._settings = settings
        self._store = store
        self._pools = pools
        self._mirror = mirror
        self._work = work
        self._ledger = ledger
        self._clock = clock
        self._claim = claim

    def alter(
        self,
        entity: ConfigEntity,
        changes: Mapping[str, str | None],
        *,
        author: str,
        check: ConfigCheck = accept_all,
    ) -> AlteredConfigs:
        """Change dynamic configs and wait until running workers use them, or resize pools.

        Args:
            entity: what the configs apply to.
            changes: values by name; None removes a value.
            author: who makes the change, for the history.
            check: may raise to refuse a change of configs; it is not called for sizes of pools.
        """
        if asks_for_pools(changes):
            return resize_pools(
                entity,
                changes,
                pools=self._pools(),
                mirror=self._mirror,
                store=self._store,
                clock=self._clock,
                author=author,
            )
        return alter_configs(
            entity,
            changes,
            store=self._store,
            ledger=self._ledger(),
            clock=self._clock,
            author=author,
            check=check,
            claim=self._claim,
        )

    def pools_status(self, *, ask_airflow: bool = True) -> PoolsStatus:
        """Return Airflow's figures if it answers, else the last known sizes."""
        if ask_airflow:
            return compare_pools(self._pools(), self._mirror, self._work)
        return mirrored_pools(self._mirror, self._work)

    def mirror_pools(self) -> None:
        """Store the sizes of Airflow's pools for processes that cannot read them. Raises AirflowApiError."""
        mirror_pools(self._pools(), self._mirror)

    def reader_threads(self) -> int:
        """Return the slots of the reader pool; a size of 0 pauses Airflow's jobs, not this process."""
        seen = self._mirror.seen().get(READER_POOL)
        if seen is None or seen.slots in (0, UNLIMITED_SLOTS):
            return self._settings.reader.threads
        return seen.slots
