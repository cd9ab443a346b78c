"""The service that makes metadata from the store: of a whole cluster (rebuild), or of single copies (adoption)."""

from collections.abc import Callable, Collection, Sequence
from enum import StrEnum
from typing import Final

from include.tiering.clock import Clock
from include.tiering.model.ownership import RaisedBy, StoreMarker, StorePlace
from include.tiering.model.segments import TopicIdPartition, Uuid
from include.tiering.recovery.adopt import (
    Adoption,
    AdoptionPlan,
    AdoptionReport,
    forgotten_copies,
    plan_adoption,
    record_diverging,
)
from include.tiering.recovery.contract import MetadataRecovery, SegmentAdoption
from include.tiering.recovery.rebuild import Rebuild, RebuildPlan, RebuildReport, plan_rebuild
from include.tiering.remote_storage.contract import RemoteStorage
from include.tiering.remote_storage.store_ownership import StoreOwnership
from include.tiering.runs.cluster_log_dirs import ClusterLogDirs
from include.tiering.runs.contract import WorkStore
from include.tiering.segments.contract import RemoteLogMetadata, TopicRegistry
from include.tiering.segments.stored_copies import ForgottenCopy
from include.tiering.telemetry.metrics import ignore

_LEASE_MS: Final = 60_000


class RecoveryService:
    """Makes metadata from what the store holds.

    Most adapters need a database that is set up for a cluster. They are only constructed when a call needs them, as a
    rebuild begins with an empty database.

    Args:
        upgrade_schema: creates the tables, or migrates them.
        has_schema: returns whether the database has tables; raises MetadataUnavailableError if they are of another
            version.
        unguarded: returns the storage without the check of its marker.
        storage: returns the storage with that check.
        place: returns the place of the keys according to the settings.
        raised_by: returns host and database for a marker.
        recovery_of: returns the store in which the metadata of a cluster id are rebuilt.
        accepted: returns the ids of complete copies without a row that a person leaves so, having accepted the finding.
    """

    def __init__(
        self,
        *,
        upgrade_schema: Callable[[], None],
        has_schema: Callable[[], bool],
        unguarded: Callable[[], RemoteStorage],
        storage: Callable[[], RemoteStorage],
        place: Callable[[], StorePlace],
        raised_by: Callable[[], RaisedBy],
        recovery_of: Callable[[str], MetadataRecovery],
        adoption: Callable[[], SegmentAdoption],
        metadata: Callable[[], RemoteLogMetadata],
        registry: Callable[[], TopicRegistry],
        work: Callable[[], WorkStore],
        accepted: Callable[[], Collection[Uuid | None]],
        log_dirs: ClusterLogDirs,
        ownership: StoreOwnership,
        clock: Clock,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self._upgrade_schema = upgrade_schema
        self._has_schema = has_schema
        self._unguarded = unguarded
        self._storage = storage
        self._place = place
        self._raised_by = raised_by
        self._recovery_of = recovery_of
        self._adoption = adoption
        self._metadata = metadata
        self._registry = registry
        self._work = work
        self._accepted = accepted
        self._log_dirs = log_dirs
        self._ownership = ownership
        self._clock = clock
        self._random_bytes = random_bytes

    def plan_rebuild(self, *, on_listed: Callable[[int], None] = ignore) -> RebuildPlan:
        """List the store, and return what can be rebuilt; see `rebuild.plan_rebuild`. Read only.

        Raises:
            ForeignStoreError: the store has no marker, or it is not the store of the log dirs, of the settings and of
                the unfinished rebuild, if any.
            StateConflictError: the database is not empty or is rebuilt for another cluster, or the store's layout
                writes no manifests.
        """
        return plan_rebuild(
            self._unguarded(),
            self._rebuild_begun,
            self._log_dirs.first_cluster_id(),
            place=self._place(),
            on_listed=on_listed,
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
        """Rebuild in this process, or continue an unfinished rebuild; a dry run reads the store and changes nothing."""
        if not dry_run:
            self._upgrade_schema()
        recovery = None if dry_run else self._recovery_of(plan.found.cluster_id)
        task = Rebuild(self._unguarded(), recovery, self._clock, observe, author)
        wanted = StoreMarker(
            plan.found.cluster_id,
            str(Uuid.random(self._random_bytes)),
            plan.found.generation + 1,
            str(Uuid.random(self._random_bytes)),
            self._place(),
            self._raised_by(),
        )
        return task.run(plan, wanted, on_examined=on_examined, stop=stop)

    def rebuild_apart(self, plan: RebuildPlan, *, author: str) -> RebuildReport:
        """Rebuild metadata in this empty database, and leave the store to its owner: nothing of it is changed.

        For a database that is thrown away, in which nothing is copied or deleted: a recovery drill.
        """
        self._upgrade_schema()
        recovery = self._recovery_of(plan.found.cluster_id)
        task = Rebuild(self._unguarded(), recovery, self._clock, ignore, author)
        return task.run(plan, plan.found, on_examined=ignore, stop=lambda: False)

    def plan_adoption(self, ids: Collection[Uuid] | None = None) -> AdoptionPlan:
        """Return which complete copies without metadata may be adopted; `ids` restricts them to these segment ids.

        This changes nothing, except that partitions of which the store has a later history are recorded in the metadata
        as diverging.
        """
        self._ownership.require()
        plan = plan_adoption(self._storage(), self._metadata(), self._registry(), ids)
        record_diverging(plan, self._metadata())
        return plan

    def forgotten_copies(self, partition: TopicIdPartition) -> Sequence[ForgottenCopy]:
        """Return the complete copies of a partition, and those that may be, of which the metadata have no row.

        Those are left out of which a person has accepted the finding that says so. An accepted finding of another kind,
        as about one object of a copy that was not complete then, says nothing about the copy.
        """
        accepted = self._accepted()
        found = forgotten_copies(self._storage(), self._metadata(), partition)
        return [copy for copy in found if copy.segment_id not in accepted]

    def adopt(
        self, plan: AdoptionPlan, run_id: str, *, author: str, observe: Callable[[StrEnum], None] = ignore
    ) -> AdoptionReport:
        """Claim the store, and adopt the planned copies, under the copy leases of their partitions."""
        self._ownership.claim()
        adoption = self._adoption()
        task = Adoption(self._storage(), self._metadata(), adoption, self._work(), observe, author, _LEASE_MS)
        return task.run(plan, run_id)

    def _rebuild_begun(self, found: StoreMarker) -> StoreMarker | None:
        if not self._has_schema():
            return None
        return self._recovery_of(found.cluster_id).begun(found)
