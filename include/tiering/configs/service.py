"""Change dynamic configs and the sizes of Airflow's pools while jobs run, and wait until the jobs have taken it.

A change of configs, `alter_configs`:

| step | what a crash after it leaves | who repairs it |
|---|---|---|
| check | nothing | |
| store values and history, one transaction | stored, not in force | the same change again, or any other |
| announce | in force: workers take it by themselves | |
| claim the store | a backup of the database from before the change is not refused | the same again, or the next plan |
| wait | as before: waiting only looks | |

Every change announces all quotas, with the version of the values that they come from; the ledger keeps the newest. So
changes may cross, be repeated, or be cut off, and what is in force is never older than what was announced.

A database from before a change would delete by what was in force then: so a change claims the store as a plan does,
behind what it does itself. It counts without that too: a store that is away keeps nobody from lengthening a retention.

A change of pools, `resize_pools`, under Kafka's names of its thread pools:

| step | what a crash after it leaves | who repairs it |
|---|---|---|
| check | nothing | |
| resize in Airflow, pool by pool | resized, not written down | the next look at Airflow; author: who its log names |
| mirror, history, event: one transaction | | |

Airflow is the truth: nothing is stored that Airflow has not taken. Batches that wait start within its next scheduling
loop; surplus batches see the mirror and end after their segment.
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
    """What was changed (nothing if all was so before), and which running workers have taken it.

    `not_taken_by` also holds workers that died a moment ago: they are counted until others have seen them silent.
    `notes` say what follows, in words, where the change was not one that workers take: sizes of pools. `not_claimed`
    says why the store could not be claimed behind the change.
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
    """Set, or with None remove, all of `changes` or nothing. Repeating is harmless, and announces again.

    `check` is asked beside the rules that always hold; what it raises comes out of here. `claim` claims the store and
    returns why that could not be done, None if it was.

    Raises:
        SettingError: a name, value or place that is wrong by itself.
        ConfigRefusedError: the change breaks a rule together with the other values.
        MetadataUnavailableError: after a stored change too; repeat it.
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
    """Workers that have taken `version`, and those that have not when the time is over."""
    deadline = clock.monotonic() + wait_seconds
    while True:
        workers = ledger.workers()
        behind = tuple(worker for worker in workers if worker.version < version)
        if not behind or clock.monotonic() >= deadline:
            return tuple(worker for worker in workers if worker.version >= version), behind
        clock.sleep(POLL_SECONDS)


_POOL_OF_CONFIG: Final = {spec.config_name: spec.name for spec in POOLS}


def asks_for_pools(changes: Mapping[str, str | None]) -> bool:
    """Whether these changes are about pools, and so for `resize_pools`.

    Raises:
        SettingError: about pools and other configs at once, which cannot be changed as one.
    """
    about_pools = [name for name in changes if name in _POOL_OF_CONFIG]
    others = [name for name in changes if name not in _POOL_OF_CONFIG]
    if about_pools and others:
        raise SettingError(
            f"{about_pools[0]} is kept by Airflow, {others[0]} by this platform: change them one after the other"
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
    """Give pools their new sizes, in Airflow first. Repeating is harmless.

    Raises:
        SettingError: a name, value or place that is wrong by itself.
        ConfigRefusedError: a pool without a size, of fewer slots than one batch takes, or that Airflow does not have.
        AirflowApiError: Airflow refused, or this login may not.
        AirflowApiUnavailableError: Airflow did not answer.
        MetadataUnavailableError: after a change in Airflow too; repeat it.
    """
    sizes = {_POOL_OF_CONFIG[name]: _slots(name, value) for name, value in checked_changes(entity, changes).items()}
    before = mirror_pools(pools, mirror)
    for pool in sizes:
        if pool not in before:
            raise ConfigRefusedError(f"Airflow has no pool {pool}: ./tiering cannot create it, Airflow's set-up does")
    warnings = _warnings(sizes, before, pools)
    made = []
    for spec in (one for one in POOLS if one.name in sizes):
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
            f"{name} = {slots} is below the {BATCH_SLOTS} slots of one batch: none would ever start"
        )
    return slots


def _words(sizes: Mapping[str, int], before: Mapping[str, PoolUsage]) -> list[str]:
    """What follows from each change, in Airflow's figures of a moment ago."""
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
    """Airflow runs no more tasks at once than its executor has room for, whatever the pools say."""
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
    """Changes dynamic configs and pool sizes, and says what pools have.

    Args:
        ledger: is told of changed quotas, and waits until running workers have taken them.
        claim: lets no copy of the database from before a change go on with the store; returns why it could not.
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
        """Change dynamic configs and wait until running workers have taken them, or resize pools.

        Args:
            changes: by name; None removes a value.
            check: may refuse a change of what is kept in the database, by raising; pool sizes are Airflow's.
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
        """Airflow's own figures if it can be asked, else what was seen last."""
        if ask_airflow:
            return compare_pools(self._pools(), self._mirror, self._work)
        return mirrored_pools(self._mirror, self._work)

    def mirror_pools(self) -> None:
        """Ask Airflow for the sizes of its pools and keep them for those who cannot. Raises AirflowApiError."""
        mirror_pools(self._pools(), self._mirror)

    def reader_threads(self) -> int:
        """As many as the reader pool has slots; a size of 0 pauses Airflow's jobs, not this process."""
        seen = self._mirror.seen().get(READER_POOL)
        if seen is None or seen.slots in (0, UNLIMITED_SLOTS):
            return self._settings.reader.threads
        return seen.slots
