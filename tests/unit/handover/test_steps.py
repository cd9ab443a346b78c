"""Steps of a handover."""

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.tiering.errors import UnknownTopicError
from include.tiering.handover.brokers_disks import bytes_per_second
from include.tiering.handover.contract import Handover, LocalRetention
from include.tiering.handover.rules import (
    STEPS,
    HandoverState,
    HandoverStep,
    UndoAction,
    following,
    is_before,
    levels,
    local_bytes,
    next_local_start,
    switched_by_hand,
    target_bytes,
    undo_of,
)
from include.tiering.handover.service import HandoverService
from include.tiering.kafka.log_dirs.contract import IneligibleReason, LogSegment
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.segments import Uuid, Verdict
from include.tiering.segments.contract import Verification
from tests.doubles.handover_world import OLD_RETENTION, TOPIC_ID, handover_world
from tests.doubles.present import present
from tests.doubles.segments import uuid

# A handover from its first check to the end, over doubles that act as brokers do.


@pytest.fixture
def world(tmp_path):
    with handover_world(tmp_path) as made:
        made.begin()
        yield made


def test_it_waits_for_an_approval_with_everything_copied_and_overridden(world):
    waiting = world.carry_on()
    assert (waiting.step, waiting.state) == (HandoverStep.APPROVAL, HandoverState.ACTIVE)
    assert waiting.plan_hash in waiting.detail
    assert world.owner is TopicOwner.PLATFORM
    assert world.configs["retention.bytes"] == world.configs["retention.ms"] == "-1"
    assert world.configs["local.retention.bytes"] == "-2"
    assert [(one.start_offset, one.end_offset) for one in world.handovers.seed(waiting.handover_id)] == [(0, 29)] * 2


def test_it_ends_with_the_brokers_and_the_configs_that_were(world):
    world.carry_on()
    world.approve()
    ended = world.carry_on()
    assert (ended.state, ended.detail) == (HandoverState.DONE, "the brokers copy, expire and serve the topic")
    assert world.owner is TopicOwner.BROKER
    assert world.configs == {**OLD_RETENTION, "remote.storage.enable": "true"}
    assert all(override.restored for override in world.handovers.overrides(ended.handover_id))


def test_local_retention_goes_down_in_steps_and_every_segment_is_compared(tmp_path):
    with handover_world(tmp_path, partitions=2, segments=8) as world:
        world.begin(LocalRetention(None, 2_000))
        world.carry_on()
        world.approve()
        assert world.carry_on().state is HandoverState.DONE
        assert world.configs["local.retention.bytes"] == "2000"
        assert [world.brokers.partition(TOPIC_ID, number).earliest_local for number in (0, 1)] == [70, 70]
        assert [one.compared_offset for one in world.handovers.seed(world.handover.handover_id)] == [70, 70]
        levels = [line for line in world.messages if line.startswith("local.retention.bytes=")]
        assert len(levels) == 8 + 1


def test_a_record_that_brokers_serve_otherwise_stops_it(tmp_path):
    with handover_world(tmp_path, segments=8) as world:
        world.begin(LocalRetention(None, 2_000))
        world.up_to(HandoverStep.LOCAL_RETENTION)
        world.lost.add((1, 25))
        stopped = world.carry_on()
        assert stopped.state is HandoverState.STOPPED
        assert "orders-1: of offsets 20..29 the brokers serve 9 records and 10 were copied" in stopped.detail
        assert world.brokers.partition(TOPIC_ID, 0).earliest_local == 30
        world.lost.clear()
        assert world.carry_on(resume=True).state is HandoverState.DONE


def test_a_batch_that_is_not_opened_is_named_and_not_compared(tmp_path):
    with handover_world(tmp_path, segments=8) as world:
        world.begin(LocalRetention(None, 2_000))
        world.up_to(HandoverStep.LOCAL_RETENTION)
        world.too_large.add((1, 20))
        assert world.carry_on().state is HandoverState.DONE
        messages = [line for line in world.messages if "not compared" in line]
        assert messages == [
            "orders-1: offsets 23..24 are in a batch that is too large to decode; they were not compared"
        ]


