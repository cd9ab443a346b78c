"""What every implementation of `AuditStore` does, over each database."""

from dataclasses import replace

import pytest
from sqlalchemy import Engine, select

from include.tiering.audit.finding import AuditFinding, FindingKind, PassedOver
from include.tiering.audit.record import (
    ActiveGuard,
    AuditRecord,
    AuditSource,
    AuditStore,
    AuditTally,
    FindingState,
    Guard,
    Memory,
    Refusal,
)
from include.tiering.audit.store import SqlAuditStore
from include.tiering.database.schema import events
from include.tiering.errors import StateConflictError
from tests.doubles.databases import AdjustableNow
from tests.doubles.segments import CLUSTER_ID, delete, fence_of, finish, partition_of, segment_of, uuid

ORDERS = partition_of("orders")
EVERY_KIND = frozenset(FindingKind)


@pytest.fixture
def store(engine: Engine, now: AdjustableNow) -> AuditStore:
    return SqlAuditStore(engine, CLUSTER_ID, now_ms=now)


def orphan(key: str = "orders/0/a.log", **changes) -> AuditFinding:
    finding = AuditFinding(
        kind=FindingKind.ORPHAN,
        key=key,
        message="no metadata",
        size_bytes=10,
        segment_id=uuid(1),
        topic_id=ORDERS.topic_id,
        topic="orders",
        partition=0,
        start_offset=1,
        end_offset=2,
        last_modified_ms=5,
    )
    return replace(finding, **changes)


def audit(store: AuditStore, *findings: AuditFinding, run_id: str = "one", covers=EVERY_KIND, refusals=()):
    """One that begins now."""
    record = AuditRecord(
        run_id, AuditSource.LISTING, store.now_ms(), store.now_ms(), 7, 5, tuple(refusals), {PassedOver.YOUNG: 3}
    )
    return store.record(record, findings, covers=covers)


def states(store: AuditStore) -> dict[str, FindingState]:
    return {one.finding.key: one.state for one in store.findings(tuple(FindingState))}


class TestAudit:
    def test_comes_back_as_it_ended(self, store, now):
        refusal = Refusal(Guard.OLDER_DATABASE, "because")
        audit(store, orphan("a"), orphan("b"), refusals=[refusal])
        expected = AuditRecord(
            "one", AuditSource.LISTING, now.now_ms, now.now_ms, 7, 5, (refusal,), {PassedOver.YOUNG: 3}, 2
        )
        assert store.audit("one") == expected
        assert store.last_audit() == expected
        now.advance(1)
        audit(store, run_id="two")
        assert store.last_audit().run_id == "two"

    def test_one_that_did_not_end_is_unknown(self, store):
        assert store.last_audit() is None
        with pytest.raises(StateConflictError, match="one"):
            store.audit("one")

    def test_recording_the_same_again_is_harmless(self, store):
        audit(store, orphan())
        assert audit(store, orphan()) == AuditTally(1, 0, 0)
        assert store.last_audit().findings == 1

    def test_memory_counts_segments_in_any_state(self, store, engine, metadata):
        assert store.memory() == Memory(0, None)
        fence = fence_of(engine, ORDERS)
        delete(metadata, finish(metadata, segment_of(ORDERS, 1, 0, 9), fence), fence)
        metadata.add_segment(segment_of(ORDERS, 2, 10, 19), fence=fence)
        assert store.memory() == Memory(2, 1_600_000_200_000)


YEARS_MS = 10 * 365 * 24 * 3600 * 1000
SET_BACK = Refusal(Guard.OLDER_DATABASE, "a copy is younger", 77)


