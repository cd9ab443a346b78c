"""Checks of the order and headers of batches."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.tiering.errors import FormatError
from include.tiering.formats.log_batches import EpochGuard
from include.tiering.formats.record_batch import ControlType
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.verification.log_batches import EpochOrder, HeaderRules, OffsetOrder, Timestamps
from tests.doubles.batch_tables import Batch, batch, data, end, shown
from tests.doubles.record_batches import CONTROL, TRANSACTIONAL

# Offsets and leader epochs of batches, beside plain loops over them; however the batches are cut into tables.

START, END = 100, 140


@st.composite
def ranges(draw: st.DrawFn) -> list[Batch]:
    """Mostly one behind the other from START on, sometimes not."""
    found, offset = [], START
    for _ in range(draw(st.integers(1, 12))):
        offset += draw(st.sampled_from([0, 0, 0, 0, 2, -3, 60, 2**40]))
        length = draw(st.integers(1, 5))
        found.append(batch(max(offset, 0), max(offset, 0) + length - 1))
        offset = found[-1].header.last_offset + 1 if offset < 2**39 else START + 20
    return found


def plain_order(batches: list[Batch]) -> tuple[int, int]:
    """(missing, misplaced)"""
    reached, missing, misplaced = START - 1, 0, 0
    for header, _ in batches:
        if header.base_offset < START or header.last_offset > END:
            misplaced += 1
            continue
        if header.base_offset <= reached:
            misplaced += 1
        else:
            missing += header.base_offset - reached - 1
        reached = max(reached, header.last_offset)
    return missing + END - reached, misplaced


@given(ranges(), st.integers(1, 5))
def test_offsets_as_a_plain_loop_counts_them(batches: list[Batch], table_batches: int) -> None:
    order = OffsetOrder(START, END)
    shown(order, batches, table_batches)
    order.end()
    assert (order.missing.count, order.misplaced.count) == plain_order(batches)
    assert bool(order.missing.first) == bool(order.missing.count)
    assert bool(order.misplaced.first) == bool(order.misplaced.count)


def test_what_is_wrong_first_is_named() -> None:
    order = OffsetOrder(START, END)
    shown(order, [batch(100, 109), batch(112, 119), batch(115, 130), batch(131, 139)])
    order.end()
    assert (order.missing.first, order.missing.count) == ("offsets 110..111 are in no batch", 3)
    assert order.misplaced.first == "batch 115..130 at byte 200 follows offset 119 in 100..140"


def test_offsets_that_wrap_around_are_misplaced() -> None:
    order = OffsetOrder(START, END)
    shown(order, [batch(2**63 - 5, last_offset_delta=100), batch(100, 140), batch(120, last_offset_delta=-30)])
    order.end()
    assert (order.missing.count, order.misplaced.count) == (0, 2)


def test_a_part_may_begin_anywhere_inside() -> None:
    order = OffsetOrder(START, END, begins_anywhere=True)
    shown(order, [batch(120, 129), batch(131, 140)], 1)
    order.end()
    assert (order.missing.count, order.misplaced.count) == (1, 0)
    stranger = OffsetOrder(START, END, begins_anywhere=True)
    shown(stranger, [batch(90, 140)])
    assert stranger.misplaced.count == 1


@st.composite
def histories(draw: st.DrawFn) -> LeaderEpochs:
    """From START on, or from a little after it."""
    epoch, start, entries = 0, START + draw(st.sampled_from([0, 0, 3])), []
    for _ in range(draw(st.integers(1, 4))):
        epoch += draw(st.integers(1, 2))
        entries.append((epoch, start))
        start += draw(st.integers(0, 15))
    return LeaderEpochs.of(entries)


def guard_refuses(history: LeaderEpochs, batches: list[Batch]) -> bool:
    guard = EpochGuard(history)
    try:
        for header, _ in batches:
            if header.partition_leader_epoch != guard.epoch or header.last_offset >= guard.end_offset:
                guard.enter(header.partition_leader_epoch, header.base_offset, header.last_offset, 0)
    except FormatError:
        return True
    return False


@given(histories(), st.data(), st.integers(1, 5))
def test_epochs_as_the_check_pass_reads_them(history: LeaderEpochs, data: st.DataObject, table_batches: int) -> None:
    offset, batches = START, []
    while offset <= END:
        last = offset + data.draw(st.integers(0, 6))
        true_epoch = history.epoch_for(offset)
        near = 0 if true_epoch is None else true_epoch
        epoch = data.draw(st.sampled_from([near] * 12 + [near + 1, max(near - 1, 0)]))
        batches.append(batch(offset, last, partition_leader_epoch=epoch))
        offset = last + 1
    order = EpochOrder(history)
    shown(order, batches, table_batches)
    assert (order.wrong.count > 0) == guard_refuses(history, batches)


@pytest.mark.parametrize(
    ("epochs", "wrong"),
    [([0, 0, 2, 2], 0), ([0, 2, 2, 2], 1), ([0, 0, 0, 2], 1), ([0, 0, -1, 2], 1), ([1, 1, 3, 3], 4)],
)
def test_epochs_that_change_inside_of_the_segment(epochs: list[int], wrong: int) -> None:
    order = EpochOrder(LeaderEpochs.of([(0, 100), (1, 120), (2, 120)]))
    starts = (100, 110, 120, 130)
    shown(order, [batch(s, s + 9, partition_leader_epoch=e) for s, e in zip(starts, epochs, strict=True)])
    assert order.wrong.count == wrong


def test_a_batch_across_two_epochs_is_wrong() -> None:
    order = EpochOrder(LeaderEpochs.of([(0, 100), (1, 120)]))
    shown(order, [batch(115, 125, partition_leader_epoch=1)])
    assert order.wrong.first == "batch 115..125 at byte 0 has leader epoch 1, the metadata has 1 from offset 120"


# Headers that a broker writes, and each way in which one cannot be.

SOUND = [
    batch(0, 4),
    batch(5, attributes=0x4C, last_offset_delta=3, record_count=0),
    batch(9, producer_id=7, producer_epoch=0, base_sequence=0),
    data(10, 12, 7),
    end(13, 7, ControlType.ABORT),
    end(14, 7, ControlType.COMMIT),
    batch(15, max_timestamp=-1),
]


def rules(*batches: Batch) -> HeaderRules:
    found = HeaderRules()
    shown(found, batches)
    return found


def test_headers_of_a_broker_are_possible() -> None:
    assert rules(*SOUND).impossible.count == 0


@pytest.mark.parametrize(
    ("strange", "what"),
    [
        (batch(20, attributes=0x80), "unknown attributes"),
        (batch(20, attributes=-0x8000), "unknown attributes"),
        (batch(20, attributes=5), "an unknown codec"),
        (batch(20, last_offset_delta=-1, record_count=0), "a last offset below the base offset"),
        (batch(2**63 - 1, last_offset_delta=1, record_count=2), "a last offset below the base offset"),
        (batch(20, record_count=-1), "a record count that exceeds its offsets or is negative"),
        (batch(20, record_count=2), "a record count that exceeds its offsets or is negative"),
        (batch(20, 25, batch_length=49 + 6 * 7 - 1), "more records than fit into its bytes"),
        (batch(20, max_timestamp=-2), "a timestamp below -1"),
        (batch(20, producer_id=7), "a producer without an epoch"),
        (batch(20, producer_id=-2), "an impossible producer id"),
        (batch(20, attributes=TRANSACTIONAL), "a transaction without a producer"),
        (Batch(batch(20, attributes=CONTROL).header, ControlType.ABORT), "a control batch outside of a transaction"),
        (Batch(end(20, 7, ControlType.ABORT).header._replace(attributes=0x31)), "not one uncompressed record"),
        (Batch(end(20, 7, ControlType.ABORT).header._replace(last_offset_delta=1)), "not one uncompressed record"),
        (end(20, 7, ControlType.LEADER_CHANGE), "a control record that is neither ABORT nor COMMIT"),
        (end(20, 7, ControlType.UNKNOWN), "a control record that is neither ABORT nor COMMIT"),
    ],
)
def test_a_contradiction_is_named_with_its_batch(strange: Batch, what: str) -> None:
    found = rules(*SOUND, strange)
    assert (found.impossible.count, found.impossible.first.rpartition(": ")[2]) == (1, what)
    assert f"at byte {100 * len(SOUND)}" in found.impossible.first


def test_compressed_records_may_be_small_and_many() -> None:
    assert rules(batch(20, 500, attributes=4)).impossible.count == 0


def test_a_batch_that_compaction_thinned() -> None:
    found = rules(batch(0, 4), batch(5, 9, record_count=3))
    assert (found.thinned.count, found.thinned.first) == (1, "batch 5..9 at byte 100 holds 3 records")
    assert rules(*SOUND[:1]).thinned.count == 0


def test_timestamps_across_tables() -> None:
    times = Timestamps(2000)
    assert times.largest_ms == -1
    shown(times, [batch(0, max_timestamp=3000), batch(1), batch(2, max_timestamp=2001)], 1)
    assert (times.largest_ms, times.above.count) == (3000, 2)
    assert times.above.first == "batch 0..0 at byte 0 has timestamp 3000, above 2000"