def test_a_topic_in_which_nothing_was_rolled_yet_is_handed_over_as_well(tmp_path):
    with handover_world(tmp_path, partitions=1, segments=0) as world:
        world.begin()
        world.carry_on()
        world.approve()
        assert world.carry_on().state is HandoverState.DONE
        assert world.owner is TopicOwner.BROKER
        assert [one.is_empty for one in world.handovers.seed(world.handover.handover_id)] == [True]


# The state machine of a handover: what follows, how far it goes back, what a switch by hand means.

BEFORE_SWITCH = [step for step in STEPS if is_before(step, HandoverStep.SWITCH)]


def test_steps_follow_each_other_to_the_end():
    walked: list[HandoverStep] = []
    step: HandoverStep | None = STEPS[0]
    while step is not None:
        walked.append(step)
        step = following(step)
    assert tuple(walked) == STEPS
    assert STEPS[-1] is HandoverStep.LOCAL_RETENTION


def test_without_the_fence_configs_are_all_that_is_undone():
    undo = undo_of(is_fenced=False, is_published=False, is_enabled=False)
    assert (undo.actions, undo.ends_as, undo.reason) == ((UndoAction.RESTORE_OVERRIDES,), HandoverState.UNDONE, None)


def test_behind_the_fence_the_topic_is_given_back_too():
    undo = undo_of(is_fenced=True, is_published=False, is_enabled=False)
    assert undo.actions == (UndoAction.RESTORE_OVERRIDES, UndoAction.OWNER_TO_PLATFORM)
    assert undo.ends_as is HandoverState.UNDONE


@pytest.mark.parametrize("is_fenced", [False, True])
def test_what_was_published_is_not_taken_back(is_fenced):
    undo = undo_of(is_fenced=is_fenced, is_published=True, is_enabled=False)
    assert undo.actions == (UndoAction.RESTORE_OVERRIDES,)
    assert undo.ends_as is HandoverState.PARKED
    assert "never lower the highest offset" in present(undo.reason)


@pytest.mark.parametrize("is_fenced", [False, True])
@pytest.mark.parametrize("is_published", [False, True])
def test_a_switched_topic_is_not_taken_back(is_fenced, is_published):
    undo = undo_of(is_fenced=is_fenced, is_published=is_published, is_enabled=True)
    assert (undo.actions, undo.ends_as) == ((), None)
    assert "remote.log.delete.on.disable" in present(undo.reason)


@pytest.mark.parametrize("step", BEFORE_SWITCH)
def test_a_switch_by_hand_ends_copying_and_publishing(step):
    for is_published in (False, True):
        by_hand = switched_by_hand(step, is_published=is_published)
        assert by_hand is not None
        assert by_hand.goes_to is HandoverStep.WATCH
        assert ("nothing was published" in by_hand.meaning) is not is_published


@pytest.mark.parametrize("step", [step for step in STEPS if step not in BEFORE_SWITCH])
def test_from_the_switch_on_it_is_ours(step):
    assert switched_by_hand(step, is_published=True) is None


def test_only_an_ended_hand_over_leaves_nothing_to_put_back():
    assert [state for state in HandoverState if state.has_ended] == [HandoverState.UNDONE, HandoverState.DONE]
    assert {state for state in HandoverState if state.holds_overrides} == {
        HandoverState.ACTIVE,
        HandoverState.STOPPED,
        HandoverState.UNDOING,
    }


# In which steps local retention is lowered, and what a broker lets go at each.


@dataclass
class Segment:
    base_offset: int
    end_offset: int
    size_bytes: int = 100
    max_timestamp_ms: int = 0
    active: bool = False


LOG = [
    Segment(0, 9, max_timestamp_ms=1_000),
    Segment(10, 19, max_timestamp_ms=2_000),
    Segment(20, 29, max_timestamp_ms=3_000),
    Segment(30, 34, 40, 3_500, active=True),
]


@pytest.mark.parametrize(
    ("limit_ms", "limit_bytes", "stays"),
    [
        (-1, -1, 340),
        (-1, 200, 200),
        (1_500, -1, 140),
        (1_500, 100, 100),
        (0, -1, 40),
        (10_000, 1_000, 340),
        # A limit of 0 bytes is a limit: what is remote goes at once.
        (-1, 0, 0),
        (1_500, 0, 0),
    ],
)
def test_what_stays_under_both_limits(limit_ms, limit_bytes, stays):
    assert target_bytes(LOG, limit_ms, limit_bytes, now_ms=4_000) == stays


