"""Every named check of a handover: it passes where all is well, and refuses, alone, what it is there for."""

from dataclasses import replace
from typing import Final

import pytest

from include.tiering.handover.checks import (
    BrokerDiskSpace,
    CheckOutcome,
    FrozenPartition,
    HandoverEvidence,
    MetadataTopicState,
    PublishedSegment,
    results_of,
    worst,
)
from include.tiering.handover.pitfalls import CHECKS, PITFALLS
from include.tiering.handover.rules import STEPS, HandoverStep, RetentionOrder
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.segments import Verdict
from tests.doubles.handover_evidence import (
    ORDERS,
    sound_evidence,
    with_broker,
    with_configs,
    with_offsets,
    with_partition,
    with_replica,
    with_segment,
    without_segments,
)
from tests.doubles.segments import FINISHED, segment_of, uuid

NOTE, WAITING, REFUSED = CheckOutcome.NOTE, CheckOutcome.WAITING, CheckOutcome.REFUSED
BEFORE, QUALITY_CHECK, LAST = HandoverStep.PRECONDITIONS, HandoverStep.QUALITY_CHECK, HandoverStep.RECHECK
WATCH, LOCAL_RETENTION = HandoverStep.WATCH, HandoverStep.LOCAL_RETENTION
SOUND = sound_evidence()
BEGUN = replace(SOUND, owner=TopicOwner.PLATFORM, frozen={})
SWITCHED = with_configs(with_offsets(SOUND, latest_tiered=299), remote_storage_enable="true")


FETCHED = with_offsets(
    with_replica(BEGUN, found_to=320, leader_epoch=4, local_bytes=3_300, active_bytes=300, segment_bytes=1_000),
    in_sync_replicas=2,
)
"""The same, read from the leader over the network."""


def published(**values):
    known = PublishedSegment(0, SOUND.partitions[0].seed[0].metadata.remote_log_segment_id.id, 0, 99, True)
    return MetadataTopicState(SOUND.metadata_topic.configs, (), (replace(known, **values),))


def metadata_topic(**configs):
    changed = {**SOUND.metadata_topic.configs, **{name.replace("_", "."): value for name, value in configs.items()}}
    return MetadataTopicState(changed)


def both_places(*, remote_bytes: int, local_bytes: int, earliest_local: int = 0) -> HandoverEvidence:
    """One remote segment, 0..299, and the leader's disk."""
    segment = PublishedSegment(0, uuid(1), 0, 299, is_ours=True, size_bytes=remote_bytes)
    evidence = replace(SWITCHED, metadata_topic=MetadataTopicState({}, (), (segment,)))
    return with_replica(evidence, local_bytes=local_bytes, active_bytes=1_000, earliest_local=earliest_local)


