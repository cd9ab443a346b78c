"""Change dynamic configs and the sizes of Airflow's pools while jobs run, and wait until the jobs use the new values.

A change of configs, `alter_configs`:

| step | what a crash after it leaves | who repairs it |
|---|---|---|
| check | nothing | |
| store values and history, one transaction | stored; quotas not in force | a worker (about 10 s), or any change |
| announce | quotas in force from each worker's next round; store not claimed | the same change, or the next plan |
| claim the store | a backup of the database from before the change is refused | |
| wait | the same, because waiting changes nothing | |

Every change announces all quotas, with the version of the values that they come from; the ledger keeps the newest. So
changes may overlap, be repeated, or be interrupted, and the quotas in force are never older than those announced.

A copy of the database from before a change would delete by the values of that time. So a change claims the remote store
as a plan does, after it has announced the quotas. The change is valid even if the claim fails: an unreachable store
must not prevent a person from lengthening a retention.

A change of pools, `resize_pools`, uses the names of Kafka's settings for its thread pools:

| step | what a crash after it leaves | who repairs it |
|---|---|---|
| check | nothing | |
| resize a pool in Airflow | resized, not recorded | the next read of Airflow's pools; author from Airflow's log |
| store its size, history and event, one transaction | recorded; the other pools keep their sizes | the same change |

The last two steps are done for one pool after the other. Airflow's sizes are authoritative: no size is stored that
Airflow has not accepted. Waiting batches start in Airflow's next scheduling loop; surplus batches read the mirror and
end after the segments that they send, or their group. Surplus verifications end early, too. A size run or an audit is
one piece of work, and runs to its end.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from include.tiering.clock import Clock
from include.tiering.configs.config_catalogue import all_configs
from include.tiering.configs.config_store import (
    ConfigChange,
    ConfigCheck,
    ConfigEntity,
    ConfigStore,
    ConfigValues,
    accept_all,
    topic_quota_configs,
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
    pool_missing,
)
from include.tiering.configs.rules import check_rules, checked_changes, quotas_in_force
from include.tiering.errors import ConfigRefusedError, MetadataUnavailableError, SettingError
from include.tiering.quotas.contract import QuotaLedger, QuotaWorker
from include.tiering.quotas.topic_quotas import TOPIC_QUOTAS_ENABLE, TOPIC_THRESHOLD, TOTAL_THRESHOLD
from include.tiering.settings import TieringSettings

_READ_WHILE_RUNNING: Final = frozenset({TOTAL_THRESHOLD, TOPIC_THRESHOLD, TOPIC_QUOTAS_ENABLE})
"""Configs that running batches read again twice a second."""

WAIT_SECONDS: Final = 5.0
POLL_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class AlteredConfigs:
    """The changes (none if the values were the same before), and which running workers use them.

    `not_taken_by` includes workers that died a moment ago, until their heartbeat has stood still for long enough. After
    a change of pools both lists of workers are empty, and `notes` say what follows from the new sizes. `not_claimed`
    says why the remote store could not be claimed after the change; None if it was claimed, or the change was of pools.
    `has_quota` says whether workers were waited for, `read_at_start` names changed configs that running work keeps.
    `without_effect` says which values are stored and change nothing, and why.
    """

    entity: ConfigEntity
    version: int
    changes: tuple[ConfigChange, ...]
    taken_by: tuple[QuotaWorker, ...]
    not_taken_by: tuple[QuotaWorker, ...]
    notes: tuple[str, ...] = ()
    not_claimed: str | None = None
    has_quota: bool = True
    read_at_start: tuple[str, ...] = ()
    without_effect: str | None = None


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
    topic_quotas_enabled: bool = False,
    gone: Callable[[], frozenset[str]] = frozenset,
) -> AlteredConfigs:
    """Make all of `changes` or none of them: set a value, or remove it if the new value is None.

    Idempotent; each call announces the quotas. `check` is called after the fixed rules, and errors that it raises are
    passed on. `claim` claims the remote store; it returns why the claim failed, None if it succeeded. Topic quotas are
    `topic_quotas_enabled` if no dynamic config says otherwise; `gone` returns the names of deleted topics, whose
    thresholds do not count towards a total.

    Raises:
        SettingError: a name, value or entity is invalid by itself.
        ConfigRefusedError: the change breaks a rule together with the other values.
        MetadataUnavailableError: the database or the ledger is unreachable. The change may have been stored, and the
            message says so if it was; repeat the call.
    """
    checked = checked_changes(entity, changes, stored=store.of_entity(entity))
    of_topic_quotas = any(name in _READ_WHILE_RUNNING for name in checked)
    deleted = gone() if of_topic_quotas else frozenset()

    def check_all(before: ConfigValues, after: ConfigValues) -> None:
        check_rules(after, before, gone=deleted - {entity.entity_name})
        check(before, after)

    altered = store.alter(entity, checked, author=author, check=check_all)
    with _saying_that_it_is_stored(entity):
        ledger.announce(quotas_in_force(altered.snapshot))
    version, not_claimed = altered.snapshot.version, claim()
    quotas = {config.name for config in all_configs() if config.quota is not None}
    # Only quotas reach running workers by the ledger; its version says nothing about other configs.
    has_quota = any(name in quotas for name in checked)
    topic_quotas = topic_quota_configs(altered.snapshot.values, enabled=topic_quotas_enabled)
    with _saying_that_it_is_stored(entity):
        taken_by, not_taken_by = _wait_for(version, ledger, clock, wait_seconds) if has_quota else ((), ())
    return AlteredConfigs(
        entity,
        version,
        altered.changes,
        taken_by,
        not_taken_by,
        not_claimed=not_claimed,
        has_quota=has_quota,
        read_at_start=tuple(name for name in checked if name not in quotas and name not in _READ_WHILE_RUNNING),
        without_effect=topic_quotas.without_effect if of_topic_quotas else None,
    )


@contextmanager
def _saying_that_it_is_stored(entity: ConfigEntity) -> Iterator[None]:
    """Say in an error of the ledger that the change was made before it."""
    try:
        yield
    except MetadataUnavailableError as error:
        raise MetadataUnavailableError(
            f"the change of {entity} is stored, but whether workers use it is not known, as the quota ledger does not"
            f" answer: {error}; repeat the command"
        ) from error


def _wait_for(
    version: int, ledger: QuotaLedger, clock: Clock, wait_seconds: float
) -> tuple[tuple[QuotaWorker, ...], tuple[QuotaWorker, ...]]:
    """Wait until all workers use `version` or newer; return those that do, and those that do not in time."""
    deadline = clock.monotonic() + wait_seconds
    while True:
        workers = ledger.workers()
        late = tuple(worker for worker in workers if worker.version < version)
        if not late or clock.monotonic() >= deadline:
            return tuple(worker for worker in workers if worker.version >= version), late
        clock.sleep(POLL_SECONDS)


_POOL_OF_CONFIG: Final = {spec.config_name: spec.name for spec in POOLS}


def asks_for_pools(changes: Mapping[str, str | None]) -> bool:
    """Return whether these changes are sizes of pools, which `resize_pools` makes.

    Raises:
        SettingError: the changes are sizes of pools and other configs, which cannot be changed in one step.
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
        ConfigRefusedError: a size would be removed, or is not 0 and has fewer slots than a batch takes, or Airflow has
            no such pool.
        AirflowApiError: Airflow refused, or this login has no permission.
        AirflowApiUnavailableError: Airflow did not answer.
        MetadataUnavailableError: the database is unreachable. Airflow's pools may have been resized; repeat the call.
    """
    sizes = {_POOL_OF_CONFIG[name]: _slots(name, value) for name, value in checked_changes(entity, changes).items()}
    before = mirror_pools(pools, mirror)
    for pool in sizes:
        if pool not in before:
            raise ConfigRefusedError(pool_missing(pool))
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
    """Return a sentence for each pool: what follows from its new size, by Airflow's figures before the change."""
    return [_sentence(pool, slots, before[pool]) for pool, slots in sizes.items()]


