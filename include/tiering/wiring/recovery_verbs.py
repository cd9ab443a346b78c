"""The verbs that make metadata from what is stored: rebuild all of it, adopt what a database does not know."""

from collections.abc import Callable, Collection
from contextlib import suppress
from enum import StrEnum
from typing import Final

from include.tiering.database.migrations import current_revision, require_head, upgrade
from include.tiering.errors import ClusterFactsError, ForeignStoreError, SourceError, StateConflictError
from include.tiering.log_source.log_dir.dirs import identify
from include.tiering.model.ids import Uuid
from include.tiering.quota.config_store import ALL_BROKERS
from include.tiering.quota.deletion_limits import deletion_limits
from include.tiering.quota.topic_retention import FOR_EVER
from include.tiering.remote_metadata.contract import LeaseRole
from include.tiering.remote_metadata.sql_recovery import SqlMetadataRecovery
from include.tiering.remote_storage.store_marker import StoreMarker
from include.tiering.reports.configs import describe
from include.tiering.reports.store_owner import DeletesBy, Relocation, TakeOver
from include.tiering.tasks.adopt import Adoption, AdoptionReport
from include.tiering.tasks.plan_adoption import AdoptionPlan, plan_adoption, record_diverging
from include.tiering.tasks.plan_rebuild import RebuildPlan, plan_rebuild
from include.tiering.tasks.prove_place import prove_place
from include.tiering.tasks.rebuild import Rebuild, RebuildReport
from include.tiering.units import format_utc
from include.tiering.wiring.unwatched import ignore
from include.tiering.wiring.withdrawal_verbs import WithdrawalVerbs

_LEASE_MS: Final = 60_000


class RecoveryVerbs(WithdrawalVerbs):
    """Part of `Tiering`."""

    def plan_rebuild(self, *, on_listed: Callable[[int], None] = ignore) -> RebuildPlan:
        """What there is to rebuild, by the store's listing; see the task. Changes nothing.

        Raises:
            ForeignStoreError: the store has no marker, or is of another cluster than the log dirs.
            StateConflictError: the database is not empty.
        """
        return plan_rebuild(
            self.unguarded_storage,
            self._rebuild_begun,
            self._cluster_of_brokers(),
            place=self.place,
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
        """Rebuild in this process, or go on with it; a dry run reads the same and changes nothing."""
        if not dry_run:
            upgrade(self.engine)
        recovery = None if dry_run else SqlMetadataRecovery(self.engine, plan.found.cluster_id)
        task = Rebuild(self.unguarded_storage, recovery, self.clock, observe, author)
        wanted = StoreMarker(
            plan.found.cluster_id,
            str(Uuid.random(self._random_bytes)),
            plan.found.generation + 1,
            str(Uuid.random(self._random_bytes)),
            self.place,
            self.raised_by(),
        )
        return task.run(plan, wanted, on_examined=on_examined, stop=stop)

    def plan_take_over(self, run_id: str, *, on_listed: Callable[[int], None] = ignore) -> TakeOver:
        """What there is to take over: both sides, and an audit of the store as this database sees it. Changes nothing
        but the record of audits.

        Raises:
            ForeignStoreError: there is no marker, or that of another store.
        """
        accepted, found = self.generations.accepted(), self.unguarded_storage.read_marker()
        if found is None or not found.is_of_the_same_store(accepted.current):
            raise ForeignStoreError(accepted.objection(found))
        deletes_by = self.deletes_by()
        report = self.audit(run_id, of_our_store=False, on_listed=on_listed)
        findings = self.audit_findings(run_id)
        return TakeOver(accepted.current, found, accepted.accepts(found), report, findings, deletes_by)

    def deletes_by(self) -> DeletesBy:
        """What this database deletes by, as it is."""
        values, names = self.configs.snapshot().values, {one.name for one in deletion_limits()}
        return DeletesBy(
            {topic: one for topic, one in self.topic_retentions().items() if one != FOR_EVER},
            [one for one in describe(ALL_BROKERS, values, self.settings) if one.name in names],
            self.work.paused_topics(),
            self.deletions.newest_event_ms(self.effective_settings().clock.ignored_until_ms),
        )

    def plan_relocation(self) -> Relocation:
        """Where keys lie, where the settings say that they lie, and what of the segments is there. Changes nothing."""
        proof = prove_place(self.unguarded_storage, self.metadata)
        return Relocation(self.generations.accepted().current.place, self.place, proof)

    def relocate_store(self, relocation: Relocation, *, author: str) -> StoreMarker:
        """Let keys lie where the settings say, after what was looked at is there.

        Raises:
            ForeignStoreError: something is missing, or the old or the new place has the marker of another database.
            StateConflictError: a batch copies or deletes now; it is named.
        """
        if not relocation.proof.holds:
            raise ForeignStoreError(relocation.objection)
        return self.store_move().run(relocation.place, author=author, require_idle=self._require_idle)

    def _require_idle(self) -> None:
        """Raises StateConflictError while a batch copies or deletes: it would go on in the place of before."""
        busy = [one for one in self.work.live_leases() if one.role in (LeaseRole.COPY, LeaseRole.EXPIRE)]
        if busy:
            first = busy[0]
            more = f", and {len(busy) - 1} more" if len(busy) > 1 else ""
            raise StateConflictError(
                f"{first.topic_id_partition}: batch {first.holder.batch_id} of run {first.holder.run_id} holds the"
                f" lease to {first.role} until {format_utc(first.holder.expires_at_ms)}{more}: pause the DAGs, let"
                " batches end, and call ./tiering relocate-store again"
            )

    def take_over_store(self, found: StoreMarker, *, author: str) -> StoreMarker:
        """Let this database own the store whose marker is `found`; see the task. What uses the other database is
        refused from then on."""
        return self.store_claim().take_over(found, author=author)

    def plan_adoption(self, ids: Collection[Uuid] | None = None) -> AdoptionPlan:
        """Which complete copies without metadata may be adopted, of all or of these ids. Changes nothing, but records
        where the store has a later history than the metadata know."""
        self.require_our_store()
        plan = plan_adoption(self.storage, self.metadata, self.registry, ids)
        record_diverging(plan, self.metadata)
        return plan

    def adopt(
        self, plan: AdoptionPlan, run_id: str, *, author: str, observe: Callable[[StrEnum], None] = ignore
    ) -> AdoptionReport:
        """Adopt what was planned, under the partitions' leases."""
        self.claim_store()
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