PROVOKED = [
    (BEFORE, "topic-is-the-same", REFUSED, replace(BEGUN, topic_id_now=None), "no topic of this name"),
    (LAST, "topic-is-the-same", REFUSED, replace(SOUND, topic_id_now=uuid(77)), str(uuid(77))),
    (BEFORE, "topic-is-ours", REFUSED, replace(BEGUN, owner=TopicOwner.BROKER), "broker"),
    (LAST, "topic-is-fenced-off", REFUSED, replace(SOUND, owner=TopicOwner.PLATFORM), "platform"),
    (LAST, "no-copier-is-left", WAITING, replace(SOUND, leases=("orders-0: batch b-1 copies",)), "b-1"),
    (BEFORE, "brokers-have-remote-storage", REFUSED, with_broker(BEGUN, remote_storage_system=False), "broker 1"),
    (
        BEFORE,
        "brokers-have-remote-storage",
        WAITING,
        replace(BEGUN, silent_brokers=frozenset({7})),
        "broker 7 has replicas of the topic and does not describe itself",
    ),
    (BEFORE, "brokers-are-new-enough", REFUSED, with_broker(BEGUN, lists_remote_offsets=False), "older than 3.9"),
    (BEFORE, "topic-is-not-compacted", REFUSED, with_configs(BEGUN, cleanup_policy="compact,delete"), "compact"),
    (BEFORE, "brokers-do-not-tier-it", REFUSED, with_configs(BEGUN, remote_storage_enable="true"), "is true"),
    (BEFORE, "brokers-do-not-tier-it", REFUSED, with_configs(BEGUN, remote_log_copy_disable="true"), "copy.disable"),
    (LAST, "brokers-do-not-tier-it", REFUSED, with_offsets(SOUND, latest_tiered=0), "up to 0"),
    (BEFORE, "metadata-topic-exists", REFUSED, replace(BEGUN, metadata_topic=None), "no __remote_log_metadata"),
    (BEFORE, "metadata-topic-keeps-all", REFUSED, replace(BEGUN, metadata_topic=metadata_topic(retention_ms="9")), "9"),
    (
        BEFORE,
        "metadata-topic-keeps-all",
        REFUSED,
        replace(BEGUN, metadata_topic=metadata_topic(cleanup_policy="compact")),
        "compact instead of delete",
    ),
    (
        BEFORE,
        "metadata-topic-is-readable",
        REFUSED,
        replace(BEGUN, metadata_topic=MetadataTopicState({}, ("partition 3, offset 17: unknown api key 9",))),
        "offset 17",
    ),
    (BEFORE, "layout-is-the-brokers", REFUSED, with_broker(BEGUN, storage_manager_class="com.example.Rsm"), "example"),
    (BEFORE, "layout-is-the-brokers", NOTE, with_broker(BEGUN, storage_manager_class=None), "does not show"),
    (BEFORE, "store-is-the-brokers", REFUSED, with_broker(BEGUN, storage_directory="/elsewhere"), "/elsewhere"),
    (BEFORE, "store-is-the-brokers", NOTE, with_broker(BEGUN, storage_directory=None), "secret"),
    (
        LAST,
        "bounds-are-exact",
        WAITING,
        with_partition(SOUND, lambda one: replace(one, offsets=None, problem="no answer in 5000 ms")),
        "no answer",
    ),
    (BEFORE, "leader-is-read", REFUSED, with_partition(BEGUN, lambda one: replace(one, replica=None)), "broker 1"),
    (BEFORE, "leader-is-read", WAITING, with_replica(BEGUN, broker_id=2), "replica of broker 2 was read"),
    (BEFORE, "leader-is-read", WAITING, with_replica(FETCHED, leader_epoch=3), "in epoch 3, and leads in epoch 4"),
    (BEFORE, "leader-is-read", REFUSED, with_replica(FETCHED, local_bytes=None), "does not tell the size of its log"),
    (BEFORE, "disks-have-room", REFUSED, replace(BEGUN, hold_seconds=1_000_001), "1000001000"),
    (BEFORE, "disks-have-room", NOTE, with_replica(FETCHED, bytes_per_second=None), "too little is read"),
    (
        BEFORE,
        "disks-have-room",
        REFUSED,
        replace(FETCHED, disks=tuple(replace(disk, free_bytes=None) for disk in BEGUN.disks)),
        "does not tell how much of its disks is free; 1 h of new records need 3600000 bytes",
    ),
    (
        BEFORE,
        "disks-have-room",
        REFUSED,
        replace(FETCHED, disks=(BrokerDiskSpace(1, None, "the broker cannot use its disk"),)),
        "is free (the broker cannot use its disk); 1 h",
    ),
    (
        BEFORE,
        "disks-have-room",
        NOTE,
        replace(BEGUN, disks=tuple(replace(disk, free_bytes=None) for disk in BEGUN.disks)),
        "3600000",
    ),
    (LAST, "retention-bytes-is-guarded", REFUSED, with_configs(SOUND, retention_bytes="900000"), "900000"),
    (LAST, "retention-ms-is-guarded", REFUSED, with_configs(SOUND, retention_ms="604800000"), "604800000"),
    (LAST, "local-retention-is-guarded", REFUSED, with_configs(SOUND, local_retention_bytes="1000"), "1000"),
    (QUALITY_CHECK, "seed-begins-at-log-start", REFUSED, without_segments(BEGUN, 0), "first seeded offset is 100"),
    (QUALITY_CHECK, "seed-begins-at-log-start", REFUSED, without_segments(BEGUN, 0, 1, 2), "nothing is seeded"),
    (LAST, "seed-has-no-gap", REFUSED, without_segments(SOUND, 1), "100..199"),
    (QUALITY_CHECK, "seed-reaches-active-segment", NOTE, with_replica(BEGUN, waiting=((300, "above the LSO"),)), "300"),
    (QUALITY_CHECK, "seed-reaches-active-segment", NOTE, FETCHED, "whose own segments end elsewhere"),
    (
        QUALITY_CHECK,
        "seed-reaches-active-segment",
        NOTE,
        with_replica(FETCHED, active_bytes=1_001),
        "1001 bytes from offset 300 on are not remote",
    ),
    (QUALITY_CHECK, "seed-is-stable", REFUSED, with_offsets(BEGUN, last_stable_offset=299), "last stable offset 299"),
    (QUALITY_CHECK, "seed-is-stable", REFUSED, with_offsets(BEGUN, high_watermark=250), "high watermark is 250"),
    (QUALITY_CHECK, "seed-is-flushed", WAITING, with_replica(BEGUN, recovery_point=200), "below 200"),
    (
        QUALITY_CHECK,
        "seed-is-flushed",
        WAITING,
        with_offsets(with_replica(FETCHED, recovery_point=200), in_sync_replicas=1),
        "below 200",
    ),
    (QUALITY_CHECK, "seed-is-flushed", NOTE, with_offsets(FETCHED, in_sync_replicas=1), "broker 1 alone has"),
    (
        LAST,
        "epochs-are-the-leaders",
        REFUSED,
        with_replica(SOUND, leader_epochs=LeaderEpochs.of([(0, 0), (5, 150)])),
        "(3, 150)",
    ),
    (
        LAST,
        "epochs-are-the-leaders",
        REFUSED,
        with_segment(SOUND, 2, segment_leader_epochs=LeaderEpochs.of([(2, 200), (3, 200)])),
        "(2, 200)",
    ),
    (
        QUALITY_CHECK,
        "seed-passed-the-gate",
        REFUSED,
        with_segment(BEGUN, 1, verdict=Verdict.FAILED, broken=("Q231: no producer snapshot",)),
        "Q231",
    ),
    (QUALITY_CHECK, "seed-passed-the-gate", REFUSED, with_segment(BEGUN, 1, verdict=Verdict.EXPIRED), "expired"),
    (
        QUALITY_CHECK,
        "segments-fit",
        REFUSED,
        with_offsets(with_segment(BEGUN, 2, end_offset=2**32), high_watermark=2**33, last_stable_offset=2**33),
        "spans",
    ),
    (QUALITY_CHECK, "timestamps-are-real", REFUSED, with_segment(BEGUN, 0, max_timestamp_ms=-1), "timestamp -1"),
    (
        QUALITY_CHECK,
        "seed-is-within-retention",
        NOTE,
        with_segment(BEGUN, 0, max_timestamp_ms=1_500_000_000_000),
        "1 segments",
    ),
    (
        QUALITY_CHECK,
        "restarts-are-harmless",
        NOTE,
        replace(BEGUN, old_configs={"retention.bytes": "5000"}),
        "up to 3000 of them",
    ),
    (
        BEFORE,
        "retention-bytes-can-come-back",
        REFUSED,
        with_replica(BEGUN, local_bytes=600_000, active_bytes=100_000, kept_bytes=311_000),
        "more than 90% of retention.bytes 900000, with 211000 bytes in both places",
    ),
    (
        BEFORE,
        "local-retention-fits-total",
        REFUSED,
        replace(BEGUN, local_target_bytes=900_001),
        "local.retention.bytes would be 900001 at the end, more than retention.bytes 900000",
    ),
    (
        LAST,
        "local-retention-fits-total",
        REFUSED,
        replace(SOUND, old_configs={"retention.ms": "1000"}, local_target_ms=1_001),
        "local.retention.ms would be 1001 at the end, more than retention.ms 1000",
    ),
    (
        LOCAL_RETENTION,
        "retention-bytes-is-safe",
        REFUSED,
        with_replica(both_places(remote_bytes=500_000, local_bytes=311_000), kept_bytes=311_000),
        "delete no more of them with local.retention.bytes unlimited",
    ),
    (
        LOCAL_RETENTION,
        "retention-bytes-is-safe",
        WAITING,
        both_places(remote_bytes=500_000, local_bytes=311_000),
        "500000 remote and 311000 local bytes, 500000 of them in both places",
    ),
    (
        LOCAL_RETENTION,
        "retention-bytes-is-safe",
        WAITING,
        with_partition(SWITCHED, lambda one: replace(one, replica=None)),
        "local bytes are not known",
    ),
    (
        LOCAL_RETENTION,
        "retention-bytes-is-safe",
        WAITING,
        with_replica(both_places(remote_bytes=500_000, local_bytes=1), broker_id=7),
        "are of broker 7",
    ),
    (
        LOCAL_RETENTION,
        "retention-bytes-is-safe",
        WAITING,
        with_replica(both_places(remote_bytes=500_000, local_bytes=1), found_to=320, leader_epoch=3),
        "the local bytes are of",
    ),
    (
        LOCAL_RETENTION,
        "retention-bytes-is-safe",
        WAITING,
        with_replica(both_places(remote_bytes=500_000, local_bytes=311_000), found_to=320, local_bytes=None),
        "local bytes are not known",
    ),
    (
        LOCAL_RETENTION,
        "retention-bytes-is-safe",
        WAITING,
        with_replica(
            both_places(remote_bytes=500_000, local_bytes=311_000), found_to=320, leader_epoch=4, kept_bytes=311_000
        ),
        "500000 remote and 311000 local bytes, 500000 of them in both places",
    ),
    (
        LOCAL_RETENTION,
        "retention-bytes-is-safe",
        WAITING,
        replace(both_places(remote_bytes=500_000, local_bytes=1_000, earliest_local=300), followers={0: {2: 311_000}}),
        "broker 2, which has a replica, has 311000 local bytes, the leader 1000",
    ),
    (
        LOCAL_RETENTION,
        "retention-bytes-is-safe",
        WAITING,
        replace(both_places(remote_bytes=500_000, local_bytes=1_000, earliest_local=300), followers={0: {2: None}}),
        "broker 2, which has a replica, does not tell the size of its log",
    ),
    (QUALITY_CHECK, "custom-metadata-is-the-plugins", REFUSED, with_segment(BEGUN, 0, custom_metadata=b"x"), "1 bytes"),
    (
        QUALITY_CHECK,
        "custom-metadata-is-the-plugins",
        REFUSED,
        replace(BEGUN, store=replace(BEGUN.store, wants_custom_metadata=True)),
        "has no custom metadata",
    ),
    (LAST, "nothing-is-published-twice", REFUSED, replace(SOUND, metadata_topic=published(is_ours=False)), "not write"),
    (
        LAST,
        "nothing-is-published-twice",
        REFUSED,
        replace(SOUND, metadata_topic=published(segment_id=uuid(5))),
        str(uuid(5)),
    ),
    (
        BEFORE,
        "nothing-is-published-twice",
        REFUSED,
        replace(
            BEGUN, metadata_topic=MetadataTopicState({}, (), (), published(is_ours=False, end_offset=77).published)
        ),
        "up to 77 were tiered by a broker or another tool",
    ),
    (LAST, "nothing-changed-since", WAITING, with_offsets(SOUND, earliest=50), "from 0 to 50"),
    (LAST, "nothing-changed-since", WAITING, with_offsets(SOUND, leader_epoch=6), "in 6"),
    (
        LAST,
        "nothing-changed-since",
        REFUSED,
        replace(SOUND, frozen={0: FrozenPartition(0, 0, 199, 0, 1, 4)}),
        "199 was decided",
    ),
    (
        BEFORE,
        "history-is-one",
        REFUSED,
        with_partition(BEGUN, lambda one: replace(one, histories="offsets 150..299 were archived before")),
        "150..299",
    ),
    (LAST, "nothing-changed-since", WAITING, replace(SOUND, frozen={}), "no offsets were decided for it"),
    (LAST, "seed-begins-at-log-start", NOTE, without_segments(SOUND, 0, 1, 2), "nothing is seeded"),
    (
        QUALITY_CHECK,
        "bounds-are-exact",
        WAITING,
        with_partition(BEGUN, lambda one: replace(one, offsets=None, problem="no answer in 5000 ms")),
        "no answer",
    ),
    (WATCH, "switch-is-on", REFUSED, with_configs(SWITCHED, remote_storage_enable="false"), "false again"),
    (WATCH, "earliest-is-unchanged", REFUSED, with_offsets(SWITCHED, earliest=200), "from 0 to 200"),
    (WATCH, "latest-tiered-covers-seed", WAITING, with_offsets(SWITCHED, latest_tiered=199), "is 199"),
    (WATCH, "latest-tiered-covers-seed", WAITING, with_offsets(SWITCHED, latest_tiered=None), "is none"),
    (
        WATCH,
        "brokers-know-their-copies",
        WAITING,
        replace(with_offsets(SWITCHED, latest_tiered=None), frozen={}),
        "nothing is tiered",
    ),
    (
        WATCH,
        "nothing-is-uploaded-again",
        NOTE,
        replace(SWITCHED, metadata_topic=published(is_ours=False, segment_id=uuid(5))),
        "again as",
    ),
]


