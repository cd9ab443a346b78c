"""When retention.bytes comes back: with it in force, a broker that starts again must delete nothing within it."""

from dataclasses import replace

import pytest
from sqlalchemy import text

from include.tiering.handover.contract import ALONE_MS, LocalRetention, forgotten_handovers
from include.tiering.handover.report import latest_checks
from include.tiering.handover.rules import HandoverState, HandoverStep
from include.tiering.kafka.log_dirs.contract import ReplicaId
from include.tiering.operations.doctor import diagnose_handovers
from tests.doubles.handover_world import SEGMENT_BYTES, TOPIC, TOPIC_ID, handover_world

TOTAL = "11000"
ONE = LocalRetention(None, SEGMENT_BYTES)


@pytest.fixture
def world(tmp_path):
    """Eight rolled segments and an active one, of 1,000 bytes each, on brokers that may count them twice."""
    with handover_world(tmp_path, partitions=2, segments=8) as made:
        retention = {"retention.bytes": TOTAL, "retention.ms": "604800000", "local.retention.bytes": None}
        made.brokers.alter_topic_configs(TOPIC, retention)
        yield made


def lost_by_restarts(world):
    """The partitions of which a broker that starts now would delete records within retention.bytes."""
    configs = world.brokers.own_configs(TOPIC)
    limit = int(configs.get("retention.bytes", "-1"))
    if limit < 0 or configs.get("remote.storage.enable") != "true":
        return []
    lost = []
    for partition in world.partitions:
        model = world.brokers.partition(TOPIC_ID, partition.partition)
        segments = world.copying.source.replicas[ReplicaId(partition, 1, "memory")].segments
        remote = [one.metadata for one in world.copying.metadata.list_segments(partition)]
        has_both = any(one.end_offset >= (model.earliest_local or 0) for one in remote)
        total = sum(one.segment_size_bytes for one in remote) + sum(one.size_bytes for one in segments)
        if has_both and total - limit >= SEGMENT_BYTES:
            lost.append(partition.partition)
    return lost


def watched(world):
    """What restarts would lose, asked after every change of configs."""
    lost = []

    def at(name):
        if name == "alter_topic_configs!":
            lost.extend(lost_by_restarts(world))

    world.at = at
    return lost


def test_local_retention_goes_down_first_and_no_restart_loses_anything(world):
    lost = watched(world)
    world.begin(ONE)
    world.up_to(HandoverStep.RETENTION)
    world.carry_on(until=HandoverStep.RETENTION)
    assert (world.configs["retention.ms"], world.configs["retention.bytes"]) == ("604800000", "-1")
    assert world.carry_on().state is HandoverState.DONE
    assert (world.configs["retention.bytes"], world.configs["local.retention.bytes"]) == (TOTAL, "1000")
    assert lost == []


def test_it_waits_while_brokers_keep_their_local_segments(world):
    lost = watched(world)
    world.begin(ONE)
    world.up_to(HandoverStep.LOCAL_RETENTION)
    world.forgetful = True
    waiting = world.carry_on()
    assert (waiting.state, waiting.step) == (HandoverState.ACTIVE, HandoverStep.LOCAL_RETENTION)
    assert "8000 remote and 9000 local bytes, 8000 of them in both places" in waiting.detail
    assert (world.configs["retention.bytes"], world.configs["local.retention.bytes"]) == ("-1", "1000")
    world.forgetful = False
    assert world.carry_on().state is HandoverState.DONE
    assert world.configs["retention.bytes"] == TOTAL
    assert lost == []


def test_a_larger_limit_that_is_set_meanwhile_comes_back_instead(world):
    world.begin(ONE)
    world.up_to(HandoverStep.LOCAL_RETENTION)
    world.forgetful = True
    world.carry_on()
    world.brokers.alter_topic_configs(TOPIC, {"retention.bytes": "12000"})
    world.carry_on()
    assert world.configs["retention.bytes"] == "-1"
    world.brokers.alter_topic_configs(TOPIC, {"retention.bytes": "50000"})
    assert world.carry_on().state is HandoverState.DONE
    assert world.configs["retention.bytes"] == "50000"


@pytest.mark.parametrize("wanted", [LocalRetention(), LocalRetention(None, 5_000)], ids=["all-kept", "half-kept"])
def test_where_it_could_never_come_back_nothing_begins(world, wanted):
    world.begin(wanted)
    stopped = world.carry_on()
    assert (stopped.state, stopped.step) == (HandoverState.STOPPED, HandoverStep.PRECONDITIONS)
    assert "retention-bytes-can-come-back" in stopped.detail
    assert f"retention.bytes {TOTAL}" in stopped.detail
    assert world.configs["retention.bytes"] == TOTAL


