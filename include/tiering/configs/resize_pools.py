"""Change the size of Airflow's pools from a command, under Kafka's names of its thread pools.

| step | what a crash after it leaves | who repairs it |
|---|---|---|
| check | nothing | |
| resize in Airflow, pool by pool | resized, not written down | the next look at Airflow; author: who its log names |
| mirror, history, event: one transaction | | |

Airflow is the truth: nothing is stored that Airflow has not taken. Batches that wait start within its next scheduling
loop; surplus batches see the mirror and end after their segment.
"""

from collections.abc import Mapping
from typing import Final

from include.tiering.clock import Clock
from include.tiering.configs.alter_configs import AlteredConfigs
from include.tiering.configs.config_rules import checked_changes
from include.tiering.configs.config_store import ConfigChange, ConfigEntity, ConfigStore
from include.tiering.configs.mirror_pools import mirror_pools
from include.tiering.configs.pools_contract import BATCH_SLOTS, POOLS, PoolMirror, Pools, PoolUsage
from include.tiering.errors import ConfigRefusedError, SettingError

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
