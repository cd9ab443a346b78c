"""What can be asked of and done to Airflow's pools, and the change of dynamic configs, among which are their sizes."""

from collections.abc import Mapping

from include.tiering.pools.contract import READER_POOL, UNLIMITED_SLOTS
from include.tiering.quota.config_store import ConfigCheck, ConfigEntity, accept_all
from include.tiering.tasks.alter_configs import AlteredConfigs, alter_configs
from include.tiering.tasks.mirror_pools import PoolsStatus, look_at_pools, mirror_pools, mirrored_pools
from include.tiering.tasks.resize_pools import asks_for_pools, resize_pools
from include.tiering.wiring.parts import Parts


class PoolVerbs(Parts):
    """Part of `Tiering`."""

    def pools_status(self, *, ask_airflow: bool = True) -> PoolsStatus:
        """Airflow's own figures if it can be asked, else what was seen last."""
        if ask_airflow:
            return look_at_pools(self.pools, self.pool_mirror, self.work)
        return mirrored_pools(self.pool_mirror, self.work)

    def mirror_pools(self) -> None:
        """Ask Airflow for the sizes of its pools and keep them for those who cannot. Raises AirflowApiError."""
        mirror_pools(self.pools, self.pool_mirror)

    def alter_configs(
        self,
        entity: ConfigEntity,
        changes: Mapping[str, str | None],
        *,
        author: str,
        check: ConfigCheck = accept_all,
    ) -> AlteredConfigs:
        """Change dynamic configs and wait until running workers have taken them, or resize pools; see the tasks.

        `check` may refuse a change of what is kept here, by raising; sizes of pools are Airflow's.
        """
        if asks_for_pools(changes):
            return resize_pools(
                entity,
                changes,
                pools=self.pools,
                mirror=self.pool_mirror,
                store=self.configs,
                clock=self.clock,
                author=author,
            )
        return alter_configs(
            entity,
            changes,
            store=self.configs,
            ledger=self.quota_ledger,
            clock=self.clock,
            author=author,
            check=check,
            claim=self.claim_store_if_possible,
        )

    def reader_threads(self) -> int:
        """As many as the reader pool has slots; a size of 0 pauses Airflow's jobs, not this process."""
        seen = self.pool_mirror.seen().get(READER_POOL)
        if seen is None or seen.slots in (0, UNLIMITED_SLOTS):
            return self.settings.reader.threads
        return seen.slots