@given(st.integers(0, 10**12), st.integers(0, 10**12), st.integers(1, 50))
def test_levels_fall_and_end_at_the_target(has, wants, steps):
    found = levels(has, wants, steps)
    if wants >= has:
        assert found == []
    else:
        assert found == sorted(set(found), reverse=True)
        assert found[-1] == wants
        assert found[0] < has
        assert len(found) <= steps


@pytest.mark.parametrize(
    ("level", "latest_tiered", "start"),
    [(340, 29, None), (241, 29, None), (240, 29, 10), (139, 29, 20), (0, 29, 30), (0, 15, 10), (0, None, None)],
)
def test_the_oldest_go_while_the_excess_is_a_whole_segment_and_all_of_it_is_remote(level, latest_tiered, start):
    assert next_local_start(LOG, level, latest_tiered) == start


def test_the_active_segment_counts_and_stays():
    assert local_bytes(LOG) == 340
    assert next_local_start(LOG, 0, 10**6) == 30


# How fast producers are, by the segments of a log: what a handover's disks must have room for.

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
MB = 1_000_000


def log(*segments: tuple[int, float]) -> list[LogSegment]:
    """(bytes, hours since its last record) of each segment; the last one is the active one."""
    epochs = LeaderEpochs.of([(0, 0)])
    active = len(segments) - 1
    return [
        LogSegment(
            10 * number,
            10 * number + 9,
            size_bytes,
            -1 if hours_ago == NO_TIME else NOW_MS - int(hours_ago * HOUR_MS),
            epochs,
            active=number == active,
            reason=IneligibleReason.ACTIVE if number == active else None,
        )
        for number, (size_bytes, hours_ago) in enumerate(segments)
    ]


NO_TIME = 1e9

EXAMPLES = {
    "a steady stream, one segment of 3.6 MB an hour": (
        [(3.6 * MB, h) for h in range(6, 0, -1)] + [(3.6 * MB, 0)],
        1000,
    ),
    "the active segment counts": ([(36 * MB, 1), (3.6 * MB, 0)], 1000),
    "of many segments the last ten": ([(900 * MB, 100)] * 30 + [(3.6 * MB, h) for h in range(9, -1, -1)], 1000),
    "a burst a thousand hours ago": ([(900 * MB, 1000), (900 * MB, 1000), (900 * MB, 999.9)], 500),
    "a burst of now counts": ([(900 * MB, 1), (1800 * MB, 0.5), (1800 * MB, 0)], MB),
    "producers whose clocks are two hours ahead": ([(MB, 2), (7.2 * MB, 0), (7.2 * MB, -2)], 1000),
    "segments without a timestamp are no beginning": ([(9 * MB, NO_TIME), (9 * MB, 1), (3.6 * MB, NO_TIME)], 1000),
    "none has a timestamp": ([(9 * MB, NO_TIME), (9 * MB, NO_TIME)], 0),
    "nothing but an active segment": ([(9 * MB, 1)], 0),
    "an empty active segment": ([(9 * MB, 1), (0, NO_TIME)], 0),
    "all of it in this millisecond": ([(9 * MB, 0), (9 * MB, 0)], 0),
    "nothing at all": ([], 0),
}


@pytest.mark.parametrize(("segments", "expected"), EXAMPLES.values(), ids=EXAMPLES)
def test_bytes_per_second(segments, expected):
    sized = [(int(size_bytes), hours_ago) for size_bytes, hours_ago in segments]
    assert bytes_per_second(log(*sized), NOW_MS) == pytest.approx(expected)


# Two open handovers of one name: the topic was created again before the first one was recorded.

OLD, NOW, OTHER = uuid(1), uuid(2), uuid(3)


def handover(topic_id: Uuid, began_at_ms: int, topic: str = "orders") -> Any:
    return SimpleNamespace(topic=topic, topic_id=topic_id, began_at_ms=began_at_ms)


