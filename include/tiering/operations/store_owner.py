"""Which database owns the store: take it over from another one, or let keys lie in another place."""

from collections.abc import Callable

from include.tiering.audit.service import AuditService
from include.tiering.configs.config_store import ALL_BROKERS, FOR_EVER, ConfigStore, EffectiveConfigs
from include.tiering.configs.report import describe
from include.tiering.configs.rules import deletion_limits
from include.tiering.errors import ForeignStoreError, StateConflictError
from include.tiering.model.ownership import LeaseRole, StoreMarker, StorePlace
from include.tiering.observers import ignore
from include.tiering.operations.store_owner_report import DeletesBy, Relocation, TakeOver
from include.tiering.remote_storage.claim_store import StoreGenerations
from include.tiering.remote_storage.contract import RemoteStorage
from include.tiering.remote_storage.store_ownership import StoreOwnership
from include.tiering.runs.contract import WorkStore
from include.tiering.runs.deletion_run import DeletionStore
from include.tiering.segments.contract import RemoteLogMetadata
from include.tiering.segments.stored_copies import prove_place
from include.tiering.settings import TieringSettings
from include.tiering.units import format_utc


class StoreOwnerService:
    """Changes the owner or the place of a store, after a person has seen what that means."""

    def __init__(
        self,
        *,
        settings: TieringSettings,
        unguarded: Callable[[], RemoteStorage],
        place: StorePlace,
        generations: StoreGenerations,
        metadata: RemoteLogMetadata,
        deletions: DeletionStore,
        work: WorkStore,
        config_store: ConfigStore,
        configs: EffectiveConfigs,
        audit: AuditService,
        ownership: StoreOwnership,
    ) -> None:
        self._settings = settings
        self._unguarded = unguarded
        self._place = place
        self._generations = generations
        self._metadata = metadata
        self._deletions = deletions
        self._work = work
        self._config_store = config_store
        self._configs = configs
        self._audit = audit
        self._ownership = ownership

    def plan_take_over(self, run_id: str, *, on_listed: Callable[[int], None] = ignore) -> TakeOver:
        """What there is to take over: both sides, and an audit of the store as this database sees it. Changes nothing
        but the record of audits.

        Raises:
            ForeignStoreError: there is no marker, or that of another store.
        """
        accepted, found = self._generations.accepted(), self._unguarded().read_marker()
        if found is None or not found.is_of_the_same_store(accepted.current):
            raise ForeignStoreError(accepted.objection(found))
        deletes_by = self.deletes_by()
        report = self._audit.run(run_id, of_our_store=False, on_listed=on_listed)
        findings = self._audit.findings(run_id)
        return TakeOver(accepted.current, found, accepted.accepts(found), report, findings, deletes_by)

    def deletes_by(self) -> DeletesBy:
        """What this database deletes by, as it is."""
        values, names = self._config_store.snapshot().values, {one.name for one in deletion_limits()}
        return DeletesBy(
            {topic: one for topic, one in self._configs.topic_retentions().items() if one != FOR_EVER},
            [one for one in describe(ALL_BROKERS, values, self._settings) if one.name in names],
            self._work.paused_topics(),
            self._deletions.newest_event_ms(self._configs.settings().clock.ignored_until_ms),
        )

    def plan_relocation(self) -> Relocation:
        """Where keys lie, where the settings say that they lie, and what of the segments is there. Changes nothing."""
        proof = prove_place(self._unguarded(), self._metadata)
        return Relocation(self._generations.accepted().current.place, self._place, proof)

    def relocate(self, relocation: Relocation, *, author: str) -> StoreMarker:
        """Let keys lie where the settings say, after what was looked at is there.

        Raises:
            ForeignStoreError: something is missing, or the old or the new place has the marker of another database.
            StateConflictError: a batch copies or deletes now; it is named.
        """
        if not relocation.proof.holds:
            raise ForeignStoreError(relocation.objection)
        return self._ownership.store_move().run(relocation.place, author=author, require_idle=self._require_idle)

    def _require_idle(self) -> None:
        """Raises StateConflictError while a batch copies or deletes: it would go on in the place of before."""
        busy = [one for one in self._work.live_leases() if one.role in (LeaseRole.COPY, LeaseRole.EXPIRE)]
        if busy:
            first = busy[0]
            more = f", and {len(busy) - 1} more" if len(busy) > 1 else ""
            raise StateConflictError(
                f"{first.topic_id_partition}: batch {first.holder.batch_id} of run {first.holder.run_id} holds the"
                f" lease to {first.role} until {format_utc(first.holder.expires_at_ms)}{more}: pause the DAGs, let"
                " batches end, and call ./tiering relocate-store again"
            )

    def take_over(self, found: StoreMarker, *, author: str) -> StoreMarker:
        """Let this database own the store whose marker is `found`; see `StoreClaim.take_over`. What uses the other
        database is refused from then on."""
        return self._ownership.store_claim().take_over(found, author=author)
