"""The preview of a retention: it is what a run deletes afterwards, it changes nothing, and it reads little."""

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import event

from include.tiering.configs.config_store import ALL_BROKERS, TopicRetention
from include.tiering.errors import SettingError
from include.tiering.expiration.preview import (
    HORIZONS_MS,
    MOST_NUMBERS,
    Amount,
    RetentionPreview,
    partition_numbers,
    present_preview,
    preview_document,
    retention_asked,
)
from include.tiering.model.segments import Uuid
from include.tiering.model.sizes import PriceTable
from include.tiering.runs.deletion_limits import DeletionLimits
from include.tiering.units import GIB
from tests.doubles.archive import ORDERS, Archive

PRICES: Final = PriceTable("EUR", gib_month=Decimal("0.02"))


def preview(archive: Archive, *, numbers: Any = (), at_most: Any = None, **changes: str) -> RetentionPreview:
    with archive.open() as app:
        named = {name.replace("_", "."): value for name, value in changes.items()}
        return app.expiration.preview(ORDERS, named, numbers=numbers, at_most=at_most)


def copied(directory: Path) -> Archive:
    made = Archive.of(directory)
    made.copy()
    return made


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return copied(tmp_path)


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    """For tests that only look."""
    return copied(tmp_path_factory.mktemp("archive"))


@pytest.mark.parametrize("changes", [{"retention_bytes": "4096"}, {"retention_ms": "1d"}, {"retention_bytes": "1GiB"}])
def test_a_preview_is_what_the_next_run_deletes(archive: Archive, changes: dict[str, str]) -> None:
    before = archive.left()
    shown = preview(archive, **changes)
    assert archive.left() == before
    (now, *_) = shown.horizons
    assert now.present == Amount()
    archive.set(**changes)
    # The preview reads no log directory, and neither does this plan: bytes that are only on brokers count as 0.
    with archive.open() as app:
        planner = app.expiration._planner(app.expiration._clocks())
        plan = planner.plan("run", planner.partitions([ORDERS]), None, now_ms=shown.as_of_ms)
    assert now.asked == Amount(plan.segments, plan.size_bytes)
    by_partition = {each.topic_id_partition: each for each in shown.partitions}
    for planned in plan.expirations:
        found = by_partition[planned.topic_id_partition]
        assert (found.log_start_before, found.log_start_offset) == (planned.log_start_before, planned.log_start_offset)
        assert found.amount.segments == len(planned.deletions)
    assert bool(now.asked.segments) == (changes != {"retention_bytes": "1GiB"})


