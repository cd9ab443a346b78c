"""A store that changes its owner or its place: what a person is shown and asked, and what became of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from include.tiering.audit.finding import FindingKind
from include.tiering.audit.record_contract import FindingState, RecordedFinding
from include.tiering.remote_storage.store_marker import StoreMarker, StorePlace
from include.tiering.reports.audit import AuditRun, present_audit
from include.tiering.reports.presentation import Document, Presentation, count
from include.tiering.tasks.conclude_audit import AuditReport
from include.tiering.tasks.prove_place import PlaceProof

_REMEDY: Final = {
    FindingKind.ADOPTABLE: "adoptable: copied since, ./tiering adopt takes them in",
    FindingKind.DANGLING_REFERENCE: "dangling-reference: deleted since, they can be read no more",
}


@dataclass(frozen=True, slots=True)
class TakeOver:
    """`ours` is what this database says, `found` what the store says; `is_ours`: both agree already."""

    ours: StoreMarker
    found: StoreMarker
    is_ours: bool
    audit: AuditReport
    findings: Sequence[RecordedFinding]

    def number_of(self, kind: FindingKind) -> int:
        return sum(one.finding.kind is kind and one.state is FindingState.OPEN for one in self.findings)


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
        audit.tables,
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
    found = "; ".join(told) or "the audit found nothing that this database does not know"
    sides = f"the store is at generation {planned.found.generation}{by}; this database is at {planned.ours.generation}"
    if refusal is not None:
        return f"nothing was taken over: {refusal}. {sides}; {found}"
    if marker is None:
        return f"{sides}; {found}"
    return f"this database owns the store, generation {marker.generation}; {found}"


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
        "refusal": refusal,
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
