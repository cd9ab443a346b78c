"""How far local retention goes down, which records are compared on the way, and who may still do it."""

from dataclasses import replace

import pytest

from include.tiering.errors import LeaseLostError
from include.tiering.handover.contract import LocalRetention
from include.tiering.handover.rules import HandoverState, HandoverStep, kept_bytes, levels, next_local_start
from tests.doubles.handover_world import HANDOVER_ID, TOPIC, TOPIC_ID, WorldActions, handover_world
from tests.unit.handover.test_steps import LOG, Segment

LOCAL_BYTES = "log.local.retention.bytes"


def compared(world, partition=0):
    begin = f"orders-{partition}: offsets "
    found = [
        line.removeprefix(begin) for line in world.messages if line.startswith(begin) and "are remote only" in line
    ]
    return [line.partition(" are remote only, ")[::2] for line in found]


def set_levels(world):
    return [line.partition(" ")[0].partition("=")[2] for line in world.messages if line.startswith("local.retention.b")]


def test_what_is_handed_over_is_compared_to_its_last_offset(tmp_path):
    """With a limit of 0 everything that was rolled becomes remote only, the last segment of the seed as well."""
    with handover_world(tmp_path, partitions=1, segments=3) as world:
        world.begin(LocalRetention(None, 0))
        world.up_to(HandoverStep.LOCAL_RETENTION)
        assert world.carry_on().state is HandoverState.DONE
        assert compared(world) == [
            ("0..9", "10 records equal"),
            ("10..19", "10 records equal"),
            ("20..29", "10 records equal"),
        ]
        assert [one.compared_offset for one in world.handovers.seed(HANDOVER_ID)] == [30]


def test_what_was_rolled_after_the_seed_is_the_brokers_own_and_not_compared(tmp_path):
    with handover_world(tmp_path, partitions=1, segments=2) as world:
        world.begin(LocalRetention(None, 0))
        world.up_to(HandoverStep.LOCAL_RETENTION)
        assert [one.end_offset for one in world.handovers.seed(HANDOVER_ID)] == [19]
        world.roll(0)
        assert world.carry_on().state is HandoverState.DONE
        assert [offsets for offsets, _ in compared(world)] == ["0..9", "10..19"]


@pytest.mark.parametrize(("log_start", "first"), [(9, "9..9"), (10, "10..19"), (13, "13..19"), (19, "19..19")])
def test_records_below_the_log_start_are_served_by_nobody_and_not_compared(tmp_path, log_start, first):
    """Down to a single record, if that is all that is left of a segment."""
    with handover_world(tmp_path, partitions=1, segments=3) as world:
        world.begin(LocalRetention(None, 0))
        world.up_to(HandoverStep.LOCAL_RETENTION)
        world.brokers.partition(TOPIC_ID, 0).earliest = log_start
        assert world.carry_on().state is HandoverState.DONE
        offsets, records = compared(world)[0]
        assert offsets == first
        begin, end = map(int, first.split(".."))
        assert records == f"{end - begin + 1} records equal"


@pytest.mark.parametrize(
    ("defaults", "reached"),
    [
        # No broker has a default: local retention is unlimited, nothing is lowered.
        ([None, None], []),
        (["-2", "-1"], []),
        # The lowest default of all brokers counts, and 0 is a limit as well as any other.
        (["0", None], ["0"]),
        (["2000", "0"], ["0"]),
        (["2000", "3000"], ["2000"]),
        (["-1", "2000"], ["2000"]),
    ],
)
def test_without_a_value_of_the_topic_the_lowest_default_of_the_brokers_holds(tmp_path, defaults, reached):
    with handover_world(tmp_path, partitions=1, segments=4) as world:
        world.brokers.alter_topic_configs(TOPIC, {"local.retention.bytes": None})
        world.brokers.topic_defaults["local.retention.bytes"] = "2000"
        first = next(iter(world.brokers.nodes))
        second = max(world.brokers.nodes) + 1
        world.brokers.nodes[second] = world.brokers.nodes[first].__class__(second, "localhost", 2)
        for broker, default in zip((first, second), defaults, strict=True):
            world.brokers.broker_configs_set[broker] = {} if default is None else {LOCAL_BYTES: default}
        world.begin()
        world.up_to(HandoverStep.LOCAL_RETENTION)
        world.messages.clear()
        world.carry_on()
        assert [level for level in set_levels(world) if level.isdigit()][-1:] == reached


def test_a_level_is_never_above_the_topics_retention_bytes(tmp_path):
    """Kafka refuses such a value; the level that equals it is allowed."""
    with handover_world(tmp_path, partitions=1, segments=8) as world:
        world.brokers.alter_topic_configs(TOPIC, {"retention.bytes": "5000", "local.retention.bytes": "2000"})
        world.brokers.alter_topic_configs(TOPIC, {"retention.bytes": "900000"})
        world.begin(LocalRetention(None, 2_000))
        world.up_to(HandoverStep.LOCAL_RETENTION)
        world.brokers.alter_topic_configs(TOPIC, {"retention.bytes": "5500"})
        world.messages.clear()
        world.carry_on()
        found = [int(level) for level in set_levels(world) if level.isdigit()]
        assert found
        assert max(found) <= 5_500
        assert found[-1] == 2_000


