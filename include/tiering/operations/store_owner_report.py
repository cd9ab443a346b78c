"""A store that changes its owner or its place: what a person is shown and asked, and what became of it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from include.tiering.audit.conclude_audit import AuditReport
from include.tiering.audit.finding import FindingKind
from include.tiering.audit.record import FindingState, RecordedFinding
from include.tiering.audit.report import AuditRun, present_audit
from include.tiering.configs.config_store import RETENTION_BYTES, RETENTION_MS, TopicRetention
from include.tiering.configs.report import DescribedConfig
from include.tiering.model.ownership import StoreMarker, StorePlace
from include.tiering.operations.status_report import paused_words
from include.tiering.presentation import Document, Presentation, Table, count
from include.tiering.segments.stored_copies import PlaceProof
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
        return sum(one.finding.kind is kind and one.state is FindingState.OPEN for one in self.findings)

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
            f"{proof.wrong} of {count(proof.looked_at, 'segment')} that were looked at are not in {self.place}, such as"
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
    told = [f"{number} {words}" for kind, words in _REMEDY.items() if (number := planned.number_of(kind))]
    if planned.lacks_everything:
        told.append("nothing that this database knows is there: is it the right place, and is its disk mounted?")
    found = "; ".join(told) or "the audit found nothing that this database does not know"
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
    limits = tuple((one.name, f"{one.value} {one.unit or ''}".rstrip(), one.source) for one in deletes_by.limits)
    rows = (*retentions, *limits, ("pause", paused_words(deletes_by.paused), ""))
    return Table("this database would delete by", ("what", "value", "from"), rows)


def _retention_words(retention: TopicRetention) -> str:
    numbers = {RETENTION_MS: retention.retention_ms, RETENTION_BYTES: retention.retention_bytes}
    words = [f"{name} {number}" for name, number in numbers.items() if number is not None]
    return ", ".join(words) or "kept for ever"


def _relocation_summary(planned: Relocation, marker: StoreMarker | None, refusal: str | None) -> str:
    proof = planned.proof
    looked = f"{proof.looked_at} of {count(proof.segments, 'segment')} of {count(proof.partitions, 'partition')}"
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
            {"name": one.name, "value": one.value, "unit": one.unit, "source": one.source} for one in deletes_by.limits
        ],
        "paused": sorted(deletes_by.paused),
    }


def _relocation_document(planned: Relocation, marker: StoreMarker | None, refusal: str | None) -> Document:
    proof = planned.proof
    return {
        "from": None if planned.stored is None else _place(planned.stored),
        "to": _place(planned.place),
        "segments": proof.segments,
        "looked_at": proof.looked_at,
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