@pytest.mark.parametrize(
    ("step", "evidence"),
    [(BEFORE, BEGUN), (QUALITY_CHECK, BEGUN), (LAST, SOUND), (WATCH, SWITCHED)],
    ids=lambda one: str(one)[:20],
)
def test_where_all_is_well_every_check_passes(step, evidence):
    results = results_of(CHECKS, step, evidence)
    assert results
    assert [result for result in results if result.outcome is not CheckOutcome.PASSED] == []


@pytest.mark.parametrize(("step", "name", "outcome", "evidence", "numbers"), PROVOKED)
def test_a_check_says_what_it_found(step, name, outcome, evidence, numbers):
    said = [one for one in results_of(CHECKS, step, evidence) if one.outcome is not CheckOutcome.PASSED]
    of_check = [one for one in said if one.name == name]
    assert {one.outcome for one in of_check} == {outcome}
    assert any(numbers in one.numbers for one in of_check)
    assert worst(said) is outcome or name in ("brokers-do-not-tier-it", "bounds-are-exact", "seed-begins-at-log-start")


def test_every_check_is_provoked():
    assert {name for _, name, *_ in PROVOKED} == {check.name for check in CHECKS}


def test_names_are_unique_and_every_check_is_made_somewhere():
    names = [check.name for check in CHECKS]
    assert len(names) == len(set(names))
    assert all(check.steps <= set(STEPS) and check.steps for check in CHECKS)


