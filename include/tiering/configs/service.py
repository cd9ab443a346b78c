"""Dynamic configs, among which are the sizes of Airflow's pools."""

from collections.abc import Callable, Mapping

from include.tiering.clock import Clock
from include.tiering.configs.alter_configs import AlteredConfigs, alter_configs
from include.tiering.configs.config_store import (
    ConfigCheck,
    ConfigEntity,
    ConfigStore,
    accept_all,
)
from include.tiering.configs.mirror_pools import PoolsStatus, look_at_pools, mirror_pools, mirrored_pools
from include.tiering.configs.pools_contract import READER_POOL, UNLIMITED_SLOTS, LiveBatches, PoolMirror, Pools
from include.tiering.configs.resize_pools import asks_for_pools, resize_pools
from include.tiering.quotas.contract import QuotaLedger
from include.tiering.settings import TieringSettings


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
            return look_at_pools(self._pools(), self._mirror, self._work)
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
