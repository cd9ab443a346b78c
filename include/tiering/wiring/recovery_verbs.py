"""The verbs that make metadata from what is stored: rebuild all of it, adopt what a database does not know."""

from collections.abc import Callable, Collection
from contextlib import suppress
from enum import StrEnum
from typing import Final

from include.tiering.database.migrations import current_revision, require_head, upgrade
from include.tiering.errors import ClusterFactsError, SourceError
from include.tiering.log_source.log_dir.dirs import identify
from include.tiering.model.ids import Uuid
from include.tiering.remote_metadata.sql_recovery import SqlMetadataRecovery
from include.tiering.remote_storage.contract import StoreMarker
from include.tiering.tasks.adopt import Adoption, AdoptionReport
from include.tiering.tasks.plan_adoption import AdoptionPlan, plan_adoption
from include.tiering.tasks.plan_rebuild import RebuildPlan, plan_rebuild
from include.tiering.tasks.rebuild import Rebuild, RebuildReport
from include.tiering.wiring.parts import Parts
from include.tiering.wiring.unwatched import ignore

_LEASE_MS: Final = 60_000


class RecoveryVerbs(Parts):
    """Part of `Tiering`."""

    _random_bytes: Callable[[int], bytes]

    def plan_rebuild(self, *, on_listed: Callable[[int], None] = ignore) -> RebuildPlan:
        """What there is to rebuild, by the store's listing; see the task. Changes nothing.

        Raises:
            ForeignStoreError: the store has no marker, or is of another cluster than the log dirs.
            StateConflictError: the database is not empty.
        """
        return plan_rebuild(
            self.unguarded_storage, self._rebuild_begun, self._cluster_of_brokers(), on_listed=on_listed
        )

    def rebuild(
        self,
        plan: RebuildPlan,
        *,
        author: str,
        dry_run: bool = False,
        on_examined: Callable[[int], None] = ignore,
        stop: Callable[[], bool] = lambda: False,
        observe: Callable[[StrEnum], None] = ignore,
    ) -> RebuildReport:
        """Rebuild in this process, or go on with it; a dry run reads the same and changes nothing."""
        if not dry_run:
            upgrade(self.engine)
        recovery = None if dry_run else SqlMetadataRecovery(self.engine, plan.found.cluster_id)
        task = Rebuild(self.unguarded_storage, recovery, self.clock, observe, author)
        return task.run(plan, Uuid.random(self._random_bytes), on_examined=on_examined, stop=stop)

    def plan_adoption(self, ids: Collection[Uuid] | None = None) -> AdoptionPlan:
        """Which complete copies without metadata may be adopted, of all or of these ids. Changes nothing."""
        return plan_adoption(self.storage, self.metadata, self.registry, ids)

    def adopt(
        self, plan: AdoptionPlan, run_id: str, *, author: str, observe: Callable[[StrEnum], None] = ignore
    ) -> AdoptionReport:
        """Adopt what was planned, under the partitions' leases."""
        adoption = SqlMetadataRecovery(self.engine, self.cluster_id)
        task = Adoption(self.storage, self.metadata, adoption, self.work, observe, author, _LEASE_MS)
        return task.run(plan, run_id)

    def _rebuild_begun(self, found: StoreMarker) -> StoreMarker | None:
        if current_revision(self.engine) is None:
            return None
        require_head(self.engine)
        return SqlMetadataRecovery(self.engine, found.cluster_id).begun(found)

    def _cluster_of_brokers(self) -> str | None:
        """By the first of the log dirs that can be read; None if there is none any more."""
        for log_dir in self.log_dirs() if self.settings.log_dirs else ():
            with suppress(SourceError, ClusterFactsError):
                return identify(log_dir).cluster_id
        return None
