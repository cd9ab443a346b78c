"""What waits for a person: who cut a retention, what is left out, and what the table says."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from include.tiering.audit.finding import AuditFinding, FindingKind
from include.tiering.audit.record import FindingState, RecordedFinding
from include.tiering.configs.config_store import ConfigChange, ConfigEntity, EntityType
from include.tiering.configs.pools import COPIER_POOL
from include.tiering.configs.rules import last_cuts
from include.tiering.copying.plan import HeldBack
from include.tiering.database.metric_series import Series, SeriesKey
from include.tiering.handover.contract import Handover, LocalRetention, forgotten_handovers
from include.tiering.handover.rules import HandoverState, HandoverStep
from include.tiering.kafka.log_dirs.contract import IneligibleReason
from include.tiering.model.segments import Uuid
from include.tiering.operations.attention import (
    MOST_TOPICS,
    Attention,
    OpenApproval,
    attention_document,
    lasting,
    needs_a_person,
    present_attention,
)
from include.tiering.operations.overview import overview_document
from include.tiering.operations.quality import MOST_FAILED
from include.tiering.operations.status import Activity, present_status
from include.tiering.operations.waiting import Waiting
from include.tiering.presentation import as_text
from include.tiering.runs.approval import PlanQuestion
from include.tiering.runs.deletion_run import PlannedTopic
from include.tiering.segments.failed_copies import FailedCopy
from tests.doubles.archive import Archive
from tests.doubles.segments import partition_of, segment_of

NOW_MS: Final = 1_700_000_000_000
DAY_MS: Final = 86_400_000


def change(topic: str, name: str, old: str | None, new: str | None, author: str = "olga") -> ConfigChange:
    return ConfigChange(ConfigEntity(EntityType.TOPICS, topic), name, old, new, author, NOW_MS - DAY_MS)


@pytest.mark.parametrize(
    ("old", "new", "is_cut"),
    [
        ("100", "99", True),
        (None, "100", True),
        ("-1", "100", True),
        ("99", "100", False),
        ("100", None, False),
        ("100", "-1", False),
        (None, "-1", False),
    ],
)
def test_a_cut_is_a_last_change_by_which_less_is_kept(old: str | None, new: str | None, is_cut: bool) -> None:
    assert bool(last_cuts([change("a", "retention.ms", old, new)])) is is_cut


def test_only_the_last_change_of_a_config_counts() -> None:
    changes = [
        change("a", "retention.ms", "5", "9"),
        change("a", "retention.bytes", "9", "5", "otto"),
        change("b", "retention.ms", "9", "1"),
        change("a", "retention.ms", "9", "5"),
    ]
    assert {topic: [cut.author for cut in cuts] for topic, cuts in last_cuts(changes).items()} == {
        "a": ["otto"],
        "b": ["olga"],
    }


def test_a_small_raise_does_not_hide_who_made_the_large_cut() -> None:
    raised, cut = change("a", "retention.ms", "7", "8", "olga"), change("a", "retention.ms", "365", "7", "otto")
    assert last_cuts([raised, cut]) == {"a": (cut,)}
    assert last_cuts([change("a", "retention.ms", "7", "365"), cut]) == {}
    again = change("a", "retention.ms", "365", "30", "emil")
    assert last_cuts([again, change("a", "retention.ms", "7", "365"), cut]) == {"a": (again,)}


def group(reason: HeldBack | IneligibleReason | None) -> Waiting:
    return Waiting(reason, "code" if reason is None else reason.code, 2, ("orders",), 0, NOW_MS)


def test_what_a_later_run_takes_by_itself_needs_nobody() -> None:
    assert [needs_a_person(group(reason)) for reason in (HeldBack.HOLE, HeldBack.LOST, None)] == [True] * 3
    assert needs_a_person(group(IneligibleReason.ABOVE_LAST_STABLE_OFFSET)), "its producer may be gone"
    assert not any(needs_a_person(group(reason)) for reason in (HeldBack.BYTE_LIMIT, HeldBack.PAST_RETENTION))


@pytest.mark.parametrize(("age_seconds", "is_kept"), [(1, False), (899, False), (900, True), (0, True), (None, True)])
def test_a_transaction_that_brokers_would_have_aborted_needs_a_person(age_seconds: int | None, is_kept: bool) -> None:
    def held(reason: str) -> Series:
        return Series(SeriesKey("held", (("reason", reason), ("topic", "orders"))), 1, NOW_MS)

    transaction, other = held(IneligibleReason.ABOVE_LAST_STABLE_OFFSET.code), held(HeldBack.HOLE.code)
    ages = [(topic, age) for topic, age in (("orders", age_seconds), ("payments", 1)) if age is not None]
    lags = [Series(SeriesKey("lag", (("topic", topic),)), age, NOW_MS) for topic, age in ages]
    assert lasting([transaction, other], lags) == ([transaction, other] if is_kept else [other])


def test_a_copy_that_may_be_adopted_is_named_in_the_advice() -> None:
    finding = AuditFinding(kind=FindingKind.ADOPTABLE, key="k", message="m", segment_id=Uuid(bytes(16)))
    recorded = RecordedFinding(1, finding, FindingState.OPEN, NOW_MS, NOW_MS)
    (shown,) = attention_document(Attention(NOW_MS, findings=(recorded,)))["findings"]
    assert shown["advice"] == f"./tiering adopt {Uuid(bytes(16))}"


def test_a_long_list_says_how_much_is_left_out() -> None:
    own = segment_of(partition_of("orders"), 1, 0, 9)
    failed = tuple(FailedCopy(replace(own, start_offset=0), "d", ("r",)) for _ in range(MOST_FAILED + 2))
    topics = tuple(
        PlannedTopic("run", Uuid(bytes(16)), f"t{number}", 1, 1, 7, NOW_MS - 3 * DAY_MS, NOW_MS - DAY_MS)
        for number in range(MOST_TOPICS + 1)
    )
    question = PlanQuestion("tiering_expiration manual__1 2", "run", "hash", "Delete?", "All.", NOW_MS)
    approval = OpenApproval(question, topics, {"t0": (change("t0", "retention.ms", None, "5"),)})
    found = Attention(NOW_MS, (approval,), failed, more_findings=3)
    document = attention_document(found)
    assert (len(document["failed"]), document["more_failed"]) == (MOST_FAILED, 2)
    (shown,) = document["approvals"]
    assert (len(shown["topics"]), shown["more_topics"]) == (MOST_TOPICS, 1)
    assert (shown["dag_id"], shown["dag_run_id"]) == ("tiering_expiration", "manual__1 2")
    assert document["total"] == 1 + MOST_FAILED + 2 + 3
    text = as_text(present_attention(found))
    assert "olga" in text
    assert "for ever to 5" in text
    assert not present_attention(found).ok
    assert present_attention(Attention(NOW_MS)).ok


def test_a_pool_without_slots_needs_a_person() -> None:
    found = Attention(NOW_MS, stopped_pools=("remote_log_copier",))
    document = attention_document(found)
    (pool,) = document["stopped_pools"]
    assert (document["total"], pool["pool"]) == (1, "remote_log_copier")
    assert pool["runbook"].endswith("#a-pool-has-another-size-than-expected")
    assert "remote_log_copier has 0 slots" in as_text(present_attention(found))
    assert not present_attention(found).ok


def test_the_size_of_a_pool_is_the_last_known_one(tmp_path: Path) -> None:
    archive = Archive.of(tmp_path)
    with archive.open() as app:
        mirror = app.adapters.stores.pool_mirror
        mirror.record(COPIER_POOL, 2, seen=None, author="olga")
        assert app.operations.attention.now().stopped_pools == app.operations.overview.now().stopped_pools == ()
        mirror.record(COPIER_POOL, 0, seen=2, author="olga")
        assert app.operations.attention.now().stopped_pools == (COPIER_POOL,)
        overview = app.operations.overview.now()
    assert overview_document(overview)["stopped_pools"] == [COPIER_POOL]
    summary = present_status(app.settings, Activity(overview)).summary
    assert "nothing is paused" in summary
    assert "0 slots, so nothing of it begins: remote_log_copier" in summary


def test_a_handover_that_stands_still_says_so() -> None:
    handover = Handover(
        Uuid(bytes(16)), Uuid(bytes(16)), "orders", HandoverStep.FENCE, HandoverState.ACTIVE, LocalRetention(), "olga",
        updated_at_ms=NOW_MS - DAY_MS,
    )  # fmt: skip
    stalled = forgotten_handovers([handover], NOW_MS)
    document: Any = attention_document(Attention(NOW_MS, handovers=tuple(stalled)))
    (shown,) = document["handovers"]
    assert (shown["topic"], shown["step"], shown["since_ms"]) == ("orders", "fence", NOW_MS - DAY_MS)
    assert "--resume" in shown["message"]
    assert "orders" in as_text(present_attention(Attention(NOW_MS, handovers=tuple(stalled))))