class TestOrder:
    """An audit that ended while the database's clock was years ahead is the last one until another one ends."""

    @pytest.fixture(autouse=True)
    def _one_was_ahead(self, store, now):
        now.advance(YEARS_MS)
        audit(store, orphan("a"), orphan("b"), run_id="ahead")
        now.advance(-YEARS_MS)
        now.advance(10)

    def test_the_last_one_is_the_one_that_was_recorded_last(self, store):
        audit(store, run_id="right")
        assert store.last_audit().run_id == "right"

    def test_what_the_last_one_saw_can_be_asked_for(self, store):
        audit(store, orphan("a"), run_id="right")
        assert [one.finding.key for one in store.seen_by("right", EVERY_KIND)] == ["a"]
        with pytest.raises(StateConflictError, match="right ended after it"):
            store.seen_by("ahead", EVERY_KIND)

    def test_what_is_not_there_any_more_is_gone(self, store):
        assert audit(store, orphan("a"), run_id="right").gone == 1
        assert states(store) == {"a": FindingState.OPEN, "b": FindingState.GONE}

    def test_what_went_then_and_is_there_again_is_open(self, store, now):
        now.advance(YEARS_MS)
        store.acted([orphan("a").identity])
        now.advance(-YEARS_MS)
        assert audit(store, orphan("a"), run_id="right").new == 1
        assert states(store)["a"] is FindingState.OPEN

    def test_the_last_one_is_not_forgotten(self, store, now):
        audit(store, run_id="right")
        now.advance(1000)
        store.forget(10)
        assert store.last_audit().run_id == "right"

    def test_recorded_again_it_keeps_its_place(self, store):
        audit(store, run_id="right")
        audit(store, run_id="ahead")
        assert store.last_audit().run_id == "right"


class TestActiveGuards:
    def test_an_objection_stands_from_its_first_time_on(self, store, now):
        assert store.active_guards() == []
        audit(store, refusals=[SET_BACK])
        first = ActiveGuard(Guard.OLDER_DATABASE, "a copy is younger", now.now_ms, 77)
        assert store.active_guards() == [first]
        now.advance(10)
        audit(store, run_id="two", refusals=[replace(SET_BACK, sentence="another", memory_ms=99)])
        assert store.active_guards() == [first]

    def test_only_what_says_that_the_database_was_set_back_stands(self, store):
        audit(store, refusals=[Refusal(one, "because") for one in Guard if one is not Guard.OLDER_DATABASE])
        assert store.active_guards() == []

    def test_an_audit_without_objections_clears_it(self, store):
        audit(store, refusals=[SET_BACK])
        audit(store, run_id="two")
        assert store.active_guards() == []

    @pytest.mark.parametrize("guard", [one for one in Guard if one is not Guard.OLDER_DATABASE])
    def test_an_audit_with_another_objection_does_not(self, store, guard):
        audit(store, refusals=[SET_BACK])
        audit(store, run_id="two", refusals=[Refusal(guard, "because")])
        assert len(store.active_guards()) == 1

    def test_an_inventory_does_not_and_may_raise_it(self, store, now):
        inventory = AuditRecord("two", AuditSource.INVENTORY, now.now_ms, now.now_ms, 1, 1)
        store.record(replace(inventory, refusals=(SET_BACK,)), [], covers=())
        store.record(replace(inventory, run_id="three"), [], covers=())
        assert len(store.active_guards()) == 1

    def test_it_outlives_the_record_of_its_audit_and_a_clock_that_was_ahead(self, store, now):
        audit(store, refusals=[SET_BACK])
        now.advance(YEARS_MS)
        audit(store, run_id="ahead", refusals=[Refusal(Guard.INCOMPLETE_LISTING, "because")])
        now.advance(-YEARS_MS)
        store.forget(0)
        assert len(store.active_guards()) == 1
        audit(store, run_id="right")
        assert store.active_guards() == []