def test_every_pitfall_has_a_check_or_says_why_there_is_none():
    names = {check.name for check in CHECKS}
    for pitfall in PITFALLS:
        assert pitfall.checks or pitfall.why_none
        assert {*pitfall.checks, *pitfall.watched} <= names
    assert len(PITFALLS) == 24


def test_what_refuses_says_what_to_do():
    for step, name, outcome, evidence, _ in PROVOKED:
        for result in results_of(CHECKS, step, evidence):
            if result.name == name and outcome is result.outcome is REFUSED:
                assert result.what_to_do


def test_leader_epochs_below_the_log_start_are_not_compared():
    cut = LeaderEpochs.of([(0, 40), (3, 150)])
    evidence = with_replica(with_offsets(BEGUN, earliest=40), leader_epochs=cut)
    assert worst(results_of(CHECKS, QUALITY_CHECK, evidence)) is CheckOutcome.PASSED


def test_a_partition_with_only_an_active_segment_has_nothing_to_seed():
    evidence = with_replica(without_segments(BEGUN, 0, 1, 2), active_base=0)
    assert worst(results_of(CHECKS, QUALITY_CHECK, evidence)) is CheckOutcome.PASSED


def test_replicated_records_need_not_be_flushed():
    evidence = with_offsets(with_replica(BEGUN, recovery_point=200), in_sync_replicas=2)
    assert worst(results_of(CHECKS, QUALITY_CHECK, evidence)) is CheckOutcome.PASSED


