"""What of an audit's findings goes: all or nothing of an id, nothing young, complete, or not ours."""

from dataclasses import replace
from typing import Any

import pytest

from include.tiering.audit.finding import AuditFinding, FindingKind
from include.tiering.audit.plan_removals import RemovalPlan, Spared, plan_removals
from include.tiering.audit.record import Guard, Refusal
from include.tiering.model.segments import Uuid
from tests.doubles.segments import partition_of, uuid

NOW_MS = 1_000_000
MIN_AGE_MS = 1_000
OLD_MS = NOW_MS - MIN_AGE_MS
ORDERS = partition_of("orders")
KINDS = {kind.value: kind for kind in FindingKind}


def found(kind: str = "orphan", number: int = 1, suffix: str = "log", **changes: Any) -> AuditFinding:
    finding = AuditFinding(
        kind=KINDS[kind],
        key=f"orders/{number}.{suffix}",
        message="because",
        size_bytes=10,
        segment_id=uuid(number),
        topic_id=ORDERS.topic_id,
        topic="orders",
        partition=0,
        last_modified_ms=OLD_MS,
    )
    return replace(finding, **changes)


def plan(
    *findings: AuditFinding,
    refusals: tuple[Refusal, ...] = (),
    with_versions: bool = False,
    known: frozenset[Uuid] = frozenset(),
    accepted: tuple[AuditFinding, ...] = (),
) -> RemovalPlan:
    return plan_removals(
        "run",
        "audit",
        findings,
        refusals=refusals,
        min_age_ms=MIN_AGE_MS,
        now_ms=NOW_MS,
        with_versions=with_versions,
        is_known=lambda segment_id: segment_id.id in known,
        accepted={one.identity for one in accepted},
    )


def keys(made: RemovalPlan) -> list[str]:
    return [removal.key for removal in made.removals]


def test_orphans_and_open_uploads() -> None:
    upload = found("open-multipart-upload", 2, upload_id="u")
    made = plan(upload, found(suffix="log"), found(suffix="indexes"))
    assert keys(made) == ["orders/1.indexes", "orders/1.log", "orders/2.log"]
    assert made.removals[2].token == "u"
    assert made.size_bytes == 30
    assert [removal.finding_identity for removal in made.removals] == [
        found(suffix="indexes").identity,
        found(suffix="log").identity,
        upload.identity,
    ]


@pytest.mark.parametrize(
    "kind",
    [
        "adoptable",
        "abandoned-copy",
        "dangling-reference",
        "size-mismatch",
        "duplicate",
        "wrong-layout",
        "foreign-object",
        "old-version",
        "delete-marker",
    ],
)
def test_nothing_else(kind: str) -> None:
    assert plan(found(kind)).removals == ()


def test_the_youngest_object_decides_for_all_of_its_id() -> None:
    made = plan(found(), found(suffix="indexes", last_modified_ms=OLD_MS + 1), found(number=2))
    assert (keys(made), made.spared) == (["orders/2.log"], {Spared.YOUNG: 2})


def test_an_unknown_age_is_no_age() -> None:
    made = plan(found(), found(suffix="indexes", last_modified_ms=None))
    assert (made.removals, made.spared) == ((), {Spared.AGE_UNKNOWN: 2})


@pytest.mark.parametrize("kind", ["adoptable", "duplicate"])
def test_nothing_beside_a_complete_copy(kind: str) -> None:
    upload = found("open-multipart-upload", upload_id="u")
    made = plan(upload, found("old-version", version_id="v"), found(kind, suffix="rsm-manifest"), with_versions=True)
    assert (made.removals, made.spared) == ((), {Spared.COMPLETE: 2})


def test_an_upload_or_version_of_a_known_segment_stays() -> None:
    upload = found("open-multipart-upload", 1, upload_id="u")
    version = found("old-version", 2, version_id="v")
    made = plan(upload, version, found(number=3), with_versions=True, known=frozenset({uuid(1), uuid(2)}))
    assert (keys(made), made.spared) == (["orders/3.log"], {Spared.KNOWN: 2})


def test_what_names_no_segment_is_not_ours() -> None:
    made = plan(
        found("open-multipart-upload", segment_id=None, upload_id="u"), found("foreign-object", segment_id=None)
    )
    assert (made.removals, made.spared) == ((), {Spared.NO_SEGMENT: 1})


def test_versions_by_name_alone_and_markers_last() -> None:
    findings = [
        found("delete-marker", suffix="indexes", version_id="m"),
        found("old-version", suffix="indexes", version_id="v2"),
        found("old-version", suffix="indexes", version_id="v1"),
        found(version_id="current"),
    ]
    assert keys(plan(*findings)) == ["orders/1.log"]
    made = plan(*findings, with_versions=True)
    assert [removal.token for removal in made.removals] == ["current", "v1", "v2", "m"]
    assert {removal.finding_identity for removal in made.removals} == {one.identity for one in findings}


def test_nothing_while_a_guard_objects() -> None:
    refusal = Refusal(Guard.OLDER_DATABASE, "because")
    made = plan(found(), refusals=(refusal,))
    assert (made.removals, made.refusals) == ((), (refusal,))


def test_the_same_findings_in_another_order_are_the_same_plan() -> None:
    findings = [found(number=number, suffix=suffix) for number in (3, 1, 2) for suffix in ("log", "indexes")]
    assert plan(*findings).removals == plan(*reversed(findings)).removals
    assert plan(*findings).plan_hash != plan(*findings[1:]).plan_hash


def test_what_somebody_decided_to_leave_stays_with_all_of_its_segment() -> None:
    left = found(suffix="log")
    made = plan(left, found(suffix="indexes"), found(number=2), accepted=(left,))
    assert (keys(made), made.spared) == (["orders/2.log"], {Spared.ACCEPTED: 2})
