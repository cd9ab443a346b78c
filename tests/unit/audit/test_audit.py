"""Audits: findings, guards, names of keys, and plans of removals."""

from dataclasses import replace
from typing import Any

import pytest

from include.tiering.audit.finding import AuditFinding, FindingKind, PassedOver
from include.tiering.audit.plan_removals import (
    PlannedRemoval,
    RemovalItem,
    RemovalOutcome,
    RemovalPlan,
    Spared,
    plan_removals,
)
from include.tiering.audit.record import (
    ActiveGuard,
    AuditEvidence,
    AuditRecord,
    AuditSource,
    AuditTally,
    FindingState,
    Guard,
    Memory,
    RecordedFinding,
    Refusal,
    UnknownCopy,
    known_before_restore,
    refusals,
)
from include.tiering.audit.report import AuditRun, RemovalRun, present_accepted, present_audit, removal_question
from include.tiering.audit.rules import is_marker_or_probe, named_segment_id
from include.tiering.model.segments import RemoteLogSegmentId, Uuid
from include.tiering.presentation import Table, as_text
from include.tiering.runs.deletion_limits import DeletionLimitReport, TopicAction
from tests.doubles.segments import partition_of, uuid

# Audits: findings, guards and names of keys.

# What is said of an audit: when a person is needed, and what became of a removal.

ORDERS = partition_of("orders")
RECORD = AuditRecord("one", AuditSource.LISTING, 5, 5, 33, 10, (), {}, 1)
ORPHAN = AuditFinding(
    kind=FindingKind.ORPHAN,
    key="orders/a.log",
    message="no metadata",
    size_bytes=2048,
    segment_id=uuid(1),
    topic_id=ORDERS.topic_id,
    topic="orders",
    partition=0,
)


def recorded(kind: FindingKind = FindingKind.ORPHAN, state: FindingState = FindingState.OPEN) -> RecordedFinding:
    return RecordedFinding(7, replace(ORPHAN, kind=kind), state, 1, 5)


def removal(
    outcome: RemovalOutcome = RemovalOutcome.PLANNED, refusal: str | None = None, removals: int = 2
) -> RemovalRun:
    segment_id = RemoteLogSegmentId(ORDERS, uuid(1))
    planned = tuple(
        PlannedRemoval(segment_id, FindingKind.ORPHAN, f"orders/{number}", None, 1024, 1) for number in range(removals)
    )
    plan = RemovalPlan("remove", "one", planned, {Spared.YOUNG: 3})
    action = TopicAction(ORDERS.topic_id, "orders", 2048, 0, 4096)
    limit_report = DeletionLimitReport("remove", plan.plan_hash, (action,), ("always",))
    return RemovalRun(plan, limit_report, tuple(RemovalItem(one, outcome, "why") for one in planned), refusal)


@pytest.mark.parametrize("kind", FindingKind)
def test_who_is_needed(kind: FindingKind) -> None:
    needs_no_action = kind in (FindingKind.OLD_VERSION, FindingKind.DELETE_MARKER)
    assert present_audit(AuditRun(RECORD, [recorded(kind)])).ok is needs_no_action
    for state in (FindingState.ACCEPTED, FindingState.ACTED, FindingState.GONE):
        assert present_audit(AuditRun(RECORD, [recorded(kind, state)])).ok


def test_the_summary_says_what_was_not_classified_and_what_can_be_adopted() -> None:
    record = replace(RECORD, passed_over={PassedOver.YOUNG: 3})
    summary = present_audit(AuditRun(record, [recorded(FindingKind.ADOPTABLE)])).summary
    assert summary == (
        "33 objects compared with 10 segments: adoptable 1; not classified: young 3;"
        " 1 complete copy without metadata: ./tiering adopt --all --dry-run shows which can be adopted,"
        " and why others cannot"
    )


@pytest.mark.parametrize(
    ("run", "ok", "text"),
    [
        (removal(refusal="it needs --approve"), False, "nothing was removed: it needs --approve"),
        (removal(removals=0), True, "there is nothing to remove"),
        (
            removal(RemovalOutcome.REMOVED),
            True,
            "of 2 objects (2.0 KiB) removed 2, 0 were gone, 0 kept, 0 failed, 0 still planned",
        ),
        (removal(RemovalOutcome.KEPT), True, "removed 0, 0 were gone, 2 kept"),
        (removal(RemovalOutcome.FAILED), False, "2 failed"),
    ],
)
def test_what_became_of_a_removal(run: RemovalRun, ok: bool, text: str) -> None:
    presentation = present_audit(AuditRun(RECORD, [], removal=run))
    assert text in presentation.summary
    assert presentation.ok is ok
    assert text in as_text(presentation)


