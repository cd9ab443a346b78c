"""Which database owns the store: take it over from another one, or let keys lie in another place.

What a person is shown and asked before, and what became of it.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from include.tiering.audit.conclude_audit import AuditReport
from include.tiering.audit.finding import FindingKind
from include.tiering.audit.record import FindingState, RecordedFinding
from include.tiering.audit.report import AuditRun, present_audit
from include.tiering.audit.service import AuditService
from include.tiering.configs.config_store import (
    ALL_BROKERS,
    FOR_EVER,
    RETENTION_BYTES,
    RETENTION_MS,
    ConfigStore,
    EffectiveConfigs,
    TopicRetention,
)
from include.tiering.configs.report import DescribedConfig, describe
from include.tiering.configs.rules import deletion_limits
from include.tiering.errors import ForeignStoreError, StateConflictError
from include.tiering.model.ownership import LeaseRole, StoreMarker, StorePlace
from include.tiering.operations.status import paused_words
from include.tiering.presentation import Document, Presentation, Table, count
from include.tiering.remote_storage.claim_store import StoreGenerations
from include.tiering.remote_storage.contract import RemoteStorage
from include.tiering.remote_storage.store_ownership import StoreOwnership
from include.tiering.runs.contract import WorkStore
from include.tiering.runs.deletion_run import DeletionStore
from include.tiering.segments.contract import RemoteLogMetadata
from include.tiering.segments.stored_copies import PlaceProof, prove_place
from include.tiering.settings import TieringSettings
from include.tiering.telemetry.metrics import ignore
from include.tiering.units import format_utc

_REMEDY: Final = {
    FindingKind.ADOPTABLE: "adoptable: copied since, ./tiering adopt takes them in",
    FindingKind.DANGLING_REFERENCE: "dangling-reference: deleted since, they can be read no more",
}


@dataclass(frozen=True, slots=True)
class DeletesBy:
    """What a database deletes by, as it is stored in it: in one that was restored, that of the backup.

    Attributes:
        retentions: by topic, where a dynamic config sets one.
        limits: those of deletions, as they are in force.
        newest_event_ms: when something was recorded last; None: never. What was decided later is not known there.
    """

    retentions: Mapping[str, TopicRetention]
    limits: Sequence[DescribedConfig]
    paused: Collection[str]
    newest_event_ms: int | None


@dataclass(frozen=True, slots=True)
class TakeOver:
    """`ours` is what this database says, `found` what the store says; `is_ours`: both agree already."""

    ours: StoreMarker
    found: StoreMarker
    is_ours: bool
    audit: AuditReport
    findings: Sequence[RecordedFinding]
    deletes_by: DeletesBy

    def number_of(self, kind: FindingKind) -> int:
        return sum(finding.finding.kind is kind and finding.state is FindingState.OPEN for finding in self.findings)

    @property
    def lacks_everything(self) -> bool:
        """Objects are missing of segments that this database knows, and besides the marker none is there."""
        return self.audit.record.objects <= 1 and self.number_of(FindingKind.DANGLING_REFERENCE) > 0


@dataclass(frozen=True, slots=True)
class Relocation:
    """From `stored` (None: nobody recorded it) to `place`, which the settings name."""

    stored: StorePlace | None
    place: StorePlace
    proof: PlaceProof

    @property
    def objection(self) -> str:
        """Why keys do not lie there, with numbers."""
        proof = self.proof
        return (
            f"{proof.wrong} of {count(proof.checked, 'segment')} that were looked at are not in {self.place}, such as"
            f" {'; '.join(proof.missing[:3])}. Nothing was changed"
        )


def present_take_over(planned: TakeOver, marker: StoreMarker | None, refusal: str | None) -> Presentation:
    """Not `ok`: refused. What the audit found does not make it fail, it is shown."""
    audit = present_audit(AuditRun(planned.audit.record, planned.findings, planned.audit.tally))
    return Presentation(
        lambda: _take_over_document(planned, marker, refusal, audit.document()),
        lambda: (*audit.tables(), _deletes_by_table(planned.deletes_by)),
        _take_over_summary(planned, marker, refusal),
        ok=refusal is None,
    )


def take_over_question(planned: TakeOver) -> str:
    """What a person is to agree to."""
    return (
        f"{_take_over_summary(planned, None, None)}. Let this database own the store? The other one is refused from"
        " then on"
    )


def present_relocation(planned: Relocation, marker: StoreMarker | None, refusal: str | None) -> Presentation:
    """Not `ok`: refused."""
    return Presentation(
        lambda: _relocation_document(planned, marker, refusal),
        lambda: (),
        _relocation_summary(planned, marker, refusal),
        ok=refusal is None,
    )


def relocation_question(planned: Relocation) -> str:
    """What a person is to agree to."""
    return f"{_relocation_summary(planned, None, None)}. Let the keys of this store lie there from now on?"


def _take_over_summary(planned: TakeOver, marker: StoreMarker | None, refusal: str | None) -> str:
    by = "" if planned.found.raised_by is None else f", raised by {planned.found.raised_by}"
    remedies = [f"{number} {words}" for kind, words in _REMEDY.items() if (number := planned.number_of(kind))]
    if planned.lacks_everything:
        remedies.append("nothing that this database knows is there: is it the right place, and is its disk mounted?")
    found = "; ".join(remedies) or "the audit found nothing that this database does not know"
    found = f"{found}; {_not_known(planned.deletes_by)}"
    sides = f"the store is at generation {planned.found.generation}{by}; this database is at {planned.ours.generation}"
    if refusal is not None:
        return f"nothing was taken over: {refusal}. {sides}; {found}"
    if marker is None:
        return f"{sides}; {found}"
    return f"this database owns the store, generation {marker.generation}; {found}"


def _not_known(deletes_by: DeletesBy) -> str:
    if deletes_by.newest_event_ms is None:
        return "this database has no event: what was ever decided is not known here"
    at = format_utc(deletes_by.newest_event_ms)
    return f"what was decided after {at}, such as a longer retention or a pause, is not known here"


def _deletes_by_table(deletes_by: DeletesBy) -> Table:
    retentions = tuple(
        (f"topic {topic}", _retention_words(retention), "dynamic")
        for topic, retention in sorted(deletes_by.retentions.items())
    )
    limits = tuple(
        (limit.name, f"{limit.value} {limit.unit or ''}".rstrip(), limit.source) for limit in deletes_by.limits
    )
    rows = (*retentions, *limits, ("pause", paused_words(deletes_by.paused), ""))
    return Table("this database would delete by", ("what", "value", "from"), rows)


def _retention_words(retention: TopicRetention) -> str:
    numbers = {RETENTION_MS: retention.retention_ms, RETENTION_BYTES: retention.retention_bytes}
    words = [f"{name} {number}" for name, number in numbers.items() if number is not None]
    return ", ".join(words) or "kept for ever"


def _relocation_summary(planned: Relocation, marker: StoreMarker | None, refusal: str | None) -> str:
    proof = planned.proof
    looked = f"{proof.checked} of {count(proof.segments, 'segment')} of {count(proof.partitions, 'partition')}"
    if refusal is not None:
        return f"the place stays {planned.stored}: {refusal}"
    if marker is None:
        return f"from {planned.stored} to {planned.place}: {looked} were looked at there, and are right"
    return f"the keys of this store lie in {planned.place}, generation {marker.generation}; {looked} were looked at"


def _take_over_document(
    planned: TakeOver, marker: StoreMarker | None, refusal: str | None, audit: Document
) -> Document:
    return {
        "ours": _marker(planned.ours),
        "found": _marker(planned.found),
        "marker": None if marker is None else _marker(marker),
        "audit": audit,
        "deletes_by": _deletes_by_document(planned.deletes_by),
        "refusal": refusal,
    }


def _deletes_by_document(deletes_by: DeletesBy) -> Document:
    return {
        "newest_event_ms": deletes_by.newest_event_ms,
        "retentions": [
            {"topic": topic, "retention_ms": one.retention_ms, "retention_bytes": one.retention_bytes}
            for topic, one in sorted(deletes_by.retentions.items())
        ],
        "limits": [
            {"name": limit.name, "value": limit.value, "unit": limit.unit, "source": limit.source}
            for limit in deletes_by.limits
        ],
        "paused": sorted(deletes_by.paused),
    }


def _relocation_document(planned: Relocation, marker: StoreMarker | None, refusal: str | None) -> Document:
    proof = planned.proof
    return {
        "from": None if planned.stored is None else _place(planned.stored),
        "to": _place(planned.place),
        "segments": proof.segments,
        "looked_at": proof.checked,
        "wrong": proof.wrong,
        "missing": list(proof.missing),
        "marker": None if marker is None else _marker(marker),
        "refusal": refusal,
    }


def _place(place: StorePlace) -> Document:
    return {"url": place.url, "layout": place.layout, "key_prefix": place.key_prefix}


def _marker(marker: StoreMarker) -> Document:
    by = marker.raised_by
    return {
        "cluster_id": marker.cluster_id,
        "store_id": marker.store_id,
        "generation": marker.generation,
        "raised_by": None if by is None else {"host": by.host, "database": by.database, "at_ms": by.at_ms},
    }


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
        values, names = (
            self._config_store.snapshot().values,
            {deletion_limit.name for deletion_limit in deletion_limits()},
        )
        return DeletesBy(
            {
                topic: topic_retention
                for topic, topic_retention in self._configs.topic_retentions().items()
                if topic_retention != FOR_EVER
            },
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
        busy = [
            live_lease
            for live_lease in self._work.live_leases()
            if live_lease.role in (LeaseRole.COPY, LeaseRole.EXPIRE)
        ]
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
        database is refused from then on.
        """
        return self._ownership.store_claim().take_over(found, author=author)