def test_what_producers_brought_since_counts_before_anybody_is_asked(world):
    world.begin(LocalRetention(None, 2_000))
    world.brokers.alter_topic_configs(TOPIC, {"retention.bytes": "11200"})
    world.carry_on(until=HandoverStep.PRECONDITIONS)
    assert world.handover.step is HandoverStep.OVERRIDES
    world.roll(0)
    stopped = world.carry_on()
    assert (stopped.state, stopped.step) == (HandoverState.STOPPED, HandoverStep.QUALITY_CHECK)
    assert "retention-bytes-can-come-back (partition 0)" in stopped.detail


def test_a_handover_that_began_with_the_other_order_ends_with_it(world):
    world.begin(ONE)
    with world.handovers._engine.begin() as connection:
        connection.execute(text("UPDATE handovers SET retention_order = NULL"))
    world.up_to(HandoverStep.LOCAL_RETENTION)
    assert world.configs["retention.bytes"] == TOTAL
    assert lost_by_restarts(world) == [0, 1], "what the order is for"
    assert world.carry_on().state is HandoverState.DONE


def test_what_producers_brought_while_a_person_was_asked_counts_before_anything_is_published(world):
    world.begin(LocalRetention(None, 2_000))
    world.brokers.alter_topic_configs(TOPIC, {"retention.bytes": "11200"})
    world.carry_on()
    world.approve()
    world.roll(0)
    stopped = world.carry_on()
    assert (stopped.state, stopped.step) == (HandoverState.STOPPED, HandoverStep.RECHECK)
    assert "retention-bytes-can-come-back (partition 0)" in stopped.detail
    world.undo()
    assert world.handover.state is HandoverState.UNDONE
    assert world.configs["retention.bytes"] == "11200"


def test_total_retention_that_is_set_below_local_retention_meanwhile_stops_it_before_anything_is_published(world):
    world.begin(LocalRetention(None, 1_000))
    world.carry_on(until=HandoverStep.PRECONDITIONS)
    world.brokers.alter_topic_configs(TOPIC, {"retention.bytes": "999"})
    stopped = world.carry_on()
    assert (stopped.state, stopped.step) == (HandoverState.STOPPED, HandoverStep.QUALITY_CHECK)
    checks = world.handovers.checks(stopped.handover_id, HandoverStep.QUALITY_CHECK)
    (said,) = (one for one in checks if one.name == "local-retention-fits-total")
    assert said.numbers == "local.retention.bytes would be 1000 at the end, more than retention.bytes 999"


@pytest.fixture
def kept(world):
    """At the last step, with more local bytes than the limit allows: it was lowered when that could not be seen."""
    world.brokers.alter_topic_configs(TOPIC, {"retention.bytes": "16000"})
    world.begin(LocalRetention(None, 5_000))
    world.up_to(HandoverStep.LOCAL_RETENTION)
    world.brokers.alter_topic_configs(TOPIC, {"retention.bytes": "14000"})
    return world


def test_where_brokers_delete_no_more_it_does_not_wait_for_ever(kept):
    stopped = kept.carry_on()
    assert (stopped.state, stopped.step) == (HandoverState.STOPPED, HandoverStep.LOCAL_RETENTION)
    assert "8000 remote and 5000 local bytes, 4000 of them in both places, are more than 90%" in stopped.detail
    assert "; brokers delete no more of them with local.retention.bytes 5000 and 1000 bytes in the" in stopped.detail
    (said,) = diagnose_handovers([(stopped, latest_checks(kept.handovers, stopped))])
    assert said.finding.endswith(stopped.detail)
    assert "set a lower local.retention.bytes" in said.advice
    assert said.advice.endswith("; ./tiering handover orders --resume")


def test_where_time_lets_them_go_it_waits(kept):
    kept.brokers.alter_topic_configs(TOPIC, {"local.retention.ms": "600000"})
    kept.forgetful = True
    assert kept.carry_on().state is HandoverState.ACTIVE


def test_a_local_retention_that_is_set_then_stays_and_ends_it(kept):
    kept.carry_on()
    kept.brokers.alter_topic_configs(TOPIC, {"local.retention.bytes": "0"})
    done = kept.carry_on(resume=True)
    assert done.state is HandoverState.DONE
    assert (kept.configs["retention.bytes"], kept.configs["local.retention.bytes"]) == ("14000", "0")
    assert all(seeded.compared_offset == 80 for seeded in kept.handovers.seed(done.handover_id))


def test_the_watch_says_what_it_waits_for_and_that_no_undo_helps(kept):
    kept.forgetful = True
    kept.carry_on()
    waiting = kept.handover
    (found,) = forgotten_handovers([waiting], waiting.updated_at_ms + ALONE_MS + 1)
    assert waiting.detail in found.message
    assert found.message.endswith("./tiering handover orders --resume")