@pytest.fixture(scope="module")
def changing(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    """For a test that sets retentions, and deletes nothing."""
    return copied(tmp_path_factory.mktemp("archive"))


AGES_MS: Final = st.one_of(st.just(-1), st.integers(0, 10), st.integers(0, 5 * 365).map(lambda days: days * 86_400_000))
SIZES: Final = st.one_of(st.just(-1), st.integers(0, 2**18))


@given(st.fixed_dictionaries({}, optional={"retention_ms": AGES_MS, "retention_bytes": SIZES}))
@settings(max_examples=25, deadline=None)
def test_the_preview_of_any_retention_is_the_plan_after_it_was_set(changing: Archive, values: dict[str, int]) -> None:
    changing.set(retention_ms=None, retention_bytes=None)
    shown = preview(changing, **{name: str(value) for name, value in values.items()})
    changing.set(**values)
    with changing.open() as app:
        planner = app.expiration._planner(app.expiration._clocks())
        plan = planner.plan("run", planner.partitions([ORDERS]), None, now_ms=shown.as_of_ms)
    assert shown.horizons[0].asked == Amount(plan.segments, plan.size_bytes)
    planned = {each.topic_id_partition: each for each in plan.expirations}
    for each in shown.partitions:
        of_it = planned.get(each.topic_id_partition)
        assert each.amount.segments == (0 if of_it is None else len(of_it.deletions))
        assert each.log_start_offset == (None if of_it is None else of_it.log_start_offset)


def test_what_a_run_deletes_is_at_least_what_was_shown(archive: Archive) -> None:
    shown = preview(archive, retention_bytes="4096").horizons[0].asked
    archive.set(retention_bytes="4096")
    run, _ = archive.expire()
    deleted = sum(len(planned.deletions) for planned in run.expirations)
    assert deleted >= shown.segments > 0


def test_a_preview_by_size_says_that_a_run_may_delete_more(unchanged: Archive) -> None:
    for changes, may in ({"retention_bytes": "4096"}, True), ({"retention_ms": "1d"}, False):
        summary = present_preview(preview(unchanged, **changes), PRICES).summary
        assert ("what is only on brokers counts for retention.bytes, too" in summary) is may


def test_values_that_are_not_asked_about_stay(archive: Archive) -> None:
    archive.set(retention_bytes="4096")
    shown = preview(archive)
    assert shown.asked == shown.present == TopicRetention(None, 4096)
    assert all(horizon.asked == horizon.present for horizon in shown.horizons)
    assert shown.horizons[0].present.segments > 0
    kept = preview(archive, retention_bytes="-1")
    assert kept.asked == TopicRetention()
    assert kept.horizons[0].asked == Amount()


def test_later_runs_delete_more(unchanged: Archive) -> None:
    with unchanged.open() as app:
        oldest = min(segment.max_timestamp_ms for found in unchanged.remote().values() for segment in found)
        age_ms = app.adapters.stores.now_ms() - oldest
    shown = preview(unchanged, retention_ms=str(age_ms + 3 * 86_400_000))
    by_horizon = {horizon.in_ms: horizon for horizon in shown.horizons}
    assert tuple(by_horizon) == HORIZONS_MS
    assert by_horizon[0].asked == Amount()
    assert by_horizon[HORIZONS_MS[1]].asked.segments > 0
    assert all(horizon.present == Amount() for horizon in shown.horizons)


def test_a_partition_set_is_decided_about_alone_and_what_is_left_out_is_said(unchanged: Archive) -> None:
    everything = preview(unchanged, retention_ms="1d")
    only = preview(unchanged, retention_ms="1d", numbers={1})
    assert [each.topic_id_partition.partition for each in only.partitions] == [1]
    # The value would hold for the others, too: nothing is said about the whole topic.
    assert (only.more_partitions, only.needs_approval) == (len(everything.partitions) - 1, None)
    assert everything.more_partitions == 0
    assert only.horizons[0].asked == everything.partitions[1].amount
    first = preview(unchanged, retention_ms="1d", at_most=1)
    assert ([each.topic_id_partition.partition for each in first.partitions], first.more_partitions) == ([0], 1)


def test_the_document_has_the_money_of_the_difference(unchanged: Archive) -> None:
    shown = preview(unchanged, retention_ms="1d")
    document = preview_document(shown, PRICES)
    for horizon in document["horizons"]:
        saved = Decimal("0.02") * (horizon["bytes"] - horizon["present_bytes"]) / GIB
        assert Decimal(horizon["saved_per_month"] or "") == saved > 0
    assert (document["currency"], document["gib_month"]) == ("EUR", "0.02")
    without = preview_document(shown, PriceTable("EUR"))
    assert (without["currency"], without["horizons"][0]["saved_per_month"]) == (None, None)
    remote = {
        str(partition): sum(s.segment_size_bytes for s in found) for partition, found in unchanged.remote().items()
    }
    assert {f"{one['topic']}-{one['partition']}": one["remote_bytes"] for one in document["partitions"]} == remote


@pytest.mark.parametrize(
    ("limits", "needs_approval"),
    [(DeletionLimits(0.05, 0), True), (DeletionLimits(1.0, 0), False), (DeletionLimits(0.05, GIB), False)],
)
def test_the_preview_says_whether_the_next_run_would_wait_for_an_approval(
    unchanged: Archive, limits: DeletionLimits, needs_approval: bool
) -> None:
    shown = replace(preview(unchanged, retention_ms="1d"), limits=limits)
    document = preview_document(shown, PRICES)
    assert document["needs_approval"] is needs_approval
    assert f"{shown.share:.1%} of it" in document["approval"]
    assert document["share"] == shown.horizons[0].asked.size_bytes / sum(one.remote_bytes for one in shown.partitions)
    left_out = replace(preview(unchanged, retention_ms="1d", at_most=1), limits=limits)
    assert left_out.needs_approval is None
    nothing = replace(preview(unchanged), limits=limits)
    assert (nothing.needs_approval, "deletes nothing" in nothing.approval_sentence) == (False, True)


def test_the_share_is_that_of_all_that_is_stored_of_a_topic_id(unchanged: Archive) -> None:
    """As the limits of a run count it: replaced segments, which are kept for a while, make the share smaller."""
    limits = DeletionLimits(0.4, 0)
    shown = replace(preview(unchanged, retention_ms="1d"), limits=limits)
    (topic_id,) = {each.topic_id_partition.topic_id for each in shown.partitions}
    assert shown.needs_approval is True
    deleted = shown.horizons[0].asked.size_bytes
    kept = replace(shown, stored_bytes={topic_id: 3 * deleted})
    assert (kept.needs_approval, "are 33.3% of it" in kept.approval_sentence) == (False, True)
    # Another topic with the same name, which loses less than the limit, does not make it need one.
    small = replace(shown, limits=DeletionLimits(0.4, deleted - 1))
    other = replace(shown.partitions[0].topic_id_partition, topic_id=Uuid(b"9" * 16))
    first, *rest = small.partitions
    split = replace(small, partitions=(replace(first, topic_id_partition=other), *rest))
    assert (small.needs_approval, split.needs_approval) == (True, False)


def test_the_limits_of_a_preview_are_those_of_a_run(archive: Archive) -> None:
    assert preview(archive, retention_ms="1d").needs_approval is False
    with archive.open() as app:
        app.configs.alter(ALL_BROKERS, {"tiering.expiration.min.bytes": "0"}, author="olga")
    shown = preview(archive, retention_ms="1d")
    archive.set(retention_ms="1d")
    with archive.open() as app:
        app.expiration.plan("run")
        report = app.expiration.apply_limits("run", dry_run=True)
    assert shown.needs_approval is report.needs_approval is True


def test_nothing_is_stored_and_the_statements_of_a_partition_are_few(unchanged: Archive) -> None:
    statements: list[str] = []
    with unchanged.open() as app:
        app.expiration.preview(ORDERS, {})
        event.listen(app.adapters.engine, "before_cursor_execute", lambda *call: statements.append(call[2]))
        app.expiration.preview(ORDERS, {"retention.bytes": "4096", "retention.ms": "1d"})
    kinds = {statement.split(maxsplit=1)[0] for statement in statements}
    assert kinds <= {"SELECT", "PRAGMA", "WITH"}, kinds
    assert len(statements) <= 120, len(statements)


@pytest.mark.parametrize(
    ("text", "numbers"), [("", set()), ("0", {0}), ("0,3, 7-9", {0, 3, 7, 8, 9}), (" 1 ,", {1}), ("5-5", {5})]
)
def test_partitions_are_numbers_and_ranges(text: str, numbers: set[int]) -> None:
    assert partition_numbers(text) == numbers


@pytest.mark.parametrize("text", ["x", "-1", "3-1", "1-", "٣", "1.5", f"0-{MOST_NUMBERS}", "0-999999999", "1;2", "<b>"])
def test_what_is_no_set_of_partitions_is_refused(text: str) -> None:
    with pytest.raises(SettingError):
        partition_numbers(text)


@pytest.mark.parametrize("changes", [{"retention.ms": "soon"}, {"retention.bytes": "-2"}, {"cleanup.policy": "delete"}])
def test_what_is_no_retention_is_refused(changes: dict[str, str | None]) -> None:
    with pytest.raises(SettingError):
        retention_asked(ORDERS, TopicRetention(), changes)


def test_nothing_archived_is_said(unchanged: Archive) -> None:
    with unchanged.open() as app:
        for topic, numbers in (("nothing", ()), (ORDERS, {7})):
            with pytest.raises(SettingError, match="is archived"):
                app.expiration.preview(topic, {}, numbers=numbers)