def _sentence(pool: str, slots: int, usage: PoolUsage) -> str:
    occupied = usage.running + usage.queued
    if slots == 0:
        return f"{pool} is paused: {occupied} jobs are surplus (batches end early), {usage.scheduled} wait for slots"
    if slots < occupied:
        return f"{pool} has {slots} slots: {occupied - slots} of {occupied} jobs are surplus (batches end early)"
    if not usage.scheduled:
        return f"{pool} has {slots} slots: {occupied} in use, nothing waits"
    return f"{pool} has {slots} slots: {min(slots - occupied, usage.scheduled)} of {usage.scheduled} waiting jobs start"


def _warnings(sizes: Mapping[str, int], before: Mapping[str, PoolUsage], pools: Pools) -> list[str]:
    """Return a warning for each enlarged pool that has more slots than the executor runs tasks at once."""
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
        ledger: returns the ledger, which announces changed quotas and shows which running workers use them.
        claim: claims the remote store, so that a copy of the database from before a change is refused;
            returns why the claim failed, None if it succeeded.
        gone: returns the names of topics that were deleted.
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
        gone: Callable[[], frozenset[str]],
    ) -> None:
        self._settings = settings
        self._store = store
        self._pools = pools
        self._mirror = mirror
        self._work = work
        self._ledger = ledger
        self._clock = clock
        self._claim = claim
        self._gone = gone

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
            check: may raise an error to refuse a change of configs; it is not called for sizes of pools.

        Raises:
            SettingError: as for `alter_configs` and `asks_for_pools`.
            ConfigRefusedError: as for `alter_configs` and `resize_pools`.
            AirflowApiError: as for `resize_pools`.
            MetadataUnavailableError: as for `alter_configs` and `resize_pools`.
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
            topic_quotas_enabled=self._settings.topic_quotas.enable,
            gone=self._gone,
        )

    def pools_status(self, *, ask_airflow: bool = True) -> PoolsStatus:
        """Return Airflow's figures; or the last known sizes, if Airflow cannot be read or `ask_airflow` is False."""
        if ask_airflow:
            return compare_pools(self._pools(), self._mirror, self._work)
        return mirrored_pools(self._mirror, self._work)

    def mirror_pools(self) -> Mapping[str, PoolUsage]:
        """Store and return the sizes of Airflow's pools, for processes that cannot read Airflow.

        Raises as `pools.mirror_pools`.
        """
        return mirror_pools(self._pools(), self._mirror)

    def reader_threads(self) -> int:
        """Return the last known slots of the reader pool as the number of threads of this process.

        If they are not known, unlimited, or 0, which pauses Airflow's jobs but not this process, return the setting
        `remote.log.reader.threads`.
        """
        seen = self._mirror.seen().get(READER_POOL)
        if seen is None or seen.slots in (0, UNLIMITED_SLOTS):
            return self._settings.reader.threads
        return seen.slots