def test_a_replica_that_was_read_over_the_network_is_as_good():
    for step in (BEFORE, QUALITY_CHECK):
        said = results_of(CHECKS, step, FETCHED)
        assert {one.name for one in said if one.outcome is NOTE} <= {"seed-reaches-active-segment"}
        assert worst(said) in (CheckOutcome.PASSED, NOTE)


@pytest.mark.parametrize(("end_offset", "is_bug"), [(299, True), (300, False)])
@pytest.mark.parametrize("is_fetched", [False, True])
def test_an_upload_that_reaches_beyond_a_fetched_seed_is_no_bug(end_offset, is_bug, is_fetched):
    again = published(is_ours=False, segment_id=uuid(5), start_offset=250, end_offset=end_offset)
    evidence = replace(with_replica(SWITCHED, found_to=320 if is_fetched else None), metadata_topic=again)
    (said,) = (one for one in results_of(CHECKS, WATCH, evidence) if one.outcome is NOTE)
    assert ("bug" in said.what_to_do) is (is_bug or not is_fetched)


def test_unlimited_retention_asks_nothing_of_timestamps():
    evidence = replace(with_segment(BEGUN, 0, max_timestamp_ms=-1), old_configs={"retention.ms": "-1"})
    assert worst(results_of(CHECKS, QUALITY_CHECK, evidence)) is CheckOutcome.PASSED