def test_the_tables_of_a_removal_are_its_plan_the_question_and_what_stays() -> None:
    run = removal(RemovalOutcome.KEPT)
    assert present_audit(AuditRun(RECORD, [], removal=run)).tables() == (
        Table(
            f"to remove, plan {run.plan.plan_hash}",
            ("topic", "planned>", "share with last 24 h>", "last 24 h>"),
            (("orders", "2.0 KiB", "50.0%", "0 B"),),
        ),
        Table("needs an approval", ("because",), (("always",),)),
        Table("not planned", ("because", "findings>"), ((str(Spared.YOUNG), "3"),)),
        Table("not removed", ("outcome", "key", "why"), (("kept", "orders/0", "why"), ("kept", "orders/1", "why"))),
    )
    assert present_audit(AuditRun(RECORD, [])).tables() == ()


def test_the_document_has_the_members_that_others_read() -> None:
    record = replace(RECORD, refusals=(Refusal(Guard.OLDER_DATABASE, "because"),))
    document = present_audit(AuditRun(record, [recorded()], AuditTally(1, 1, 0), removal())).document()
    assert (document["objects"], document["rows"], document["new"]) == (33, 10, 1)
    (finding,) = document["findings"]
    assert {name: finding[name] for name in ("kind", "key", "segment_id", "bytes", "message", "topic_id")} == {
        "kind": "orphan",
        "key": "orders/a.log",
        "segment_id": str(uuid(1)),
        "bytes": 2048,
        "message": "no metadata",
        "topic_id": str(ORDERS.topic_id),
    }
    assert document["refusals"] == [{"guard": "older-database", "message": "because"}]
    assert document["removal"]["needs_approval"]
    assert [one["outcome"] for one in document["removal"]["removals"]] == ["planned", "planned"]


def test_the_question_names_the_plan_its_topics_and_what_happens() -> None:
    run = removal()
    question = removal_question(run.plan, run.limit_report)
    assert question.subject.startswith("Remove 2 objects (2.0 KiB) without metadata?")
    for text in (run.plan.plan_hash, "`orders`", "50.0%", "orphan 2", "`orders/0`", "1 segment id", "* always"):
        assert text in question.body


def test_accepted_findings_are_listed() -> None:
    presentation = present_accepted([recorded(state=FindingState.ACCEPTED)])
    assert (presentation.ok, "1 finding accepted" in presentation.summary) == (True, True)
    assert [one["finding_id"] for one in presentation.document()["accepted"]] == [7]


# Each guard objects to what it is for, and to nothing else.

SOUND = AuditEvidence(
    objection=None,
    segment_objects=9,
    memory=Memory(3, 1_000),
    listing_ended_ms=50,
    rows_began_ms=50,
)


def guards(**changes: Any) -> list[Guard]:
    return [refusal.guard for refusal in refusals(replace(SOUND, **changes))]


def test_none_objects_to_a_sound_store() -> None:
    assert guards() == []
    assert guards(unknown_copies=(UnknownCopy("a", 999), UnknownCopy("b", None))) == []


def test_a_store_that_is_not_this_databases() -> None:
    assert guards(objection="the store belongs to another database") == [Guard.FOREIGN_STORE]


def test_a_clock_that_others_contradict() -> None:
    assert guards(clock_contradiction="the database's clock says 2038, this worker's says 2026") == [
        Guard.CLOCK_DISAGREES
    ]


def test_an_empty_database() -> None:
    assert guards(memory=Memory(0, None)) == [Guard.EMPTY_DATABASE]
    assert guards(memory=Memory(0, None), segment_objects=0) == []


@pytest.mark.parametrize(("began_ms", "objects"), [(999, False), (1_000, True), (1_001, True)])
def test_a_copy_that_began_when_the_database_remembers_nothing(began_ms: int, objects: bool) -> None:
    copies = (UnknownCopy("old", 1), UnknownCopy("key", began_ms), UnknownCopy("silent", None))
    found = refusals(replace(SOUND, unknown_copies=copies))
    assert [one.guard for one in found] == [Guard.OLDER_DATABASE] * objects
    assert all("key" in one.sentence and "restored from a backup?" in one.sentence for one in found)


def test_rows_before_the_listing() -> None:
    assert guards(rows_began_ms=49) == [Guard.ROWS_BEFORE_LISTING]
    assert guards(rows_began_ms=51) == []


def test_a_listing_that_lacks_something() -> None:
    found = refusals(replace(SOUND, unlisted=("hostile\x1b[31m", "other")))
    assert [one.guard for one in found] == [Guard.INCOMPLETE_LISTING]
    assert found[0].sentence.isprintable()


