"""What every implementation of `HandoverStore` does, over each database."""

import secrets

import pytest
from sqlalchemy import Engine, select, update

from include.tiering.database.schema import events, handovers
from include.tiering.errors import LeaseLostError, StateConflictError
from include.tiering.handover.checks import CheckOutcome, CheckResult
from include.tiering.handover.contract import Drive, HandoverStore, LocalRetention, RetentionOverride, SeededPartition
from include.tiering.handover.rules import HandoverState, HandoverStep, RetentionOrder
from include.tiering.handover.store import SqlHandoverStore
from include.tiering.model.ownership import LeaseRole
from tests.doubles.databases import AdjustableNow
from tests.doubles.segments import CLUSTER_ID, partition_of, uuid

ORDERS, AUDIT = partition_of("orders"), partition_of("audit")
ID, OTHER_ID = uuid(9_000_001), uuid(9_000_002)
WANTED = LocalRetention(3_600_000, None)
LEASE_MS = 10_000


@pytest.fixture
def store(engine: Engine, now: AdjustableNow) -> HandoverStore:
    return SqlHandoverStore(engine, CLUSTER_ID, now_ms=now)


@pytest.fixture
def drive(store: HandoverStore) -> Drive:
    begin(store)
    driven = store.drive(ID, "driver-1", lease_ms=LEASE_MS)
    assert driven is not None
    return driven


def begin(store: HandoverStore, handover_id=ID, partition=ORDERS):
    return store.begin(handover_id, partition.topic_id, partition.topic, WANTED, author="ada")