class TestFindings:
    def test_come_back_as_they_were_found(self, store, now):
        upload = AuditFinding(
            kind=FindingKind.OPEN_MULTIPART_UPLOAD, key="b", message="open", upload_id="u", last_modified_ms=1
        )
        version = AuditFinding(kind=FindingKind.OLD_VERSION, key="b", message="old", version_id="v", size_bytes=3)
        assert audit(store, orphan(), upload, version) == AuditTally(3, 3, 0)
        found = store.findings()
        assert [one.finding for one in found] == [version, upload, orphan()]
        assert {(one.state, one.first_seen_ms, one.last_seen_ms, one.author) for one in found} == {
            (FindingState.OPEN, now.now_ms, now.now_ms, None)
        }
        assert len({one.finding_id for one in found}) == 3

    def test_seen_again_is_the_same_row(self, store, now):
        audit(store, orphan())
        (first,) = store.findings()
        now.advance(10)
        assert audit(store, orphan(size_bytes=11), run_id="two") == AuditTally(1, 0, 0)
        (again,) = store.findings()
        assert again == replace(first, last_seen_ms=now.now_ms, finding=orphan(size_bytes=11))

    def test_not_seen_any_more_is_gone(self, store, now):
        audit(store, orphan("a"), orphan("b"))
        now.advance(10)
        assert audit(store, orphan("a"), run_id="two") == AuditTally(1, 0, 1)
        assert states(store) == {"a": FindingState.OPEN, "b": FindingState.GONE}
        assert [one.finding.key for one in store.findings()] == ["a"]

    def test_what_an_audit_cannot_see_is_not_gone(self, store, now):
        audit(store, orphan("a"))
        now.advance(10)
        assert audit(store, run_id="two", covers=EVERY_KIND - {FindingKind.ORPHAN}) == AuditTally(0, 0, 0)
        assert states(store) == {"a": FindingState.OPEN}

    def test_what_another_audit_saw_at_this_very_time_is_not_gone(self, store, now):
        """Only a time that is still to come is that of a wrong clock."""
        audit(store, orphan("a"))
        assert audit(store, run_id="two").gone == 0
        assert states(store) == {"a": FindingState.OPEN}

    def test_that_returns_is_new_and_keeps_its_first_sight(self, store, now):
        audit(store, orphan())
        first_seen_ms = now.now_ms
        now.advance(10)
        audit(store, run_id="two")
        now.advance(10)
        assert audit(store, orphan(), run_id="three") == AuditTally(1, 1, 0)
        (found,) = store.findings()
        assert (found.first_seen_ms, found.last_seen_ms) == (first_seen_ms, now.now_ms)

    def test_an_older_inventory_neither_brings_back_nor_takes_away(self, store, now):
        audit(store, orphan("a"))
        seen_at_ms = now.now_ms + 1
        now.advance(10)
        audit(store, orphan("b"), run_id="two")
        now.advance(10)
        inventory = AuditRecord("three", AuditSource.INVENTORY, now.now_ms, seen_at_ms, 1, 1)
        assert store.record(inventory, [orphan("a"), orphan("c")], covers=EVERY_KIND) == AuditTally(2, 1, 0)
        assert states(store) == {"a": FindingState.GONE, "b": FindingState.OPEN, "c": FindingState.OPEN}
        assert [one.finding.key for one in store.seen_by("three", EVERY_KIND)] == ["a", "c"]

    def test_removed_is_acted_until_it_is_seen_again(self, store, now):
        audit(store, orphan("a"), orphan("b"))
        store.acted([orphan("a").identity])
        assert states(store) == {"a": FindingState.ACTED, "b": FindingState.OPEN}
        now.advance(10)
        assert audit(store, orphan("a"), orphan("b"), run_id="two") == AuditTally(2, 1, 0)
        assert set(states(store).values()) == {FindingState.OPEN}
        store.acted([])

    def test_of_hostile_keys_are_stored_harmlessly(self, store):
        hostile = [orphan("a\x00b"), orphan("\udcff\x1b[31m"), orphan("k" * 5_000), orphan("k" * 5_000 + "2")]
        assert audit(store, *hostile) == AuditTally(4, 4, 0)
        assert all(one.finding.key.isprintable() for one in store.findings())
        assert audit(store, *hostile) == AuditTally(4, 0, 0)

    def test_more_than_a_page(self, store, monkeypatch, now):
        monkeypatch.setattr("include.tiering.audit.store.PAGE_FINDINGS", 3)
        assert audit(store, *(orphan(f"{number}") for number in range(7))) == AuditTally(7, 7, 0)
        now.advance(10)
        assert audit(store, *(orphan(f"{number}") for number in range(4)), run_id="two") == AuditTally(4, 0, 3)

    def test_another_cluster_sees_nothing_of_them(self, store, engine, now):
        audit(store, orphan())
        other = SqlAuditStore(engine, "another", now_ms=now)
        assert (other.findings(), other.last_audit()) == ([], None)
        now.advance(1)
        assert audit(other) == AuditTally(0, 0, 0)
        assert len(store.findings()) == 1