def test_each_round_of_copying_renews_the_lease_and_who_lost_it_copies_no_more(tmp_path):
    with handover_world(tmp_path, partitions=1, segments=2) as world:
        world.begin()
        world.carry_on(until=HandoverStep.OVERRIDES)
        rounds = []

        def at(name):
            if name == "copy_round!":
                rounds.append(name)
                world.roll(0)
                world.handovers.drive(HANDOVER_ID, "driver", lease_ms=60_000)

        world.at = at
        with pytest.raises(LeaseLostError):
            world.carry_on(until=HandoverStep.COPY)
        assert len(rounds) == 1


# The rules alone, at their bounds.


@pytest.mark.parametrize(
    ("has", "wants", "steps", "found"),
    [
        (100, 100, 4, []),
        (100, 101, 4, []),
        (100, 99, 4, [99]),
        (100, 0, 4, [75, 50, 25, 0]),
        (100, 0, 1, [0]),
        (10, 7, 8, [9, 8, 7]),
        (0, 0, 8, []),
    ],
)
def test_levels(has, wants, steps, found):
    assert levels(has, wants, steps) == found


@pytest.mark.parametrize(
    ("limit_ms", "limit_bytes", "stays"),
    [
        (-1, -1, 340),
        # By size a segment goes while what is above the limit is at least as much as it has.
        (-1, 241, 340),
        (-1, 240, 240),
        (-1, 140, 140),
        (-1, 0, 40),
        # By time it goes once its newest record is older than the limit, not when it is just as old.
        (3_000, -1, 340),
        (2_999, -1, 240),
        (2_000, -1, 240),
        (0, -1, 40),
        # One of the two is enough.
        (2_999, 140, 140),
        (0, 240, 40),
    ],
)
def test_what_brokers_keep_once_everything_is_remote(limit_ms, limit_bytes, stays):
    assert kept_bytes(LOG, limit_ms, limit_bytes, now_ms=4_000) == stays


def test_a_younger_segment_keeps_those_behind_it():
    log = [Segment(0, 9, max_timestamp_ms=9_000), Segment(10, 19, max_timestamp_ms=1_000)]
    assert kept_bytes(log, 1_000, -1, now_ms=9_500) == 200
    assert kept_bytes([], 0, 0, now_ms=1) == 0


@pytest.mark.parametrize(("latest_tiered", "start"), [(8, None), (9, 10), (18, 10), (19, 20)])
def test_a_segment_goes_when_its_last_offset_is_remote(latest_tiered, start):
    assert next_local_start(LOG, 0, latest_tiered) == start


def test_each_comparison_renews_the_lease_and_who_lost_it_reads_no_more(tmp_path, monkeypatch):
    """What is compared is read from the store and from the brokers: that costs both of their quotas."""
    with handover_world(tmp_path, partitions=1, segments=3) as world:
        world.begin(LocalRetention(None, 0))
        world.up_to(HandoverStep.LOCAL_RETENTION)
        read = []
        real = WorldActions.stored_digest

        def counted(actions, partition, start_offset, end_offset):
            read.append((start_offset, end_offset))
            return real(actions, partition, start_offset, end_offset)

        monkeypatch.setattr(WorldActions, "stored_digest", counted)

        def at(name):
            if name == "note_compared!":
                world.handovers.drive(HANDOVER_ID, "driver", lease_ms=60_000)

        world.at = at
        with pytest.raises(LeaseLostError):
            world.carry_on()
        assert len(read) == 1


@pytest.mark.parametrize(("settle_seconds", "least_seconds"), [(0.0, 0.0), (90.0, 90.0)])
def test_brokers_get_their_time_to_delete_and_then_the_step_goes_on(tmp_path, settle_seconds, least_seconds):
    """Brokers that delete nothing: each level is waited for, no longer than is set."""
    with handover_world(tmp_path, partitions=1, segments=3) as world:
        world.limits = replace(world.limits, settle_seconds=settle_seconds, local_steps=1)
        world.begin(LocalRetention(None, 0))
        world.up_to(HandoverStep.LOCAL_RETENTION)
        world.brokers.after_call = lambda _: None
        began = world.clock.monotonic()
        world.carry_on()
        waited = world.clock.monotonic() - began
        assert least_seconds <= waited <= 3 * least_seconds + 3 * world.limits.poll_seconds
        assert compared(world) == []


def test_producers_that_roll_as_fast_as_is_copied_end_the_rounds_after_as_many_as_are_set(tmp_path):
    with handover_world(tmp_path, partitions=1, segments=1) as world:
        world.limits = replace(world.limits, max_rounds=3)
        world.begin()
        world.carry_on(until=HandoverStep.OVERRIDES)
        rounds = []

        def at(name):
            if name == "copy_round!":
                rounds.append(name)
                assert len(rounds) <= 3
                world.roll(0)

        world.at = at
        waiting = world.carry_on(until=HandoverStep.COPY)
        assert (waiting.step, waiting.state, len(rounds)) == (HandoverStep.COPY, HandoverState.ACTIVE, 3)
        assert waiting.detail == "after 3 rounds producers still roll segments as fast as they are copied"