NEAR: Final = with_replica(BEGUN, local_bytes=600_000, active_bytes=100_000, kept_bytes=311_000)


@pytest.mark.parametrize(
    "evidence",
    [
        replace(NEAR, old_configs={"retention.bytes": "-1"}),
        replace(NEAR, count_once=True),
        with_broker(NEAR, counts_once=True),
        replace(NEAR, retention_order=RetentionOrder.TOTAL_FIRST),
        with_replica(NEAR, kept_bytes=310_000),
        with_replica(NEAR, local_bytes=950_000, kept_bytes=100_000),
    ],
    ids=["unlimited", "declared", "new-brokers", "begun-before", "far-below", "nothing-twice"],
)
def test_retention_bytes_can_come_back(evidence):
    assert worst(results_of(CHECKS, BEFORE, evidence)) is CheckOutcome.PASSED


def test_one_old_broker_is_enough_to_wait():
    two = replace(NEAR, brokers=(replace(NEAR.brokers[0], counts_once=True), replace(NEAR.brokers[0], broker_id=2)))
    assert worst(results_of(CHECKS, BEFORE, two)) is REFUSED


def test_the_largest_local_retention_that_fits_is_named():
    (said,) = (one for one in results_of(CHECKS, BEFORE, NEAR) if one.outcome is REFUSED)
    assert "--local-retention-bytes 210000 or less" in said.what_to_do
    full = with_replica(NEAR, local_bytes=950_000)
    (said,) = (one for one in results_of(CHECKS, BEFORE, full) if one.outcome is REFUSED)
    assert "--local-retention-bytes 1;" in said.what_to_do
    emptied = with_replica(NEAR, local_bytes=950_000, active_bytes=0)
    (said,) = (one for one in results_of(CHECKS, BEFORE, emptied) if one.outcome is REFUSED)
    assert "--local-retention-bytes 0;" in said.what_to_do, "with 1, brokers would keep the newest rolled segment"


