"""The beginning of a partition goes by decision: what that would delete, what is refused, and what is told of it."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from include.tiering.errors import SettingError
from include.tiering.expiration.report import present_truncation, present_withdrawal, truncation_question
from include.tiering.expiration.truncation import Truncation, plan_truncation, truncate
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.segments import TopicIdPartition
from include.tiering.runs.deletion_run import DeletionItem, DeletionOutcome, DeletionRun, Withdrawal, WithdrawnRun
from tests.doubles.deployment import World, copy_world
from tests.doubles.segments import FINISHED, partition_of, planned_expiration, segment_of


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Offsets 0 to 29 are archived, in three segments of 1,000 bytes."""
    with copy_world(tmp_path) as world:
        world.source.add("orders")
        world.plan()
        world.batch()
        yield world


@pytest.fixture
def orders(world: World) -> TopicIdPartition:
    (partition,) = world.metadata.partitions()
    return partition


def planned(world: World, partition: TopicIdPartition, before_offset: int) -> Truncation:
    return plan_truncation(partition, before_offset, metadata=world.metadata, registry=world.registry)


@pytest.mark.parametrize(
    ("before_offset", "segments"), [(0, 0), (9, 0), (10, 1), (11, 1), (19, 1), (20, 2), (29, 2), (30, 3)]
)
def test_segments_wholly_below_the_first_offset_that_stays_are_counted(
    world: World, orders: TopicIdPartition, before_offset: int, segments: int
) -> None:
    assert planned(world, orders, before_offset) == Truncation(orders, 0, before_offset, segments, 1_000 * segments)
    assert world.metadata.retention_state(orders).log_start_offset == 0


def test_what_is_not_archived_cannot_be_cut_off(world: World, orders: TopicIdPartition) -> None:
    with pytest.raises(SettingError, match="offset 31 is beyond what is archived: at most 30"):
        planned(world, orders, 31)
    empty = partition_of("empty")
    world.own(empty)
    assert planned(world, empty, 0) == Truncation(empty, 0, 0, 0, 0)
    with pytest.raises(SettingError, match="at most 0"):
        planned(world, empty, 1)


@pytest.mark.parametrize("owner", [TopicOwner.BROKER, TopicOwner.HANDING_OVER])
def test_only_the_owner_cuts_a_topic_off(world: World, orders: TopicIdPartition, owner: TopicOwner) -> None:
    world.own(orders, owner)
    with pytest.raises(SettingError, match=f"the topic's owner is {owner}"):
        planned(world, orders, 10)


def test_a_log_start_rises_and_never_goes_back(world: World, orders: TopicIdPartition) -> None:
    raised = truncate(planned(world, orders, 20), metadata=world.metadata, author="ada")
    assert (raised.log_start_before, raised.log_start_offset) == (0, 20)
    assert world.metadata.retention_state(orders).log_start_offset == 20
    again = planned(world, orders, 5)
    assert again == Truncation(orders, 20, 20, 2, 2_000)
    lower = replace(again, log_start_offset=5)
    assert truncate(lower, metadata=world.metadata, author="ada").log_start_offset == 20


ORDERS = partition_of("orders", 2)
LABELS = {"topic": "orders", "topic_id": str(ORDERS.topic_id), "partition": 2}


@pytest.mark.parametrize(
    ("segments", "size_bytes", "goes"), [(1, 1_024, "1 segment (1.0 KiB) goes"), (3, 2_048, "3 segments (2.0 KiB) go")]
)
def test_what_is_asked_and_told_of_a_truncation(segments: int, size_bytes: int, goes: str) -> None:
    cut = Truncation(ORDERS, 10, 40, segments, size_bytes)
    assert truncation_question(cut) == (
        f"Raise the log start of orders-2 from 10 to 40 for good? {goes} with the next expire"
    )
    done = present_truncation(cut, None)
    assert done.summary == f"the log start of orders-2 is 40 now; {goes} with the next expire"
    assert done.ok
    expected = {**LABELS, "from": 10, "to": 40, "segments": segments, "bytes": size_bytes, "refusal": None}
    assert done.document() == expected
    (table,) = done.tables()
    assert table.rows == (("orders-2", "10", "40", str(segments), f"{size_bytes // 1_024}.0 KiB"),)


def test_a_truncation_that_was_refused_or_changes_nothing_says_so() -> None:
    refused = present_truncation(Truncation(ORDERS, 10, 40, 3, 5), "not confirmed")
    assert (refused.ok, refused.summary) == (False, "the log start of orders-2 stays at 10: not confirmed")
    document = {**LABELS, "from": 10, "to": 10, "segments": 3, "bytes": 5, "refusal": "not confirmed"}
    assert refused.document() == document
    same = present_truncation(Truncation(ORDERS, 40, 40, 0, 0), None)
    assert (same.ok, same.summary) == (True, "the log start of orders-2 is 40 already")


PLAN = planned_expiration(ORDERS, *(segment_of(ORDERS, n, 10 * n, 10 * n + 9, state=FINISHED) for n in range(6)))


DELETED = DeletionItem(PLAN.deletions[0], DeletionOutcome.DELETED)
BEGUN = DeletionItem(PLAN.deletions[1], DeletionOutcome.FAILED, "RemoteStorageError", "no answer")
KEPT = DeletionItem(PLAN.deletions[2], DeletionOutcome.SKIPPED, "RunWithdrawnError", "withdrawn")
WAS_KEPT_ANYHOW = DeletionItem(PLAN.deletions[3], DeletionOutcome.SKIPPED, "StateConflictError", "it changed")


def withdrawn(*items: DeletionItem, not_claimed: str | None = None) -> WithdrawnRun:
    run = DeletionRun("run-1", "hash", True, None, withdrawal=Withdrawal("ada", 7))
    return WithdrawnRun(run, items, not_claimed)


def test_a_withdrawal_tells_what_stays_what_had_gone_and_what_is_completed() -> None:
    shown = present_withdrawal(withdrawn(DELETED, BEGUN, KEPT, WAS_KEPT_ANYHOW, KEPT, DELETED, DELETED))
    assert shown.summary == (
        "run run-1 is withdrawn: 2 segments (2.0 KiB) stay, 3 segments (2.9 KiB) had gone already; "
        "1 segment (1000 B) begun: the next run completes them"
    )
    begun = {
        **LABELS,
        "segment_id": str(PLAN.deletions[1].segment_id.id),
        "start_offset": 10,
        "end_offset": 19,
        "bytes": 1_000,
    }
    assert shown.document() == {
        "run_id": "run-1",
        "plan_hash": "hash",
        "withdrawn_by": "ada",
        "withdrawn_at_ms": 7,
        "kept": 2,
        "kept_bytes": 2_000,
        "deleted": 3,
        "deleted_bytes": 3_000,
        "begun": [begun],
        "begun_bytes": 1_000,
        "not_claimed": None,
    }
    (table,) = shown.tables()
    assert table.rows == (("orders-2", "10..19", "1000 B"),)


def test_a_withdrawal_before_anything_began_has_no_table_and_names_a_store_that_was_not_claimed() -> None:
    shown = present_withdrawal(withdrawn(KEPT, not_claimed="it is away"))
    assert (shown.tables(), shown.ok) == ((), True)
    assert shown.summary == (
        "run run-1 is withdrawn: 1 segment (1000 B) stay, 0 segments (0 B) had gone already; a copy of this database"
        " may still carry it out, as the store could not be claimed: it is away"
    )