@pytest.fixture
def latest_of(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Of "orders", whose id by the brokers is NOW, or None if they do not know it."""

    def latest_of(*open_ones: Any, topic_id: Uuid | None = NOW) -> Handover | None:
        def known(_self: HandoverService, topic: str) -> Uuid:
            if topic_id is None:
                raise UnknownTopicError(f"no topic {topic}")
            return topic_id

        monkeypatch.setattr(HandoverService, "topic_to_hand_over", known)
        ended = SimpleNamespace(open_handovers=lambda: open_ones, latest=lambda topic_id: ("ended", topic_id))
        others = ("ports", "brokers", "require_free_broker_id", "ownership", "recorder", "random_bytes")
        parts: dict[str, Any] = {"handovers": ended, **dict.fromkeys(others)}
        return HandoverService(**parts).latest_of("orders")

    return latest_of


def test_that_of_the_topic_of_now_comes_first(latest_of: Any) -> None:
    """Found by simulation, seed 9017290: the older topic's was taken each time, and the other one never ended."""
    old, now = handover(OLD, 200), handover(NOW, 100)
    assert latest_of(old, now) is now
    assert latest_of(now, old) is now


def test_the_other_one_follows(latest_of: Any) -> None:
    old = handover(OLD, 200)
    assert latest_of(old) is old
    assert latest_of(old, topic_id=None) is old


def test_without_a_topic_of_now_the_newest_comes_first(latest_of: Any) -> None:
    older, newer = handover(OLD, 100), handover(OTHER, 200)
    assert latest_of(older, newer, topic_id=None) is newer
    assert latest_of(newer, older, topic_id=None) is newer


def test_none_is_open(latest_of: Any) -> None:
    assert latest_of(handover(OTHER, 1, "payments")) == ("ended", NOW)


# Nothing is handed over that nobody has read as a whole, if that is asked for; and each byte is read once.


@pytest.fixture
def deep_world(tmp_path):
    with handover_world(tmp_path, segments=2) as made:
        made.limits = replace(made.limits, verify_deep=True)
        made.begin()
        yield made


def spans(deep_world):
    return sorted((one.topic_id_partition.partition, one.start_offset) for one in deep_world.verified)


def look(deep_world, *, is_deep):
    """At everything that was copied: it is as it should be."""
    for partition in deep_world.partitions:
        for row in deep_world.copying.metadata.list_segments(partition):
            segment_id = row.metadata.remote_log_segment_id
            deep_world.copying.metadata.record_verification(Verification(segment_id, before=row, is_deep=is_deep))


def test_what_was_passed_by_a_shallow_verification_is_read_whole_once(deep_world):
    deep_world.carry_on(until=HandoverStep.COPY)
    look(deep_world, is_deep=False)
    deep_world.up_to(HandoverStep.RECHECK)
    assert spans(deep_world) == [(0, 0), (0, 10), (1, 0), (1, 10)]
    assert "every byte of 4 segments is read, 3.9 KiB" in deep_world.messages
    assert deep_world.carry_on().state is HandoverState.DONE
    assert len(deep_world.verified) == 4


def test_what_a_deep_verification_has_passed_is_not_read_again(deep_world):
    deep_world.carry_on(until=HandoverStep.COPY)
    look(deep_world, is_deep=True)
    assert deep_world.carry_on().step is HandoverStep.APPROVAL
    assert deep_world.verified == []


def test_what_was_rolled_behind_the_approval_is_read_too(deep_world):
    deep_world.carry_on()
    deep_world.approve()
    deep_world.verified.clear()
    for partition in (0, 1):
        deep_world.roll(partition)
    deep_world.copying.work.save_plan("late", deep_world.copying.planned("late").partitions)
    deep_world.copying.batch("late", "late/0")
    look(deep_world, is_deep=False)
    assert deep_world.carry_on().state is HandoverState.DONE
    assert spans(deep_world) == [(0, 20), (1, 20)]


def test_what_it_finds_stops_the_hand_over(deep_world):
    deep_world.carry_on(until=HandoverStep.COPY)
    look(deep_world, is_deep=False)
    deep_world.verdict = Verdict.FAILED
    stopped = deep_world.carry_on()
    assert (stopped.step, stopped.state) == (HandoverStep.QUALITY_CHECK, HandoverState.STOPPED)
    assert "Q102: as the test wants" in stopped.detail


def test_switched_off_a_shallow_verification_is_enough(deep_world):
    deep_world.limits = replace(deep_world.limits, verify_deep=False)
    deep_world.carry_on(until=HandoverStep.COPY)
    look(deep_world, is_deep=False)
    assert deep_world.carry_on().step is HandoverStep.APPROVAL
    assert deep_world.verified == []
    assert not [line for line in deep_world.messages if "read back" in line]