def test_several_object_at_once() -> None:
    assert guards(objection="another store", memory=Memory(0, None), rows_began_ms=1, unlisted=("a",)) == [
        Guard.FOREIGN_STORE,
        Guard.EMPTY_DATABASE,
        Guard.ROWS_BEFORE_LISTING,
        Guard.INCOMPLETE_LISTING,
    ]


def test_what_was_remembered_when_the_database_was_set_back_counts_until_that_is_cleared() -> None:
    active = [ActiveGuard(Guard.OLDER_DATABASE, "because", 5, memory_ms) for memory_ms in (None, 700, 800)]
    assert known_before_restore(Memory(3, 1_000), []) == Memory(3, 1_000)
    assert known_before_restore(Memory(3, 1_000), active[:1]) == Memory(3, 1_000)
    assert known_before_restore(Memory(3, 1_000), active) == Memory(3, 700)
    assert known_before_restore(Memory(0, None), active) == Memory(0, None)


# What a key says before any layout is asked.

SEGMENT_ID = "__79_Pv6-fj39vX08_Lx8A"
FILE = f"00000000000000000042-{SEGMENT_ID}"


@pytest.mark.parametrize(
    "key",
    [
        f"orders-AQIDBAUGBwgJCgsMDQ4PEA/3/{FILE}.log",
        f"{FILE}.rsm-manifest",
        f"/{FILE}.leader_epoch_checkpoint",
        f"any\nthing/../{FILE}.timeindex",
    ],
)
def test_a_segment_id_stands_in_the_last_part_under_any_prefix(key: str) -> None:
    assert named_segment_id(key) == SEGMENT_ID


@pytest.mark.parametrize(
    "key",
    [
        "",
        FILE,
        f"{FILE}.log/",
        f"{FILE}.log\n",
        f"{FILE}.log.gz",
        f"x{FILE}.log",
        f"0{FILE}.log",
        f"{FILE}x.log",
        f"{FILE.replace('_', '~')}.log",
        "orders/00000000000000000042.log",
    ],
)
def test_other_keys_name_none(key: str) -> None:
    assert named_segment_id(key) is None


def test_our_own_objects_are_the_marker_and_probes() -> None:
    assert is_marker_or_probe("_tiering-store.json")
    assert is_marker_or_probe("_tiering-probe-0123456789abcdef")
    for other in ("_tiering-store.json.bak", "a/_tiering-store.json", "_tiering-probe-x", "_tiering-other"):
        assert not is_marker_or_probe(other)


# What of an audit's findings goes: all or nothing of an id, nothing young, complete, or not ours.

NOW_MS = 1_000_000
MIN_AGE_MS = 1_000
OLD_MS = NOW_MS - MIN_AGE_MS
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
    """Only findings of the kinds that are removed count as spared, however many others there are."""
    uploads = [found("open-multipart-upload", segment_id=None, upload_id=f"u{number}") for number in range(3)]
    version = found("old-version", segment_id=None, version_id="v")
    made = plan(*uploads, version, found("foreign-object", segment_id=None))
    assert (made.removals, made.spared) == ((), {Spared.NO_SEGMENT: 3})
    assert plan(*uploads, version, with_versions=True).spared == {Spared.NO_SEGMENT: 4}
    assert plan(version, found("foreign-object", segment_id=None)).spared == {}


@pytest.mark.parametrize("missing", ["segment_id", "topic_id", "partition", "topic"])
def test_a_segment_is_known_by_its_id_its_topic_and_its_partition(missing: str) -> None:
    without: dict[str, Any] = {missing: None}
    made = plan(found(number=1), found(number=2, **without))
    assert (keys(made), made.spared) == (["orders/1.log"], {Spared.NO_SEGMENT: 1})


def test_what_was_spared_is_counted_by_its_reason_and_goes_when_only_its_age_spared_it() -> None:
    young, silent = OLD_MS + 1, None
    made = plan(
        found(number=1, last_modified_ms=young),
        found(number=1, suffix="indexes"),
        found(number=2, last_modified_ms=silent),
        found("adoptable", 3),
        found(number=3, suffix="indexes"),
        found(number=4),
    )
    assert (keys(made), made.size_bytes) == (["orders/4.log"], 10)
    assert made.spared == {Spared.YOUNG: 2, Spared.AGE_UNKNOWN: 1, Spared.COMPLETE: 1}
    assert {reason.code for reason in Spared if reason.retriable} == {"young"}


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


def test_a_guard_that_stands_is_no_success() -> None:
    """The DAG's alarm task fails then, too."""
    refused = replace(RECORD, refusals=(Refusal(Guard.OLDER_DATABASE, "because"),))
    assert not present_audit(AuditRun(refused, [])).ok
    assert present_audit(AuditRun(RECORD, [])).ok