class TestSeenBy:
    def test_only_what_this_audit_saw(self, store, now):
        audit(store, orphan("a"), orphan("b"))
        now.advance(10)
        audit(store, orphan("b"), orphan("c", kind=FindingKind.ADOPTABLE), run_id="two")
        assert [one.finding.key for one in store.seen_by("two", [FindingKind.ORPHAN])] == ["b"]

    def test_not_after_another_audit_has_looked(self, store, now):
        audit(store, orphan("a"))
        now.advance(10)
        audit(store, run_id="two")
        with pytest.raises(StateConflictError, match="two"):
            store.seen_by("one", EVERY_KIND)


class TestForget:
    def test_what_ended_long_ago_and_not_the_last_audit(self, store, now):
        audit(store, orphan("a"), orphan("b"))
        store.acted([orphan("a").identity])
        now.advance(10)
        audit(store, orphan("b"), orphan("c"), run_id="two")
        store.accept([store.findings()[0].finding_id], author="me")
        now.advance(1_000)
        assert store.forget(2_000) == 0
        assert store.forget(500) == 2
        assert states(store) == {"b": FindingState.ACCEPTED, "c": FindingState.OPEN}
        assert store.last_audit().run_id == "two"
        with pytest.raises(StateConflictError):
            store.audit("one")


class TestAccept:
    def test_stays_accepted_and_leaves_an_event(self, store, engine, now):
        audit(store, orphan())
        (found,) = store.findings()
        (accepted,) = store.accept([found.finding_id], author="me@host")
        assert (accepted.state, accepted.author) == (FindingState.ACCEPTED, "me@host")
        now.advance(10)
        assert audit(store, orphan(), run_id="two") == AuditTally(1, 0, 0)
        assert store.findings() == []
        assert store.findings([FindingState.ACCEPTED])[0].author == "me@host"
        with engine.connect() as connection:
            (event,) = connection.execute(select(events)).all()
        assert (event.kind, event.author) == ("audit finding accepted", "me@host")

    def test_the_first_who_accepts_stays(self, store, engine, now):
        audit(store, orphan("a"), orphan("b"))
        first, second = (found.finding_id for found in store.findings())
        store.accept([first], author="olga")
        now.advance(10)
        accepted = store.accept([first, second], author="otto")
        assert {found.finding_id: found.author for found in accepted} == {first: "olga", second: "otto"}
        with engine.connect() as connection:
            found = connection.execute(select(events.c.subject, events.c.author).order_by(events.c.event_id)).all()
        assert found == [(f"finding {first}", "olga"), (f"finding {second}", "otto")]

    def test_ends_when_it_is_gone(self, store, now):
        audit(store, orphan())
        store.accept([store.findings()[0].finding_id], author="me")
        now.advance(10)
        assert audit(store, run_id="two") == AuditTally(0, 0, 1)

    def test_all_or_none(self, store):
        audit(store, orphan())
        (found,) = store.findings()
        with pytest.raises(StateConflictError, match="unknown"):
            store.accept([found.finding_id, 999_999], author="me")
        assert store.findings() == [found]


def test_newest_open_are_those_that_audits_saw_last_but_for_some_kinds(store, now):
    audit(store, orphan("a"), orphan("b", kind=FindingKind.OLD_VERSION), orphan("gone"))
    now.now_ms += 10
    audit(store, orphan("c"), orphan("a"), run_id="two")
    now.now_ms += 10
    audit(store, orphan("d"), orphan("a"), orphan("c"), run_id="three")
    (first, *others) = store.newest_open(leave_out=(FindingKind.OLD_VERSION,), at_most=9)
    assert {each.finding.key for each in (first, *others)} == {"a", "c", "d"}
    assert len(store.newest_open(leave_out=(), at_most=2)) == 2
