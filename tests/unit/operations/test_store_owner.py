"""What a person reads before a store changes its owner or its place, and what programs read of it afterwards."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from include.tiering.audit.conclude_audit import AuditReport
from include.tiering.audit.finding import AuditFinding, FindingKind
from include.tiering.audit.record import AuditRecord, AuditSource, AuditTally, FindingState, RecordedFinding
from include.tiering.configs.config_store import ALL_BROKERS, TopicRetention
from include.tiering.configs.report import DescribedConfig
from include.tiering.errors import ForeignStoreError, StateConflictError
from include.tiering.model.ownership import LeaseRole, RaisedBy, StoreMarker, StorePlace
from include.tiering.operations.store_owner import (
    DeletesBy,
    Relocation,
    StoreOwnerService,
    TakeOver,
    present_relocation,
    present_take_over,
    relocation_question,
    take_over_question,
)
from include.tiering.runs.contract import LeaseHolder, LiveLease
from include.tiering.segments.stored_copies import PlaceProof
from tests.doubles.segments import partition_of

OURS = StoreMarker("cluster", "store", 3)
FOUND = StoreMarker(
    "cluster", "store", 5, raised_by=RaisedBy("other-host", "sqlite:///other.sqlite", 1_700_000_000_000)
)
TAKEN = StoreMarker("cluster", "store", 6)
RAISED_BY = {"host": "other-host", "database": "sqlite:///other.sqlite", "at_ms": 1_700_000_000_000}
LIMIT = DescribedConfig(ALL_BROKERS, "tiering.delete.max.topic.share.ratio", "0.1", "default")
FLOOR = DescribedConfig(ALL_BROKERS, "tiering.delete.floor.bytes", "1024", "dynamic", "bytes")
DELETES_BY = DeletesBy(
    {"orders": TopicRetention(5, None), "audit": TopicRetention(None, 0)}, [LIMIT, FLOOR], {"web", "logs"}, 0
)


def finding(number: int, kind: FindingKind, state: FindingState = FindingState.OPEN) -> RecordedFinding:
    return RecordedFinding(number, AuditFinding(kind=kind, key=f"k{number}", message="m"), state, 1, 2)


def take_over(
    findings: Sequence[RecordedFinding] = (), *, objects: int = 9, is_ours: bool = False, **changes: Any
) -> TakeOver:
    record = AuditRecord("audit-1", AuditSource.LISTING, 1, 2, objects, 7)
    report = AuditReport(record, (), AuditTally(len(findings), 0, 0))
    return replace(TakeOver(OURS, FOUND, is_ours, report, findings, DELETES_BY), **changes)


def test_the_document_of_a_take_over_has_both_markers_and_by_what_is_deleted_from_then_on() -> None:
    document: Any = present_take_over(take_over(), TAKEN, None, nothing_published=True).document()
    assert document["audit"]["objects"] == 9
    assert {name: value for name, value in document.items() if name != "audit"} == {
        "ours": {"cluster_id": "cluster", "store_id": "store", "generation": 3, "raised_by": None},
        "found": {"cluster_id": "cluster", "store_id": "store", "generation": 5, "raised_by": RAISED_BY},
        "marker": {"cluster_id": "cluster", "store_id": "store", "generation": 6, "raised_by": None},
        "deletes_by": {
            "newest_event_ms": 0,
            "retentions": [
                {"topic": "audit", "retention_ms": None, "retention_bytes": 0},
                {"topic": "orders", "retention_ms": 5, "retention_bytes": None},
            ],
            "limits": [
                {"name": LIMIT.name, "value": "0.1", "unit": None, "source": "default"},
                {"name": FLOOR.name, "value": "1024", "unit": "bytes", "source": "dynamic"},
            ],
            "paused": ["logs", "web"],
        },
        "nothing_published": True,
        "refusal": None,
    }


@pytest.mark.parametrize(
    ("marker", "refusal", "nothing_published", "is_ok"),
    [(TAKEN, None, True, True), (TAKEN, None, False, True), (None, None, True, True), (None, "no", True, False)],
)
def test_nothing_published_is_recorded_only_by_a_take_over_that_took_place(
    marker: StoreMarker | None, refusal: str | None, nothing_published: bool, is_ok: bool
) -> None:
    shown = present_take_over(take_over(), marker, refusal, nothing_published=nothing_published)
    document: Any = shown.document()
    assert (document["nothing_published"], document["refusal"], shown.ok) == (
        nothing_published and marker is TAKEN,
        refusal,
        is_ok,
    )
    assert (document["marker"] is None) == (marker is None)


def test_the_table_has_retentions_then_limits_then_pauses() -> None:
    table = present_take_over(take_over(), TAKEN, None).tables()[-1]
    assert table.rows == (
        ("topic audit", "retention.bytes 0", "dynamic"),
        ("topic orders", "retention.ms 5", "dynamic"),
        (LIMIT.name, "0.1", "default"),
        (FLOOR.name, "1024 bytes", "dynamic"),
        ("pause", "paused: logs, web", ""),
    )
    both = replace(DELETES_BY, retentions={"a": TopicRetention(0, 7), "b": TopicRetention()})
    rows = present_take_over(take_over(deletes_by=both), TAKEN, None).tables()[-1].rows
    assert rows[:2] == (
        ("topic a", "retention.ms 0, retention.bytes 7", "dynamic"),
        ("topic b", "kept for ever", "dynamic"),
    )


def test_findings_that_are_open_are_counted_with_what_helps() -> None:
    adoptable = [finding(number, FindingKind.ADOPTABLE) for number in range(2)]
    dangling = [finding(2, FindingKind.DANGLING_REFERENCE)]
    closed = [finding(3, FindingKind.ADOPTABLE, FindingState.GONE)]
    asked = take_over_question(take_over([*adoptable, *dangling, *closed]))
    assert "2 adoptable: " in asked
    assert "1 dangling-reference: " in asked
    assert "no segment of this database is there" not in asked
    assert "the audit found no copy to adopt" not in asked
    assert "the audit found no copy to adopt and no missing object" in take_over_question(take_over(closed))


@pytest.mark.parametrize(
    ("objects", "kind", "lacks"),
    [
        (1, FindingKind.DANGLING_REFERENCE, True),
        (0, FindingKind.DANGLING_REFERENCE, True),
        (2, FindingKind.DANGLING_REFERENCE, False),
        (1, FindingKind.ADOPTABLE, False),
    ],
)
def test_a_place_that_has_nothing_but_the_marker_is_named(objects: int, kind: FindingKind, lacks: bool) -> None:
    planned = take_over([finding(1, kind)], objects=objects)
    assert planned.lacks_everything is lacks
    assert ("no segment of this database is there" in take_over_question(planned)) is lacks


def test_generations_of_both_sides_and_the_newest_decision_that_is_known_are_named() -> None:
    asked = take_over_question(take_over())
    assert "the store is at generation 5, raised by sqlite:///other.sqlite on other-host" in asked
    assert "this database is at 3" in asked
    assert "decisions after 1970-01-01 00:00:00 UTC" in asked
    unknown = replace(DELETES_BY, newest_event_ms=None)
    nobody = take_over_question(take_over(found=StoreMarker("cluster", "store", 5), deletes_by=unknown))
    assert "generation 5; this database is at 3" in nobody
    assert "this database has no event" in nobody
    assert present_take_over(take_over(), None, "not now").summary.startswith("nothing was taken over: not now. ")


@pytest.mark.parametrize(
    ("is_ours", "nothing_published", "waits"), [(False, False, True), (True, False, False), (False, True, False)]
)
def test_after_a_take_over_expiration_waits_for_an_ingestion_unless_it_need_not(
    is_ours: bool, nothing_published: bool, waits: bool
) -> None:
    shown = present_take_over(take_over(is_ours=is_ours), TAKEN, None, nothing_published=nothing_published)
    assert shown.summary.startswith("this database owns the store, generation 6; ")
    assert ("nothing expires before ./tiering ingest" in shown.summary) is waits


OLD, NEW = StorePlace("file:///old", "aiven", ""), StorePlace("s3://bucket", "aiven", "kafka/")
COMPLETE = PlaceProof(40, 3, 10, 0, ())


def test_the_document_of_a_move_has_both_places_and_what_was_checked() -> None:
    place = {"url": "s3://bucket", "layout": "aiven", "key_prefix": "kafka/"}
    moved = {
        "from": {"url": "file:///old", "layout": "aiven", "key_prefix": ""},
        "to": place,
        "segments": 40,
        "looked_at": 10,
        "wrong": 0,
        "missing": [],
        "marker": {"cluster_id": "cluster", "store_id": "store", "generation": 6, "raised_by": None},
        "refusal": None,
    }
    shown = present_relocation(Relocation(OLD, NEW, COMPLETE), TAKEN, None)
    assert (shown.document(), shown.tables(), shown.ok) == (moved, (), True)
    wrong = PlaceProof(40, 3, 10, 2, ("a", "b"))
    refused = present_relocation(Relocation(None, NEW, wrong), None, "no")
    expected = {**moved, "from": None, "wrong": 2, "missing": ["a", "b"], "marker": None, "refusal": "no"}
    assert (refused.document(), refused.ok) == (expected, False)


def test_the_numbers_of_a_move_are_read_before_and_after_it() -> None:
    planned = Relocation(OLD, NEW, COMPLETE)
    checked = "10 of 40 segments of 3 partitions"
    assert f"from {OLD} to {NEW}: {checked} were checked there" in relocation_question(planned)
    assert present_relocation(planned, TAKEN, None).summary == (
        f"the store is at {NEW}, generation 6; {checked} were checked"
    )
    assert present_relocation(planned, None, "no").summary == f"the place stays {OLD}: no"


class Ownership:
    """Of `StoreOwnership`, moves: asks `require_idle` as it does, and notes where to and by whom."""

    def __init__(self) -> None:
        self.moved: list[tuple[StorePlace, str]] = []

    def store_move(self) -> "Ownership":
        return self

    def run(self, place: StorePlace, *, author: str, require_idle: Callable[[], None]) -> StoreMarker:
        require_idle()
        self.moved.append((place, author))
        return TAKEN


def service(ownership: Ownership, *leases: LiveLease) -> StoreOwnerService:
    ports: Any = dict.fromkeys(
        (
            "settings",
            "unguarded",
            "place",
            "generations",
            "metadata",
            "deletions",
            "config_store",
            "configs",
            "audit",
            "audits",
        )
    )
    work: Any = SimpleNamespace(live_leases=lambda: leases)
    return StoreOwnerService(work=work, ownership=ownership, **ports)  # type: ignore[arg-type]


def lease(role: LeaseRole, number: int = 0) -> LiveLease:
    return LiveLease(partition_of("orders", number), role, LeaseHolder("run-1", f"run-1/{number}", 1, 0, 7))


def test_a_store_moves_when_all_checked_segments_are_there_and_nothing_copies_or_deletes() -> None:
    ownership = Ownership()
    others = [lease(role) for role in LeaseRole if role not in (LeaseRole.COPY, LeaseRole.EXPIRE)]
    assert others
    assert service(ownership, *others).relocate(Relocation(OLD, NEW, COMPLETE), author="ada") is TAKEN
    assert ownership.moved == [(NEW, "ada")]


def test_a_store_with_a_wrong_segment_does_not_move() -> None:
    ownership = Ownership()
    wrong = PlaceProof(40, 3, 10, 4, ("one", "two", "three", "four"))
    with pytest.raises(ForeignStoreError, match=r"4 of 10 checked segments .*: one; two; three\. Nothing was changed"):
        service(ownership).relocate(Relocation(OLD, NEW, wrong), author="ada")
    assert ownership.moved == []


@pytest.mark.parametrize("role", [LeaseRole.COPY, LeaseRole.EXPIRE])
def test_a_store_with_a_batch_that_copies_or_deletes_does_not_move(role: LeaseRole) -> None:
    ownership = Ownership()
    with pytest.raises(StateConflictError) as alone:
        service(ownership, lease(role, 1)).relocate(Relocation(OLD, NEW, COMPLETE), author="ada")
    assert "orders-1: batch run-1/1 of run run-1 holds the lease" in str(alone.value)
    assert "more" not in str(alone.value)
    with pytest.raises(StateConflictError, match=", and 2 more: "):
        service(ownership, *(lease(role, number) for number in range(3))).relocate(
            Relocation(OLD, NEW, COMPLETE), author="ada"
        )
    assert ownership.moved == []