def test_where_brokers_are_declared_to_count_once_both_come_back_at_once(world):
    world.limits = replace(world.limits, count_once=True)
    world.begin()
    world.up_to(HandoverStep.LOCAL_RETENTION)
    assert world.configs["retention.bytes"] == TOTAL


def test_brokers_of_a_release_with_the_fix_need_no_declaration(world):
    nodes = {
        broker: replace(node, supported_features={"metadata.version": 31})
        for broker, node in world.brokers.nodes.items()
    }
    world.brokers.nodes = nodes
    world.begin()
    world.up_to(HandoverStep.LOCAL_RETENTION)
    assert world.configs["retention.bytes"] == TOTAL


def test_a_broker_that_is_away_is_not_known_to_have_the_fix(world):
    """In the middle of an upgrade it is the last one of the old release, and comes back with it."""
    new = replace(world.brokers.nodes[1], supported_features={"metadata.version": 31})
    world.brokers.nodes = {1: new, 2: replace(new, broker_id=2)}
    world.brokers.partition(TOPIC_ID, 1).replicas = (1, 2)
    world.begin(ONE)
    world.up_to(HandoverStep.RETENTION)
    away = world.brokers.nodes.pop(2)
    world.carry_on(until=HandoverStep.RETENTION)
    assert world.configs["retention.bytes"] == "-1"
    waiting = world.carry_on()
    assert (waiting.state, waiting.step) == (HandoverState.ACTIVE, HandoverStep.LOCAL_RETENTION)
    assert "broker 2, which has a replica, does not tell the size of its log" in waiting.detail
    world.brokers.nodes[2] = away
    world.brokers.partition(TOPIC_ID, 1).follower_bytes = {2: 1_000}
    assert world.carry_on().state is HandoverState.DONE
    assert world.configs["retention.bytes"] == TOTAL


def test_a_follower_that_keeps_its_local_segments_is_waited_for(world):
    """The leader has deleted them; if the follower leads after a start, it counts them once more."""
    world.brokers.nodes[2] = replace(world.brokers.nodes[1], broker_id=2)
    model = world.brokers.partition(TOPIC_ID, 1)
    model.replicas, model.follower_bytes = (1, 2), {2: 9_000}
    world.begin(ONE)
    world.up_to(HandoverStep.LOCAL_RETENTION)
    waiting = world.carry_on()
    assert (waiting.state, waiting.step) == (HandoverState.ACTIVE, HandoverStep.LOCAL_RETENTION)
    assert "broker 2, which has a replica, has 9000 local bytes, the leader" in waiting.detail
    assert world.configs["retention.bytes"] == "-1"
    model.follower_bytes = {2: 1_000}
    assert world.carry_on().state is HandoverState.DONE
    assert world.configs["retention.bytes"] == TOTAL


def test_a_broker_that_is_away_keeps_a_handover_from_beginning(world):
    world.brokers.partition(TOPIC_ID, 1).replicas = (1, 2)
    world.begin(ONE)
    waiting = world.carry_on()
    assert (waiting.state, waiting.step) == (HandoverState.ACTIVE, HandoverStep.PRECONDITIONS)
    assert "broker 2 has replicas of the topic and does not describe itself" in waiting.detail


def test_undone_while_it_waits_both_come_back(world):
    """Somebody switched remote storage off by hand."""
    world.begin(ONE)
    world.up_to(HandoverStep.LOCAL_RETENTION)
    world.forgetful = True
    world.carry_on()
    off = {"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"}
    world.brokers.alter_topic_configs(TOPIC, off)
    world.undo()
    assert world.configs["retention.bytes"] == TOTAL


def test_brokers_that_delay_their_copies_are_neither_waited_for_nor_at_fault(world):
    """As `remote.copy.lag.ms` of Kafka 4.4: what is rolled after the fence stays on the broker for that long."""
    world.begin(ONE)
    world.brokers.topic_defaults["remote.copy.lag.ms"] = "-1"
    world.brokers.alter_topic_configs(TOPIC, {"remote.copy.lag.ms": "86400000"})
    world.up_to(HandoverStep.SWITCH)
    for _ in range(3):
        world.roll(0)
    world.brokers.add_partition(TOPIC_ID, 2)  # It is new: nothing of it was published, and brokers upload nothing yet.
    world.put(2, 1)
    assert world.carry_on().state is HandoverState.DONE
    assert world.configs["retention.bytes"] == TOTAL
    checks = world.handovers.checks(world.handover.handover_id)
    assert [one for one in checks if one.outcome in ("waiting", "refused")] == []
