"""Take over the store from another database, or move it to another place; with the reports."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypedDict

from include.tiering.audit.conclude_audit import AuditReport
from include.tiering.audit.finding import FindingKind
from include.tiering.audit.record import AuditStore, FindingState, RecordedFinding
from include.tiering.audit.report import AuditDocument, AuditRun, audit_document, present_audit
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
from include.tiering.presentation import Presentation, Table, count
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
    FindingKind.ADOPTABLE: "adoptable: copies without metadata in this database; ./tiering adopt adds them",
    FindingKind.DANGLING_REFERENCE: (
        "dangling-reference: missing objects of segments in this database; these segments cannot be read any more"
    ),
}


@dataclass(frozen=True, slots=True)
class DeletesBy:
    """The retention, limits and pauses of a database; in a restored database they are those of the backup.

    Attributes:
        retentions: by topic, where it is limited.
        limits: the deletion limits in force.
        paused: names of paused topics, or `ALL_TOPICS`.
        newest_event_ms: time of the last event or lease; None without both. Later decisions are not in this database.
    """

    retentions: Mapping[str, TopicRetention]
    limits: Sequence[DescribedConfig]
    paused: Collection[str]
    newest_event_ms: int | None


@dataclass(frozen=True, slots=True)
class TakeOver:
    """What a take-over would do.

    `ours` is the marker in this database, `found` that in the store. `is_ours`: this database accepts `found`.
    """

    ours: StoreMarker
    found: StoreMarker
    is_ours: bool
    audit: AuditReport
    findings: Sequence[RecordedFinding]
    deletes_by: DeletesBy

    def number_of(self, kind: FindingKind) -> int:
        """Return the number of open findings of this kind."""
        return sum(finding.finding.kind is kind and finding.state is FindingState.OPEN for finding in self.findings)

    @property
    def lacks_everything(self) -> bool:
        """Whether objects of segments in this database are missing and the store has no object but the marker."""
        return self.audit.record.objects <= 1 and self.number_of(FindingKind.DANGLING_REFERENCE) > 0


@dataclass(frozen=True, slots=True)
class Relocation:
    """A move of the store from `stored` (None if no place is recorded) to `place`, which the settings name."""

    stored: StorePlace | None
    place: StorePlace
    proof: PlaceProof

    @property
    def objection(self) -> str:
        """Why the segments are not at the new place, with numbers."""
        proof = self.proof
        return (
            f"{proof.wrong} of {count(proof.checked, 'checked segment')} are not in {self.place} as copied: "
            f"{'; '.join(proof.missing[:3])}. Nothing was changed"
        )


class RaisedByDocument(TypedDict):
    """Who raised the generation of the store last."""

    host: str
    database: str
    at_ms: int


class MarkerDocument(TypedDict):
    """The marker of the store; `raised_by` is null in a marker that an earlier release wrote."""

    cluster_id: str
    store_id: str
    generation: int
    raised_by: RaisedByDocument | None


class TopicRetentionDocument(TypedDict):
    """The retention of a topic in this database."""

    topic: str
    retention_ms: int | None
    retention_bytes: int | None


class LimitDocument(TypedDict):
    """A deletion limit of this database, and where its value comes from."""

    name: str
    value: str
    unit: str | None
    source: str


class DeletesByDocument(TypedDict):
    """The retentions, limits and pauses by which this database will delete.

    `newest_event_ms` is the time of its newest event or lease, null without any: it knows of no later decision.
    """

    newest_event_ms: int | None
    retentions: list[TopicRetentionDocument]
    limits: list[LimitDocument]
    paused: list[str]


class TakeOverDocument(TypedDict):
    """A take-over of the store: markers before and (unless null) after it, and the differences to this database.

    `nothing_published`: this take-over recorded that no segment was published to brokers.
    """

    ours: MarkerDocument
    found: MarkerDocument
    marker: MarkerDocument | None
    audit: AuditDocument
    deletes_by: DeletesByDocument
    nothing_published: bool
    refusal: str | None


class PlaceDocument(TypedDict):
    """Where the objects of a store are."""

    url: str
    layout: str
    key_prefix: str


_RelocationEnds = TypedDict("_RelocationEnds", {"from": PlaceDocument | None, "to": PlaceDocument})


class RelocationDocument(_RelocationEnds):
    """A move of the store: of `segments`, `looked_at` were checked at the new place.

    `wrong` of these are not there as they were copied; `missing` says of the first few of them what is wrong.
    """

    segments: int
    looked_at: int
    wrong: int
    missing: list[str]
    marker: MarkerDocument | None
    refusal: str | None


def present_take_over(
    planned: TakeOver, marker: StoreMarker | None, refusal: str | None, *, nothing_published: bool = False
) -> Presentation:
    """Present a take-over. The result is not `ok` if the take-over was refused; findings are only shown."""
    run = AuditRun(planned.audit.record, planned.findings, planned.audit.tally)
    audit = present_audit(run)
    return Presentation(
        lambda: _take_over_document(
            planned, marker, refusal, audit_document(run), nothing_published=nothing_published and marker is not None
        ),
        lambda: (*audit.tables(), _deletes_by_table(planned.deletes_by)),
        _take_over_summary(planned, marker, refusal, nothing_published=nothing_published),
        ok=refusal is None,
    )


def take_over_question(planned: TakeOver) -> str:
    """Return the question before a take-over."""
    return (
        f"{_take_over_summary(planned, None, None)}. Let this database own the store? The other database is refused"
        " from then on"
    )


def present_relocation(planned: Relocation, marker: StoreMarker | None, refusal: str | None) -> Presentation:
    """Present a move of the store. The result is not `ok` if the move was refused."""
    return Presentation(
        lambda: _relocation_document(planned, marker, refusal),
        lambda: (),
        _relocation_summary(planned, marker, refusal),
        ok=refusal is None,
    )


def relocation_question(planned: Relocation) -> str:
    """Return the question before a move of the store."""
    return f"{_relocation_summary(planned, None, None)}. Use this place from now on?"


_UNREAD: Final = (
    "nothing expires before ./tiering ingest has read which segments brokers know, or --nothing-published is given"
)


def _take_over_summary(
    planned: TakeOver, marker: StoreMarker | None, refusal: str | None, *, nothing_published: bool = False
) -> str:
    by = "" if planned.found.raised_by is None else f", raised by {planned.found.raised_by}"
    remedies = [f"{number} {words}" for kind, words in _REMEDY.items() if (number := planned.number_of(kind))]
    if planned.lacks_everything:
        remedies.append(
            "no segment of this database is there: check that it is the right place and its disk is mounted"
        )
    found = "; ".join(remedies) or "the audit found no copy to adopt and no missing object"
    found = f"{found}; {_not_known(planned.deletes_by)}"
    sides = f"the store is at generation {planned.found.generation}{by}; this database is at {planned.ours.generation}"
    if refusal is not None:
        return f"nothing was taken over: {refusal}. {sides}; {found}"
    if marker is None:
        return f"{sides}; {found}"
    waits = "" if planned.is_ours or nothing_published else f"; {_UNREAD}"
    return f"this database owns the store, generation {marker.generation}; {found}{waits}"


def _not_known(deletes_by: DeletesBy) -> str:
    if deletes_by.newest_event_ms is None:
        return "this database has no event, so earlier decisions are not known here"
    at = format_utc(deletes_by.newest_event_ms)
    return f"decisions after {at}, such as a longer retention or a pause, are not known here"


def _deletes_by_table(deletes_by: DeletesBy) -> Table:
    retentions = tuple(
        (f"topic {topic}", _retention_words(retention), "dynamic")
        for topic, retention in sorted(deletes_by.retentions.items())
    )
    limits = tuple(
        (limit.name, f"{limit.value} {limit.unit or ''}".rstrip(), limit.source) for limit in deletes_by.limits
    )
    rows = (*retentions, *limits, ("pause", paused_words(deletes_by.paused), ""))
    return Table("retention, limits and pauses in this database", ("what", "value", "from"), rows)


def _retention_words(retention: TopicRetention) -> str:
    numbers = {RETENTION_MS: retention.retention_ms, RETENTION_BYTES: retention.retention_bytes}
    words = [f"{name} {number}" for name, number in numbers.items() if number is not None]
    return ", ".join(words) or "kept for ever"


def _relocation_summary(planned: Relocation, marker: StoreMarker | None, refusal: str | None) -> str:
    proof = planned.proof
    checked = f"{proof.checked} of {count(proof.segments, 'segment')} of {count(proof.partitions, 'partition')}"
    if refusal is not None:
        return f"the place stays {planned.stored}: {refusal}"
    if marker is None:
        return f"from {planned.stored} to {planned.place}: {checked} were checked there, and are complete"
    return f"the store is at {planned.place}, generation {marker.generation}; {checked} were checked"


def _take_over_document(
    planned: TakeOver,
    marker: StoreMarker | None,
    refusal: str | None,
    audit: AuditDocument,
    *,
    nothing_published: bool,
) -> TakeOverDocument:
    return {
        "ours": _marker(planned.ours),
        "found": _marker(planned.found),
        "marker": None if marker is None else _marker(marker),
        "audit": audit,
        "deletes_by": _deletes_by_document(planned.deletes_by),
        "nothing_published": nothing_published,
        "refusal": refusal,
    }


def _deletes_by_document(deletes_by: DeletesBy) -> DeletesByDocument:
    return {
        "newest_event_ms": deletes_by.newest_event_ms,
        "retentions": [
            {"topic": topic, "retention_ms": retention.retention_ms, "retention_bytes": retention.retention_bytes}
            for topic, retention in sorted(deletes_by.retentions.items())
        ],
        "limits": [
            {"name": limit.name, "value": limit.value, "unit": limit.unit, "source": limit.source}
            for limit in deletes_by.limits
        ],
        "paused": sorted(deletes_by.paused),
    }


def _relocation_document(planned: Relocation, marker: StoreMarker | None, refusal: str | None) -> RelocationDocument:
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


def _place(place: StorePlace) -> PlaceDocument:
    return {"url": place.url, "layout": place.layout, "key_prefix": place.key_prefix}


def _marker(marker: StoreMarker) -> MarkerDocument:
    by = marker.raised_by
    return {
        "cluster_id": marker.cluster_id,
        "store_id": marker.store_id,
        "generation": marker.generation,
        "raised_by": None if by is None else {"host": by.host, "database": by.database, "at_ms": by.at_ms},
    }


class StoreOwnerService:
    """Change the owner or the place of a store in two steps: plan, and apply what a person has agreed to."""

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
        audits: AuditStore,
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
        self._audits = audits
        self._ownership = ownership

    def plan_take_over(self, run_id: str, *, on_listed: Callable[[int], None] = ignore) -> TakeOver:
        """Compare both markers and audit the store against this database. Nothing in the store is changed.

        In the database, the audit is recorded. The audit may also ingest the brokers' records, set or clear guards of
        the audit, and delete audits, findings and removals that ended longer ago than tombstones are kept.

        Raises:
            ForeignStoreError: the store has no marker, or that of another store.
        """
        accepted, found = self._generations.accepted(), self._unguarded().read_marker()
        if found is None or not found.is_of_the_same_store(accepted.current):
            raise ForeignStoreError(accepted.objection(found))
        deletes_by = self.deletes_by()
        report = self._audit.run(run_id, of_our_store=False, on_listed=on_listed)
        findings = self._audit.findings(run_id)
        return TakeOver(accepted.current, found, accepted.accepts(found), report, findings, deletes_by)

    def deletes_by(self) -> DeletesBy:
        """Return the present retention, limits and pauses of this database."""
        values = self._config_store.snapshot().values
        names = {deletion_limit.name for deletion_limit in deletion_limits()}
        return DeletesBy(
            {
                topic: topic_retention
                for topic, topic_retention in self._configs.topic_retentions().items()
                if topic_retention != FOR_EVER
            },
            [config for config in describe(ALL_BROKERS, values, self._settings) if config.name in names],
            self._work.paused_topics(),
            self._deletions.newest_event_ms(self._configs.settings().clock.ignored_until_ms),
        )

    def plan_relocation(self) -> Relocation:
        """Check segments at the place of the settings, for a move from the recorded place. Nothing is changed."""
        proof = prove_place(self._unguarded(), self._metadata)
        return Relocation(self._generations.accepted().current.place, self._place, proof)

    def relocate(self, relocation: Relocation, *, author: str) -> StoreMarker:
        """Record the place of the settings as that of the store, if all checked segments are there.

        Raises:
            ForeignStoreError: a checked segment is not at the new place as it was copied; or as `StoreMove.run`.
            StateConflictError: a batch copies or deletes now; the message names it.
        """
        if not relocation.proof.holds:
            raise ForeignStoreError(relocation.objection)
        return self._ownership.store_move().run(relocation.place, author=author, require_idle=self._require_idle)

    def _require_idle(self) -> None:
        """Raise StateConflictError while a batch copies or deletes: such a batch would continue at the old place."""
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

    def take_over(self, found: StoreMarker, *, author: str, nothing_published: bool = False) -> StoreMarker:
        """Make this database the owner of the store whose marker is `found`; see `StoreClaim.take_over`.

        Processes that use the other database are refused from then on. Nothing expires in this database before an
        ingestion has read all records of brokers, because journals of publications may be lost; with
        `nothing_published` a person declares that there was no publication.
        """
        marker = self._ownership.store_claim().take_over(found, author=author)
        if nothing_published:
            self._audits.declare_nothing_published(author=author)
        return marker