def event_details(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return list(connection.scalars(select(events.c.detail).where(events.c.kind == "handover")))


def test_it_begins_at_the_first_step_and_keeps_what_was_wanted(store, now):
    begun = begin(store)
    assert (begun.step, begun.state) == (HandoverStep.PRECONDITIONS, HandoverState.ACTIVE)
    assert (begun.wanted, begun.author, begun.began_at_ms) == (WANTED, "ada", now.now_ms)
    assert store.handover(ID) == store.latest(ORDERS.topic_id) == begun
    assert store.latest(AUDIT.topic_id) is None
    assert list(store.open_handovers()) == [begun]


def test_it_keeps_the_order_with_which_it_began(store, engine):
    assert begin(store).retention_order is RetentionOrder.LOCAL_FIRST
    with engine.begin() as connection:
        connection.execute(update(handovers).values(retention_order=None))
    assert begin(store).retention_order is store.handover(ID).retention_order is RetentionOrder.TOTAL_FIRST


def test_beginning_again_under_its_id_changes_nothing(store, drive):
    store.advance(drive, HandoverStep.OVERRIDES, expected=HandoverStep.PRECONDITIONS)
    assert begin(store).step is HandoverStep.OVERRIDES


def test_a_topic_has_one_hand_over_at_a_time(store, drive):
    with pytest.raises(StateConflictError, match="not ended"):
        begin(store, OTHER_ID)
    begin(store, OTHER_ID, AUDIT)
    store.set_state(drive, HandoverState.UNDONE, detail="by hand")
    assert begin(store, uuid(9_000_003)).state is HandoverState.ACTIVE
    assert store.latest(ORDERS.topic_id).handover_id == uuid(9_000_003)


def test_one_id_is_not_of_two_topics(store):
    begin(store)
    with pytest.raises(StateConflictError):
        begin(store, ID, AUDIT)


def test_what_nobody_began_is_refused(store):
    with pytest.raises(StateConflictError, match="no handover"):
        store.handover(ID)
    with pytest.raises(StateConflictError, match="no handover"):
        store.drive(ID, "driver", lease_ms=1)


def test_one_drives_at_a_time_and_a_dead_one_is_followed(store, drive, now):
    assert store.drive(ID, "driver-2", lease_ms=LEASE_MS) is None
    now.now_ms += LEASE_MS
    follower = store.drive(ID, "driver-2", lease_ms=LEASE_MS)
    assert follower is not None
    assert follower.token > drive.token
    for change in (
        lambda: store.renew(drive, lease_ms=1),
        lambda: store.advance(drive, HandoverStep.OVERRIDES, expected=HandoverStep.PRECONDITIONS),
        lambda: store.set_state(drive, HandoverState.STOPPED, detail=""),
        lambda: store.save_overrides(drive, [RetentionOverride("retention.ms", None, "-1")]),
        lambda: store.overrides_restored(drive, ["retention.ms"]),
        lambda: store.save_seed(drive, []),
        lambda: store.propose(drive, "hash"),
        lambda: store.record_checks(drive, HandoverStep.QUALITY_CHECK, []),
        lambda: store.claim(drive, ORDERS, LeaseRole.COPY, lease_ms=1),
    ):
        with pytest.raises(LeaseLostError):
            change()


def test_no_token_is_given_again_after_a_restore_and_a_clock_that_was_set_back(store, engine, drive, now, monkeypatch):
    drawn = iter((5, 6))
    monkeypatch.setattr(secrets, "randbits", lambda _bits: next(drawn))
    now.now_ms -= 2 * LEASE_MS
    before = store.drive(ID, "driver-1", lease_ms=LEASE_MS)
    with engine.begin() as connection:
        connection.execute(handovers.update().values(token=drive.token))
    after = store.drive(ID, "driver-1", lease_ms=LEASE_MS)
    assert before.token != after.token
    assert drive.token < min(before.token, after.token)
    with pytest.raises(LeaseLostError):
        store.renew(before, lease_ms=1)


def test_a_driver_that_started_again_takes_its_own_lease_over(store, drive):
    again = store.drive(ID, "driver-1", lease_ms=LEASE_MS)
    assert again is not None
    assert again.token > drive.token
    with pytest.raises(LeaseLostError):
        store.renew(drive, lease_ms=LEASE_MS)


def test_a_lease_that_is_prolonged_outlives_its_first_end(store, drive, now):
    now.now_ms += LEASE_MS - 1
    assert store.renew(drive, lease_ms=LEASE_MS).expires_at_ms == now.now_ms + LEASE_MS
    now.now_ms += LEASE_MS - 1
    assert store.drive(ID, "driver-2", lease_ms=LEASE_MS) is None


def test_what_is_given_back_is_free_and_refuses_its_old_holder(store, drive):
    store.release(drive)
    with pytest.raises(LeaseLostError):
        store.renew(drive, lease_ms=LEASE_MS)
    assert store.drive(ID, "driver-2", lease_ms=LEASE_MS) is not None


def test_steps_are_compared_and_set(store, drive, engine):
    moved = store.advance(drive, HandoverStep.OVERRIDES, expected=HandoverStep.PRECONDITIONS, detail="fine")
    assert (moved.step, moved.detail) == (HandoverStep.OVERRIDES, "fine")
    assert (
        store.advance(drive, HandoverStep.OVERRIDES, expected=HandoverStep.PRECONDITIONS).step is HandoverStep.OVERRIDES
    )
    with pytest.raises(StateConflictError, match="is at guards"):
        store.advance(drive, HandoverStep.PUBLISH, expected=HandoverStep.COPY)
    assert event_details(engine) == [f"{ID} begins", "preconditions is done, guards is next"]


def test_a_state_is_an_event_and_an_end_is_final(store, drive, engine):
    store.set_state(drive, HandoverState.STOPPED, detail="a gap")
    store.set_state(drive, HandoverState.STOPPED, detail="another gap")
    assert store.handover(ID).detail == "another gap"
    assert event_details(engine)[1:] == ["active -> stopped at preconditions: a gap"]
    store.set_state(drive, HandoverState.DONE, detail="")
    with pytest.raises(StateConflictError, match="has ended"):
        store.set_state(drive, HandoverState.ACTIVE, detail="")


def test_an_old_value_that_is_stored_is_not_taken_for_our_own(store, drive):
    first = RetentionOverride("retention.bytes", "900000", "-1")
    store.save_overrides(drive, [first, RetentionOverride("retention.ms", None, "-1")])
    kept = store.save_overrides(drive, [RetentionOverride("retention.bytes", "-1", "-1")])
    assert list(kept) == [first, RetentionOverride("retention.ms", None, "-1")] == list(store.overrides(ID))


def test_what_somebody_sets_later_takes_the_place_of_the_old_value(store, drive, engine):
    store.save_overrides(
        drive, [RetentionOverride("retention.bytes", "900000", "-1"), RetentionOverride("retention.ms", "5", "-1")]
    )
    later = [RetentionOverride("retention.bytes", "700000", "-1"), RetentionOverride("retention.ms", None, "-1")]
    for _ in range(2):
        assert list(store.save_overrides(drive, later)) == later == list(store.overrides(ID))
    assert event_details(engine).count("retention.bytes is to be -1, was 700000") == 1


def test_an_override_that_was_restored_may_be_set_again(store, drive, engine):
    store.save_overrides(drive, [RetentionOverride("retention.bytes", "900000", "-1")])
    store.overrides_restored(drive, ["retention.bytes", "unknown"])
    store.overrides_restored(drive, ["retention.bytes"])
    assert store.overrides(ID)[0].restored
    store.save_overrides(drive, [RetentionOverride("retention.bytes", "800000", "-1")])
    assert list(store.overrides(ID)) == [RetentionOverride("retention.bytes", "800000", "-1")]
    assert event_details(engine).count("retention.bytes has its final value") == 1


def test_the_seed_comes_back_by_partition_and_is_replaced_as_a_whole(store, drive):
    one, two = (SeededPartition(partition_of("orders", number), 10, 99, 12, 1, 4) for number in (1, 0))
    store.save_seed(drive, [one, two])
    assert list(store.seed(ID)) == [two, one]
    store.note_compared(drive, 1, 50)
    store.note_compared(drive, 1, 40)
    assert [each.compared_offset for each in store.seed(ID)] == [0, 50]
    store.save_seed(drive, [two])
    assert list(store.seed(ID)) == [two]


def test_an_approval_is_of_one_plan(store, drive, now):
    with pytest.raises(StateConflictError, match="None, not h1"):
        store.approve(ID, "h1", author="grace")
    store.propose(drive, "h1")
    now.now_ms += 5
    approved = store.approve(ID, "h1", author="grace")
    assert (approved.approval.plan_hash, approved.approval.author) == ("h1", "grace")
    assert store.approve(ID, "h1", author="somebody else").approval == approved.approval
    assert store.propose(drive, "h1").approval == approved.approval
    assert store.propose(drive, "h2").approval is None
    with pytest.raises(StateConflictError, match="has the plan h2"):
        store.approve(ID, "h1", author="grace")


def test_checks_of_a_step_replace_those_before(store, drive):
    refused = CheckResult("seed-has-no-gap", 3, CheckOutcome.REFUSED, "0..99, then 150", "copy it")
    passed = CheckResult("topic-is-the-same", None, CheckOutcome.PASSED)
    store.record_checks(drive, HandoverStep.RECHECK, [refused, passed])
    store.record_checks(drive, HandoverStep.PRECONDITIONS, [passed])
    assert list(store.checks(ID)) == [passed, refused, passed]
    store.record_checks(drive, HandoverStep.RECHECK, [passed])
    assert list(store.checks(ID, HandoverStep.RECHECK)) == [passed]


def test_a_claim_fences_off_older_tokens_and_waits_for_live_ones(store, drive, engine, now):
    held = store.claim(drive, ORDERS, LeaseRole.COPY, lease_ms=LEASE_MS)
    assert held is not None
    assert held.fence.role is LeaseRole.COPY
    begin(store, OTHER_ID, AUDIT)
    other = store.drive(OTHER_ID, "driver-2", lease_ms=5 * LEASE_MS)
    assert store.claim(other, ORDERS, LeaseRole.COPY, lease_ms=LEASE_MS) is None
    now.now_ms += LEASE_MS
    later = store.claim(other, ORDERS, LeaseRole.COPY, lease_ms=LEASE_MS)
    assert later is not None
    assert later.fence.token > held.fence.token