@pytest.mark.parametrize("limits", [{}, {"retention.ms": "-1", "retention.bytes": "-1"}], ids=["unknown", "unlimited"])
def test_local_retention_is_within_unlimited_retention(limits):
    evidence = replace(BEGUN, old_configs=limits, local_target_ms=10**9, local_target_bytes=10**9)
    assert worst(results_of(CHECKS, BEFORE, evidence)) is CheckOutcome.PASSED


@pytest.mark.parametrize(
    ("remote_bytes", "local_bytes", "earliest_local"),
    [(500_000, 310_000, 0), (890_000, 300_000, 300)],
    ids=["far-below", "nothing-in-both-places"],
)
def test_retention_bytes_is_safe(remote_bytes, local_bytes, earliest_local):
    evidence = both_places(remote_bytes=remote_bytes, local_bytes=local_bytes, earliest_local=earliest_local)
    assert worst(results_of(CHECKS, LOCAL_RETENTION, evidence)) is CheckOutcome.PASSED


@pytest.mark.parametrize(
    ("remote_bytes", "follower_bytes"), [(890_000, 1_000), (890_000, 10), (300_000, 500_000), (400_000, None)]
)
def test_retention_bytes_is_safe_with_followers_that_have_no_more_or_are_far_below(remote_bytes, follower_bytes):
    evidence = both_places(remote_bytes=remote_bytes, local_bytes=1_000, earliest_local=300)
    evidence = replace(evidence, followers={0: {2: follower_bytes}})
    assert worst(results_of(CHECKS, LOCAL_RETENTION, evidence)) is CheckOutcome.PASSED


def test_who_may_not_ask_for_free_space_is_told_the_right_and_who_was_told_of_a_disk_is_not():
    asked = {
        is_forbidden: replace(FETCHED, disks=(BrokerDiskSpace(1, None, "no", is_forbidden),))
        for is_forbidden in (False, True)
    }
    for is_forbidden, evidence in asked.items():
        (said,) = (one for one in results_of(CHECKS, BEFORE, evidence) if one.outcome is REFUSED)
        assert ("allow Describe on the cluster" in said.what_to_do) is is_forbidden


def test_copies_that_brokers_delay_are_not_waited_for():
    by_hand = replace(with_offsets(SWITCHED, latest_tiered=None), frozen={})
    assert worst(results_of(CHECKS, WATCH, by_hand)) is WAITING
    for name in ("remote_copy_lag_ms", "remote_copy_lag_bytes"):
        for value in ("86400000", "-1"):
            assert worst(results_of(CHECKS, WATCH, with_configs(by_hand, **{name: value}))) is NOTE
        assert worst(results_of(CHECKS, WATCH, with_configs(by_hand, **{name: "0"}))) is WAITING


def test_a_small_local_retention_makes_restarts_harmless():
    evidence = replace(BEGUN, old_configs={"retention.bytes": "5000"}, local_target_bytes=1_000)
    assert worst(results_of(CHECKS, QUALITY_CHECK, evidence)) is CheckOutcome.PASSED


def test_a_longer_copy_of_the_same_start_beside_the_published_one_is_no_second_seed():
    seed = SOUND.partitions[0].seed
    longer = segment_of(ORDERS, 9, 0, 199, {0: 0, 3: 150}, state=FINISHED)
    both = (seed[0], replace(seed[1], metadata=longer), seed[2])
    evidence = replace(with_partition(SOUND, lambda one: replace(one, seed=both)), metadata_topic=published())
    assert worst(results_of(CHECKS, LAST, evidence)) is CheckOutcome.PASSED
    alone = with_partition(evidence, lambda one: replace(one, seed=both[1:]))
    assert worst(results_of(CHECKS, LAST, alone)) is REFUSED


def test_the_partition_that_is_meant_is_named():
    refused = [one for one in results_of(CHECKS, QUALITY_CHECK, without_segments(BEGUN, 1)) if one.outcome is REFUSED]
    assert [one.partition for one in refused] == [ORDERS.partition]
