"""Values of the model: ids, segments and their states, reasons, sizes, costs."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.tiering.audit.plan_removals import Spared
from include.tiering.copying.plan import HeldBack, LeftBecause
from include.tiering.expiration.plan import Waits
from include.tiering.kafka.log_dirs.contract import IneligibleReason
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.reasons import Reason, reason_members
from include.tiering.model.recovered_log import Obstacle
from include.tiering.model.segments import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
    is_legal_topic_name,
)
from include.tiering.model.sizes import (
    CostEstimate,
    EpochSize,
    PartitionSize,
    PartitionStates,
    PriceTable,
    StateSize,
    estimate_cost,
    partition_size,
    partition_states,
)
from include.tiering.operations.doctor import Cause
from include.tiering.operations.readiness import NotReady
from include.tiering.units import GIB
from include.tiering.verification.plan import VerificationReason
from tests.doubles.segments import (
    DELETE_FINISHED,
    DELETE_STARTED,
    FINISHED,
    STARTED,
    partition_of,
    segment_of,
    update_of,
)

# Uuids, topic names, partitions, segment ids.


def test_zero_is_written_as_kafka_does():
    assert str(Uuid(bytes(16))) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert Uuid(bytes(16)).is_zero
    assert not Uuid(bytes(15) + b"\x01").is_zero


def test_golden_text():
    assert Uuid.parse("_-AH-7LwQcaAxdMHV7n1wg").value.hex() == "ffe007fbb2f041c680c5d30757b9f5c2"


@given(st.binary(min_size=16, max_size=16))
def test_text_round_trip(value: bytes):
    assert Uuid.parse(str(Uuid(value))).value == value
    assert len(str(Uuid(value))) == 22


@pytest.mark.parametrize(
    "text",
    [
        "",
        "A" * 21,
        "A" * 23,
        "A" * 21 + "=",
        "A" * 21 + "/",
        "A" * 21 + "+",
        "A" * 21 + " ",
        "A" * 21 + "é",
        # The last character carries four bits that no byte uses: only one spelling is the canonical one.
        "A" * 21 + "B",
    ],
)
def test_other_texts_are_refused(text: str):
    with pytest.raises(ValueError, match="Uuid"):
        Uuid.parse(text)


@pytest.mark.parametrize("size", [0, 15, 17])
def test_other_lengths_are_refused(size: int):
    with pytest.raises(ValueError, match=str(size)):
        Uuid(bytes(size))


def test_random_is_a_version_4_uuid():
    drawn = Uuid.random(lambda size: b"\x11" * size)
    assert drawn.value[6] >> 4 == 4
    assert drawn.value[8] >> 6 == 0b10


def test_random_is_drawn_again_while_its_text_begins_with_a_dash():
    draws = iter([b"\xf8" + bytes(15), b"\x01" + bytes(15)])
    assert Uuid.random(lambda size: next(draws)).value[0] == 1


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "..."])
def test_legal_topic_names(name: str):
    assert is_legal_topic_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a/b", "a b", "a\n", "\n", "é", "a\x00"])
def test_illegal_topic_names(name: str):
    assert not is_legal_topic_name(name)
    with pytest.raises(ValueError, match="topic name"):
        TopicIdPartition(Uuid(bytes(16)), 0, name)


@pytest.mark.parametrize("partition", [-1, 2**31])
def test_partitions_are_32_bit(partition: int):
    with pytest.raises(ValueError, match=str(partition)):
        TopicIdPartition(Uuid(bytes(16)), partition, "orders")


def test_the_name_is_a_label():
    topic_id = Uuid(b"0123456789abcdef")
    assert TopicIdPartition(topic_id, 1, "old") == TopicIdPartition(topic_id, 1, "new")
    assert hash(TopicIdPartition(topic_id, 1, "old")) == hash(TopicIdPartition(topic_id, 1, "new"))
    assert TopicIdPartition(topic_id, 1, "old") != TopicIdPartition(Uuid(bytes(16)), 1, "old")


def test_printed_forms():
    assert TopicIdPartition(Uuid(bytes(16)), 2**31 - 1, "orders").partition == 2**31 - 1
    partition = TopicIdPartition(Uuid(bytes(16)), 3, "orders")
    assert str(partition) == "orders-3"
    assert str(RemoteLogSegmentId(partition, Uuid(bytes(16)))) == "orders-3:AAAAAAAAAAAAAAAAAAAAAA"


# Segment metadata: what is refused at birth, what an update may change.

PARTITION = partition_of()
SEGMENT = segment_of(PARTITION, 1, 10, 99, {1: 10, 2: 50, 3: 50, 4: 99})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"start_offset": -1}, "-1..99"),
        ({"end_offset": 9}, "10..9"),
        ({"segment_size_bytes": -1}, "-1"),
        ({"segment_size_bytes": 2**31}, "2147483648"),
        ({"segment_leader_epochs": LeaderEpochs()}, "at least one"),
        ({"segment_leader_epochs": LeaderEpochs.of([(0, 10), (1, 100)])}, "after end 99"),
    ],
)
def test_refused_at_birth(change: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        replace(SEGMENT, **change)


def test_one_offset_is_a_segment():
    assert replace(SEGMENT, start_offset=99, segment_leader_epochs=LeaderEpochs.of([(4, 99)])).end_offset == 99


def test_end_offset_of_each_epoch_is_inclusive():
    assert [SEGMENT.end_offset_of_epoch(epoch) for epoch in range(6)] == [None, 49, 49, 98, 99, None]


def test_an_update_changes_four_things():
    change = RemoteLogSegmentMetadataUpdate(
        SEGMENT.remote_log_segment_id, FINISHED, event_timestamp_ms=5, broker_id=9, custom_metadata=b"x"
    )
    updated = SEGMENT.with_update(change)
    assert updated == replace(SEGMENT, state=FINISHED, event_timestamp_ms=5, broker_id=9, custom_metadata=b"x")
    assert updated.with_update(replace(change, custom_metadata=None)).custom_metadata is None
    assert updated.is_finished
    assert not SEGMENT.is_finished


@pytest.mark.parametrize("source", list(RemoteLogSegmentState))
@pytest.mark.parametrize("target", list(RemoteLogSegmentState))
def test_an_update_follows_the_state_machine(source: RemoteLogSegmentState, target: RemoteLogSegmentState):
    segment = replace(SEGMENT, state=source)
    if source.may_become(target):
        assert segment.with_update(update_of(SEGMENT, target)).state is target
    else:
        with pytest.raises(ValueError, match=f"{source.name} may not become {target.name}"):
            segment.with_update(update_of(SEGMENT, target))


def test_an_update_of_another_segment_is_refused():
    other = segment_of(PARTITION, 2, 10, 99)
    with pytest.raises(ValueError, match="applied to"):
        SEGMENT.with_update(update_of(other, STARTED))


# Codes are part of the interface: this table is not made from the code.

CODES: dict[type[Reason], str] = {
    IneligibleReason: "internal-topic compacted broker-tiered topic-unknown topic-removed topic-contradicted not-leader"
    " ambiguous-replica being-deleted being-moved offsets-unknown stale-log-dir high-watermark-above-log-end"
    " recovery-point-above-log-end log-start-above-log-end checkpoint-older-than-log active below-log-start"
    " above-high-watermark above-last-stable-offset not-flushed past-retention copy-delayed old-magic no-leader-epoch"
    " no-producer-snapshot unreadable corrupt after-corrupt compacted-segment",
    HeldBack: "not-ready no-leader-replica stopped lost failed-again store-in-doubt copy-in-doubt hole log-divergence"
    " byte-limit not-eligible damaged compacted not-ours past-retention",
    LeftBecause: "failed throttled copied held paused ended unknown",
    NotReady: "metadata-incomplete cluster-metadata no-leader-replica not-ours deleted unread stopped undecided paused",
    Waits: "not-ready not-ours stopped name-taken topic-deleted published",
    Obstacle: "same-offsets covered falling-epochs odd-epochs overlap gap below-log-start before-history left-history"
    " later-history",
    Spared: "young age-unknown known accepted complete no-segment",
    Cause: "not-found not-included handover platform not-ready open-transaction not-eligible held-back topic-quota"
    " being-copied waits-for-a-run published nothing-rolled up-to-date deleted",
    VerificationReason: "never-verified failed-before expired expiring older-than-asked rolling-sample asked",
}


@pytest.mark.parametrize("reasons", CODES, ids=lambda reasons: reasons.__name__)
def test_the_codes_stay(reasons: type[Reason]) -> None:
    assert [reason.code for reason in reasons] == CODES[reasons].split()
    assert [reasons.of(code) for code in CODES[reasons].split()] == list(reasons)


@pytest.mark.parametrize("reasons", CODES, ids=lambda reasons: reasons.__name__)
def test_a_person_reads_the_message(reasons: type[Reason]) -> None:
    for reason in reasons:
        assert f"{reason}" == str(reason) == reason.message
    assert len({reason.message for reason in reasons}) == len(list(reasons))


def test_which_reasons_need_a_person() -> None:
    assert {reason for reason in HeldBack if not reason.retriable} == {
        HeldBack.OUT_OF_SIGHT,
        HeldBack.STOPPED,
        HeldBack.LOST,
        HeldBack.FAILED_AGAIN,
        HeldBack.STORE_IN_DOUBT,
        HeldBack.COPY_IN_DOUBT,
        HeldBack.HOLE,
        HeldBack.DIVERGENCE,
        HeldBack.DAMAGED,
        HeldBack.COMPACTED,
    }
    assert {reason for reason in NotReady if not reason.retriable} == {
        NotReady.NOT_OURS,
        NotReady.DELETED,
        NotReady.STOPPED,
        NotReady.UNDECIDED,
    }


def test_what_a_document_says_of_a_reason() -> None:
    assert reason_members(NotReady.PAUSED) == {"reason": "paused", "reason_message": "paused"}
    assert reason_members(None) == {"reason": None, "reason_message": None}
    with pytest.raises(ValueError, match="NotReady has no code 'other'"):
        NotReady.of("other")


# Sizes recounted from segments.


def test_a_segment_that_spans_epochs_counts_once_in_all_and_once_in_each():
    segments = [
        segment_of(PARTITION, 1, 0, 99, {0: 0, 1: 60}, size_bytes=10, state=FINISHED),
        segment_of(PARTITION, 2, 100, 199, {1: 100}, size_bytes=5, state=FINISHED),
        segment_of(PARTITION, 3, 200, 299, {2: 200}, size_bytes=70, state=STARTED),
        segment_of(PARTITION, 4, 0, 99, {0: 0}, size_bytes=70, state=DELETE_STARTED),
    ]
    expected = PartitionSize(PARTITION, 15, 2, (EpochSize(0, 10, 1), EpochSize(1, 15, 2)))
    assert partition_size(PARTITION, segments) == expected


def test_nothing():
    assert partition_size(PARTITION, []) == PartitionSize(PARTITION, 0, 0, ())


def test_every_state_counts_for_itself_and_tombstones_do_not():
    segments = [
        segment_of(PARTITION, 1, 0, 99, {0: 0, 1: 60}, size_bytes=10, state=DELETE_STARTED),
        segment_of(PARTITION, 2, 100, 199, {1: 100}, size_bytes=5, state=STARTED),
        segment_of(PARTITION, 3, 200, 299, {1: 200}, size_bytes=70, state=DELETE_FINISHED),
    ]
    states = partition_states(PARTITION, segments)
    assert states == PartitionStates(
        PARTITION,
        (
            StateSize(STARTED, 5, 1, (EpochSize(1, 5, 1),)),
            StateSize(DELETE_STARTED, 10, 1, (EpochSize(0, 10, 1), EpochSize(1, 10, 1))),
        ),
    )
    assert (states.segments, states.finished) == (2, PartitionSize(PARTITION, 0, 0, ()))


# Exact amounts, and no amount for what has no price.


def test_each_price_gives_its_amount() -> None:
    prices = PriceTable("EUR", Decimal("0.023"), Decimal("0.005"), Decimal("0.0004"), Decimal("0.1"))
    assert estimate_cost(10 * GIB, 334_000, prices) == CostEstimate(
        "EUR", Decimal("0.23"), writing=Decimal("5.01"), reading=Decimal("0.4008"), deleting=Decimal("0.1004")
    )


def test_without_a_price_there_is_no_amount_and_without_any_no_estimate() -> None:
    assert estimate_cost(GIB, 1, PriceTable("EUR")) is None
    storage_only = estimate_cost(GIB, 1, PriceTable("EUR", gib_month=Decimal(1)))
    assert storage_only == CostEstimate("EUR", Decimal(1), None, None, None)
